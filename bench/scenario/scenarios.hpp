// SPDX-License-Identifier: Apache-2.0
#pragma once

// Training steps under limits of memory: which ones, and each as a trace with its limits and its lower bound.
//
// Sizes and rates are divided by one number, so that a step of a large model fits this machine while every time stays
// what it is on the machine that is imitated. Sizes are rounded up to what tiers hand out, and the bound is that of the
// rounded step.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/lower_bound.hpp>
#include <vtier/policy/step_trace.hpp>

#include "scenario/training_step.hpp"
#include "support/model_shape.hpp"

namespace vtier::bench {

/// A training step and the machine it runs on.
///
/// Units   GB/s are 1e9 bytes in a second
struct scenario {
  model_shape model;
  double budget_share = 0.4;     // of the state, in the first tier
  double link_gbps = 25.0;       // each way between the device and memory
  std::size_t accumulation = 1;  // micro-batches to a step
  std::size_t sharded_over = 1;  // devices that share the state
  std::size_t drive_count = 0;   // 0: memory has room for all that the device lacks; else for 60 % of that

  [[nodiscard]] std::string name() const {
    std::string text = model.name + " " + std::to_string(std::lround(budget_share * 100.0)) + "% " +
                       (link_gbps > 30.0 ? "PCIe5" : "PCIe4");
    if (accumulation > 1) text += " x" + std::to_string(accumulation);
    if (sharded_over > 1) text += " " + std::to_string(sharded_over) + "GPUs";
    if (drive_count > 0) text += " " + std::to_string(drive_count) + "NVMe";
    return text;
  }
};

/// Speeds that scenarios have in common.
///
/// Units   bytes per ns; ns
struct common_speeds {
  double drive_read = 6.0;   // one drive
  double drive_write = 3.2;  // likewise
  double copy_latency_ns = 10'000.0;
  double drive_latency_ns = 80'000.0;
};

/// A scenario ready to be played.
///
/// Units   bytes and bytes per ns after division by `divisor`
struct scaled_step {
  step_trace trace;
  step_limits limits;
  step_bound bound;
  double divisor = 1.0;
  std::size_t state_bytes = 0;
  std::size_t born_bytes = 0;    // of all tensors that the step makes
  std::size_t leased_bytes = 0;  // the most at one time
  std::size_t piece_bytes = 0;   // the largest tensor
};

/// What tiers round sizes up to: the block of a drive.
inline constexpr std::size_t granule_bytes = 512;

/// Makes a scenario's trace, limits and bound.
///
/// Needs   state_bytes_max: what the state may take on this machine
/// Gives   a step whose leases may need more than its budget: look at leased_bytes
[[nodiscard]] inline scaled_step scale_step(const scenario& s, std::size_t state_bytes_max) {
  training_setup setup;
  setup.shape = s.model;
  setup.accumulation = s.accumulation;
  setup.sharded_over = s.sharded_over;
  if (s.link_gbps > 30.0) setup.device = {400'000.0, 2'500.0};  // the device that comes with such a link
  setup.piece_bytes_max = (std::numeric_limits<std::size_t>::max)() / 2;
  const double budget = s.budget_share * static_cast<double>(state_bytes(record_leases(setup)));
  setup.piece_bytes_max = static_cast<std::size_t>((std::min)(268'435'456.0, budget / 64.0));

  scaled_step result;
  result.trace = record_leases(setup);
  result.divisor =
      (std::max)(1.0, static_cast<double>(state_bytes(result.trace)) / static_cast<double>(state_bytes_max));
  for (step_tensor& t : result.trace.tensors) {
    const double size = std::ceil(static_cast<double>(t.size_bytes) / result.divisor);
    t.size_bytes = align_up((std::max)(static_cast<std::size_t>(size), std::size_t{1}), granule_bytes);
    result.piece_bytes = (std::max)(result.piece_bytes, t.size_bytes);
    (t.born ? result.born_bytes : result.state_bytes) += t.size_bytes;
  }
  const auto share_of_state = [&](double share) {
    return align_down(static_cast<std::size_t>(share * static_cast<double>(result.state_bytes)), granule_bytes);
  };
  result.limits.budget_bytes.push_back(share_of_state(s.budget_share));
  result.limits.links.push_back({s.link_gbps / result.divisor, s.link_gbps / result.divisor});
  if (s.drive_count > 0) {
    constexpr common_speeds speeds;
    const double drives = static_cast<double>(s.drive_count) / result.divisor;
    result.limits.budget_bytes.push_back(share_of_state(0.6 * (1.0 - s.budget_share)));
    result.limits.links.push_back({speeds.drive_read * drives, speeds.drive_write * drives});
  }
  result.limits.budget_bytes.push_back(0);
  result.bound = lower_bound(result.trace, result.limits);
  const auto leased = vtier::detail::leased_bytes(result.trace.tensors, vtier::detail::uses_of(result.trace),
                                                  [](const vtier::detail::tier_use&) { return true; });
  for (const std::int64_t bytes : leased) {
    result.leased_bytes = (std::max)(result.leased_bytes, static_cast<std::size_t>(bytes));
  }
  return result;
}

/// A model of the benches by name, with a batch that trains on one device.
[[nodiscard]] inline model_shape model_for_training(const std::string& name) {
  for (model_shape m : public_models()) {
    if (m.name != name) continue;
    if (m.name == "gpt2_124M") m.micro_batch = 1;  // the logits of eight sequences alone are 40 % of the state
    return m;
  }
  return {};
}

/// The scenarios of a run.
///
/// Gives   all: every model under every limit
[[nodiscard]] inline std::vector<scenario> all_scenarios(bool all) {
  const std::vector<std::string> names{"gpt2_124M", "gpt2_1.5B", "llama2_7B", "llama2_13B", "llama2_70B", "moe_8x7B"};
  std::vector<scenario> result;
  const auto add = [&](const std::string& name, double share, double gbps, std::size_t accumulation,
                       std::size_t sharded_over, std::size_t drives) {
    result.push_back({model_for_training(name), share, gbps, accumulation, sharded_over, drives});
  };
  if (all) {
    for (const std::string& name : names) {
      for (const double share : {0.2, 0.4, 0.6, 0.8}) {
        for (const double gbps : {25.0, 50.0}) {
          for (const std::size_t accumulation : {std::size_t{1}, std::size_t{8}}) {
            for (const std::size_t over : {std::size_t{1}, std::size_t{8}}) {
              for (const std::size_t drives : std::vector<std::size_t>{0, 1, 2, 4, 8})
                add(name, share, gbps, accumulation, over, drives);
            }
          }
        }
      }
    }
    return result;
  }
  for (const char* name : {"gpt2_124M", "gpt2_1.5B", "llama2_7B"}) {
    for (const double share : {0.2, 0.4, 0.6, 0.8}) add(name, share, 25.0, 1, 1, 0);
  }
  for (const char* name : {"llama2_13B", "llama2_70B", "moe_8x7B"}) {
    for (const double share : {0.2, 0.6}) add(name, share, 25.0, 1, 1, 0);
  }
  for (const double share : {0.2, 0.4, 0.6, 0.8}) add("llama2_7B", share, 25.0, 8, 1, 0);
  for (const double share : {0.2, 0.6}) add("llama2_7B", share, 50.0, 1, 1, 0);
  for (const double share : {0.2, 0.6}) add("llama2_70B", share, 50.0, 1, 8, 0);
  for (const char* name : {"gpt2_124M", "gpt2_1.5B"}) {
    for (const std::size_t drives : std::vector<std::size_t>{1, 4}) add(name, 0.4, 25.0, 1, 1, drives);
  }
  return result;
}

/// Two scenarios of a model that nobody trains, to see that everything works.
[[nodiscard]] inline std::vector<scenario> smoke_scenarios() {
  model_shape tiny{.name = "tiny",
                   .layers = 3,
                   .hidden = 1024,
                   .heads = 8,
                   .kv_heads = 8,
                   .ffn = 4096,
                   .vocabulary = 8000,
                   .sequence = 256};
  return {{tiny, 0.4, 25.0, 2, 1, 0}, {tiny, 0.4, 25.0, 1, 1, 2}};
}

}  // namespace vtier::bench
