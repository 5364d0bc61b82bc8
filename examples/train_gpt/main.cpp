// SPDX-License-Identifier: Apache-2.0
// Trains a byte-level GPT whose parameters, gradients, AdamW state and saved activations are spread over three tiers.
// --help says what can be chosen.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/observe/report.hpp>
#include <vtier/runtime/hierarchy.hpp>
#include <vtier/topology/discover.hpp>

#include "data.hpp"
#include "host_ops.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "summary.hpp"
#include "trainer.hpp"

#if VTIER_HAS_CUDA
#include <vtier/device/cuda.hpp>

#include "cuda_ops.hpp"
#endif

namespace {

using namespace train_gpt;

volatile std::sig_atomic_t stop_asked = 0;

extern "C" void ask_to_stop(int signal_number) {
  stop_asked = 1;
  std::signal(signal_number, SIG_DFL);  // a second Ctrl-C ends at once
}

/// Trains over a hierarchy; prints what it has to say at the end where it `tells` or was interrupted.
template <class Hierarchy>
run_result train(Hierarchy& mem, const typename Hierarchy::device_type& on, const command& c, const batches& data,
                 const std::string& name, bool tells) {
  trainer<Hierarchy> run{mem, on, c.shape, c.seed, c.steps};
  run_result result;
  {
    progress_line line{name, c.steps};
    const auto began = std::chrono::steady_clock::now();
    std::int64_t blocked_ns = mem.count().blocked_ns;
    // A step's loss is known when the next one has been enqueued.
    const auto show = [&](std::size_t index) {
      const std::int64_t blocked_before_ns = std::exchange(blocked_ns, mem.count().blocked_ns);
      const double took = run.seconds(index);
      const double blocked = took > 0 ? static_cast<double>(blocked_ns - blocked_before_ns) * 1e-9 / took : 0.0;
      line.show({index, run.loss(index), took, run.idle_share(index).value_or((std::min)(blocked, 1.0))});
    };
    while (run.steps() < c.steps && stop_asked == 0) {
      run.step(data.at(run.steps()));
      if (run.steps() > 1) show(run.steps() - 2);
    }
    run.finish();
    if (run.steps() > 0) show(run.steps() - 1);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  for (std::size_t i = 0; i < run.steps(); ++i) result.losses.push_back(run.loss(i));
  result.interrupted = run.steps() < c.steps;
  const vtier::report told = mem.report();
  if (tells || result.interrupted) std::cout << told;
  result.counted = told;
  if (c.compare && !result.interrupted) result.parameters = run.parameters();
  return result;
}

/// Trains with everything in the first tier.
template <class Device>
run_result train_resident(const Device& on, const command& c, const batches& data, std::size_t need_bytes) {
  vtier::hierarchy mem{vtier::hbm{on, {.budget = need_bytes, .name = "hbm"}}, vtier::options{}};
  return train(mem, on, c, data, "resident", false);
}

/// Trains over the three tiers.
template <class Device>
run_result train_tiered(const Device& on, const command& c, const batches& data, std::size_t need_bytes) {
  const std::filesystem::path directory =
      c.disk.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path{c.disk};
  const auto node = vtier::machine::discover().nearest_node(on);
  vtier::hierarchy mem{vtier::hbm{on, {.budget = c.hbm_bytes, .name = "hbm"}},
                       vtier::pinned{node, {.budget = c.dram_bytes, .name = "dram"}},
                       vtier::mapped_file{directory, {.budget = need_bytes, .name = "disk"}}, vtier::options{}};
  return train(mem, on, c, data, "tiered", true);
}

template <class Device>
int run_on(const Device& on, const command& c) {
  if (!c.json.empty() && !std::ofstream{c.json, std::ios::app}) {  // better now than after the training
    throw bad_option("--json: the file \"" + c.json + "\" cannot be written");
  }
  corpus text = read_corpus(c.text);
  const std::size_t scratch_bytes = ops<Device>{on}.attention_scratch(c.shape) * sizeof(float);
  // Everything at its peak, and a quarter more for what the ends of blocks and the gaps between them take.
  const std::size_t peak_bytes = c.shape.state_bytes() + c.shape.passing_bytes() + scratch_bytes;
  const std::size_t need_bytes = vtier::align_up(peak_bytes + peak_bytes / 4, std::size_t{64} << 20U);
  const auto mib = [&](std::size_t times) {
    return vtier::format_bytes(times * c.shape.parameter_count() * sizeof(float));
  };
  std::cout << "GPT of " << c.shape.layers << " layers, width " << c.shape.width << ", " << c.shape.heads
            << " heads, context " << c.shape.context << ": " << std::fixed << std::setprecision(1)
            << static_cast<double>(c.shape.parameter_count()) / 1e6 << " million parameters\n"
            << "parameters " << mib(1) << ", gradients " << mib(1) << ", AdamW moments " << mib(2)
            << ", saved activations " << vtier::format_bytes(c.shape.saved_count() * sizeof(float)) << "\n"
            << "over hbm " << vtier::format_bytes(c.hbm_bytes) << ", dram " << vtier::format_bytes(c.dram_bytes)
            << " and a file; on " << on.name() << "\n"
            << "text " << vtier::format_bytes(text.text.size()) << " from " << text.source << ", batch "
            << c.shape.batch << ", " << c.steps << " steps, seed " << c.seed << std::endl;
  const batches data{std::move(text.text), c.shape, c.seed};

  summary end;
  std::optional<run_result> resident;
  if (c.compare) {
    resident = train_resident(on, c, data, need_bytes);
    if (resident->interrupted) {
      std::cout << "interrupted after " << resident->losses.size() << " resident steps" << std::endl;
      return 130;
    }
  }
  const run_result tiered = train_tiered(on, c, data, need_bytes);
  end.tiered = &tiered;
  end.state_bytes = tiered.counted.tensor_peak_bytes;
  end.steps = tiered.losses.size();
  if (resident && !tiered.interrupted) {
    end.compared = true;
    end.difference = first_difference(*resident, tiered);
    end.seconds_resident = resident->seconds;
  }
  print(std::cout, end);
  if (!c.json.empty()) write_json_file(c.json, end);
  if (tiered.interrupted) {
    std::cout << "interrupted after " << end.steps << " tiered steps" << std::endl;
    return 130;
  }
  return end.difference ? 1 : 0;
}

int run(const command& c) {
#if VTIER_HAS_CUDA
  if (c.device != "host") {
    std::optional<vtier::cuda::device> gpu;
    try {
      gpu.emplace();
    } catch (const vtier::device_error& e) {
      if (c.device == "cuda") throw;
      std::cout << "no GPU (" << e.what() << "): running on the host" << std::endl;
    }
    if (gpu) return run_on(*gpu, c);
  }
#else
  if (c.device == "cuda") throw bad_option("--device cuda: this program was built without the CUDA toolkit");
#endif
  return run_on(vtier::host::device{}, c);
}

}  // namespace

int main(int argc, char* argv[]) {
  try {
    const command c = parse({argv + 1, argv + argc});
    if (c.help) {
      std::cout << help_text;
      return 0;
    }
    std::signal(SIGINT, ask_to_stop);
    return run(c);
  } catch (const bad_option& problem) {
    std::cerr << "train_gpt: " << problem.what() << '\n';
    return 2;
  } catch (const std::exception& problem) {
    std::cerr << "train_gpt: " << problem.what() << '\n';
    return 1;
  }
}
