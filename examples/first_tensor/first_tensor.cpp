// SPDX-License-Identifier: Apache-2.0
// Twelve tensors of 8 MiB train in 24 MiB of fast memory: the smallest program that uses vtier.

#include <filesystem>
#include <iostream>
#include <vector>

#include <vtier/tier.hpp>

int main() {
  // [readme]
  using namespace vtier::literals;

  vtier::host::device gpu;  // on a machine with a GPU: vtier::cuda::device gpu{0};
  auto stream = gpu.make_stream();
  auto machine = vtier::machine::discover();

  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 24_MiB}},
                       vtier::pinned{machine.nearest_node(gpu), {.budget = 48_MiB}},
                       vtier::mapped_file{std::filesystem::temp_directory_path(), {.budget = 1_GiB}}};

  std::vector<decltype(mem)::tensor<float>> weights;
  for (int i = 0; i < 12; ++i) weights.push_back(mem.make_tensor<float>({2048, 1024}, vtier::role::parameter));

  for (int step = 0; step < 3; ++step) {
    auto scope = mem.step();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (i + 1 < weights.size()) mem.prefetch(weights[i + 1]);
      auto w = step == 0 ? weights[i].write(stream) : weights[i].read_write(stream);  // in HBM, ordered on `stream`
      gpu.launch(stream, [=, p = w.data(), n = w.size()] {  // a kernel<<<..., stream>>> on CUDA
        for (std::size_t k = 0; k < n; ++k) p[k] = step == 0 ? static_cast<float>(i) : p[k] + 1.0F;
      });
    }  // the lease ends: evictable once `stream` has passed this point
  }
  std::cout << mem.report();
  // [readme]

  bool right = true;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto w = weights[i].read(vtier::on_host);
    for (const float x : w.span()) right = right && x == static_cast<float>(i) + 2.0F;
  }
  std::cout << "every weight is what it should be: " << (right ? "yes" : "no") << '\n';
  return right ? 0 : 1;
}
