// SPDX-License-Identifier: Apache-2.0
// A user's program: one tensor goes down and comes back.

#include <filesystem>
#include <iostream>

#include <vtier/tier.hpp>

int main() {
  using namespace vtier::literals;
  vtier::host::device on;
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 1_MiB}},
                       vtier::mapped_file{std::filesystem::temp_directory_path(), {.budget = 4_MiB}}};
  auto stream = on.make_stream();
  auto t = mem.make_tensor<int>({1000}, vtier::role::parameter);
  {
    auto lease = t.write(stream);
    on.launch(stream, [p = lease.data()] { p[999] = 42; });
  }
  mem.flush(t);
  mem.evict(t);
  const bool right = t.read(vtier::on_host).data()[999] == 42;
  std::cout << mem.report();
  return right ? 0 : 1;
}
