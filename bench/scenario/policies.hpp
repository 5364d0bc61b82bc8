// SPDX-License-Identifier: Apache-2.0
#pragma once

// One scenario under one policy: steps through a hierarchy of its own in a world of its own, and what they took.
//
// All policies move through the same library; they differ in what leaves when a tier is full and in what is asked for
// ahead of need.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/sim.hpp>
#include <vtier/io/sim.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/sim.hpp>
#include <vtier/policy/eviction.hpp>
#include <vtier/policy/lru.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/policy/schedule_aware.hpp>
#include <vtier/runtime/hierarchy.hpp>
#include <vtier/runtime/options.hpp>
#include <vtier/runtime/statistics.hpp>

#include "scenario/fifo.hpp"
#include "scenario/scenarios.hpp"
#include "scenario/step_player.hpp"
#include "support/spread.hpp"

namespace vtier::bench {

/// How often steps are played.
struct play_lengths {
  std::size_t warm_up = 2;
  std::size_t measured = 2;
};

/// What one step took, in the mean of those measured.
///
/// Units   ns; bytes after division by the scenario's divisor; plan_seconds of this machine
struct step_result {
  std::string policy;
  std::string setting;  // the best of those that were tried
  double step_ns = 0.0;
  std::vector<double> up_bytes;  // by boundary between tiers
  std::vector<double> down_bytes;
  double peak_share = 0.0;  // of the first tier's budget
  double plan_seconds = 0.0;
};

/// The simulated machine of a scenario, and a hierarchy on it.
template <eviction_policy Eviction>
class scenario_machine {
 public:
  using memory = hierarchy<sim::device, Eviction>;

  scenario_machine(const scaled_step& what, options limits)
      : world{std::make_shared<sim::world>(how())}, gpu{world, device_of(what)}, nvme{world, drive_of(what)} {
    limits.progress_thread = false;
    const hbm first{gpu, {.budget = what.limits.budget_bytes[0], .grows = false}};
    const std::size_t all = what.state_bytes + what.born_bytes;
    if (what.limits.budget_bytes.size() == 2) {
      mem = std::make_unique<memory>(first, pinned{gpu, {.budget = roomy(what, all)}}, std::move(limits));
      return;
    }
    const std::size_t dram = what.limits.budget_bytes[1];
    const auto full_chunk = static_cast<std::size_t>(8'388'608.0 / what.divisor);
    limits.chunk_bytes_max = (std::max)(align_up(full_chunk, granule_bytes), std::size_t{4_KiB});
    limits.staging_budget = (std::min)(32 * limits.chunk_bytes_max, dram / 8);
    mem = std::make_unique<memory>(first, pinned{gpu, {.budget = dram}}, sim::file{nvme, {.budget = roomy(what, all)}},
                                   std::move(limits));
  }

  std::shared_ptr<sim::world> world;
  sim::device gpu;
  sim::drive nvme;
  std::unique_ptr<memory> mem;

 private:
  // More than tensors need: a tier that holds everything has no lack of pieces either.
  static std::size_t roomy(const scaled_step& what, std::size_t bytes) {
    return align_up(bytes + bytes / 2 + 16 * what.piece_bytes, std::size_t{4096});
  }
  static sim::world_options how() {
    sim::world_options result;
    result.disorder = 0.0;
    result.operation_count_max = 100'000'000;
    return result;
  }
  static sim::device_options device_of(const scaled_step& what) {
    constexpr common_speeds speeds;
    sim::device_options result;
    result.memory_bytes = align_up(what.limits.budget_bytes[0], std::size_t{256});
    result.name = "gpu";
    result.copy_bytes_per_ns = what.limits.links[0].up;
    result.device_bytes_per_ns = 1'000.0 / what.divisor;
    result.latency_ns = speeds.copy_latency_ns;
    return result;
  }
  static sim::drive_options drive_of(const scaled_step& what) {
    constexpr common_speeds speeds;
    sim::drive_options result;
    result.capacity_bytes = 2 * roomy(what, what.state_bytes + what.born_bytes);
    result.name = "nvme";
    result.depth_max = 32;
    result.offset_alignment_bytes = granule_bytes;
    result.latency_ns = speeds.drive_latency_ns;
    if (what.limits.links.size() > 1) {
      result.read_bytes_per_ns = what.limits.links[1].up;
      result.write_bytes_per_ns = what.limits.links[1].down;
    }
    return result;
  }
};

/// What crossed each boundary between tiers so far.
struct crossed {
  explicit crossed(const statistics& count) : up(count.tiers.size() - 1, 0.0), down(count.tiers.size() - 1, 0.0) {
    for (const link_statistics& l : count.links) {
      for (std::size_t b = (std::min)(l.from, l.to); b < (std::max)(l.from, l.to); ++b) {
        (l.from > l.to ? up : down)[b] += static_cast<double>(l.moved_bytes);
      }
    }
  }
  std::vector<double> up;
  std::vector<double> down;
};

/// Plays a scenario. `set_up(player, memory)` says what the policy does beside evicting.
///
/// Gives   the mean of the measured steps
/// Errors  std::runtime_error where the world saw a rule broken, or where the step took less than its bound
template <eviction_policy Eviction, class SetUp>
[[nodiscard]] step_result play_steps(const scaled_step& what, const play_lengths& lengths, const options& limits,
                                     SetUp&& set_up) {
  step_result result;
  std::shared_ptr<sim::world> world;
  std::string broken;
  {
    scenario_machine<Eviction> on{what, limits};
    world = on.world;
    step_player player{*on.mem, on.gpu, what.trace};
    set_up(player, *on.mem);
    player.prepare();
    std::int64_t began = 0;
    for (std::size_t i = 0; i < lengths.warm_up; ++i) began = player.play();
    const crossed before{on.mem->count()};
    std::int64_t ended = began;
    for (std::size_t i = 0; i < lengths.measured; ++i) ended = player.play();
    const statistics count = on.mem->count();
    const crossed after{count};
    const auto steps = static_cast<double>(lengths.measured);
    result.step_ns = static_cast<double>(ended - began) / steps;
    for (std::size_t b = 0; b < after.up.size(); ++b) {
      result.up_bytes.push_back((after.up[b] - before.up[b]) / steps);
      result.down_bytes.push_back((after.down[b] - before.down[b]) / steps);
    }
    result.peak_share =
        static_cast<double>(count.tiers[0].peak_bytes) / static_cast<double>(what.limits.budget_bytes[0]);
    for (const schedule_statistics& s : count.schedules) result.plan_seconds += static_cast<double>(s.plan_ns) / 1e9;
    for (const std::string& text : count.errors) broken += text + "\n";
    for (const std::string& text : on.mem->broken_rules()) broken += text + "\n";
  }
  world->finish();
  for (const std::string& text : world->violations()) broken += text + "\n";
  if (!broken.empty()) throw std::runtime_error("rules were broken:\n" + broken);
  if (result.step_ns < what.bound.ns() * (1.0 - 1e-9)) {
    throw std::runtime_error("a step of " + fixed(result.step_ns / 1e6, 3) + " ms is below its bound of " +
                             fixed(what.bound.ns() / 1e6, 3) + " ms: the bound or this bench is wrong");
  }
  return result;
}

/// The faster of two results.
inline void keep_best(std::optional<step_result>& best, step_result next) {
  if (!best || next.step_ns < best->step_ns) best = std::move(next);
}

/// Options without a plan.
[[nodiscard]] inline options as_it_comes() {
  options result;
  result.plan_steps = false;
  return result;
}

/// Evicts by the policy alone.
template <eviction_policy Eviction>
[[nodiscard]] step_result play_plain(const scaled_step& what, const play_lengths& lengths, const std::string& name) {
  step_result result = play_steps<Eviction>(what, lengths, as_it_comes(), [](auto&, auto&) {});
  result.policy = name;
  return result;
}

/// Fetches what the next leases read, and lets go after a use what is not used again soon: what a trainer does that
/// knows its modules, as ZeRO-3 and ZeRO-Infinity do. The best of some windows and distances.
[[nodiscard]] inline step_result play_look_ahead(const scaled_step& what, const play_lengths& lengths) {
  const step_trace& trace = what.trace;
  const std::size_t count = trace.leases.size();
  constexpr std::size_t never = ~std::size_t{0};
  // For each lease: how many leases later its tensor is used again, and after how many bytes of leases.
  std::vector<std::size_t> next_lease(count, never);
  std::vector<double> bytes_before(2 * count + 1, 0.0);
  for (std::size_t i = 0; i < 2 * count; ++i) {
    const step_lease& l = trace.leases[i % count];
    bytes_before[i + 1] = bytes_before[i] + static_cast<double>(trace.tensors[l.tensor].size_bytes);
  }
  std::vector<std::size_t> later(trace.tensors.size(), never);
  for (std::size_t i = 2 * count; i-- > 0;) {
    const std::uint32_t t = trace.leases[i % count].tensor;
    const bool lives_until = later[t] != never && (!trace.tensors[t].born || later[t] < count);
    if (i < count && lives_until) next_lease[i] = later[t] - i;
    later[t] = i;
  }
  std::optional<step_result> best;
  const auto budget = static_cast<double>(what.limits.budget_bytes[0]);
  // With drives a wish that waits is looked at again and again, which takes this machine minutes: one setting then.
  const bool drives = what.limits.links.size() > 1;
  const std::vector<std::size_t> windows = drives ? std::vector<std::size_t>{16} : std::vector<std::size_t>{16, 64};
  const std::vector<double> reuse_shares = drives ? std::vector<double>{2.0} : std::vector<double>{0.5, 2.0};
  for (const std::size_t window : windows) {
    for (const double reuse_share : reuse_shares) {
      options limits = as_it_comes();
      if (drives) limits.prefetch_count_max = window;
      limits.prefetch_share_max = 0.5;  // the most live bytes that nobody has used yet
      step_result now = play_steps<lru>(what, lengths, limits, [&](auto& player, auto& mem) {
        const auto wish = [&](std::size_t lease) {
          const step_lease& l = trace.leases[lease % count];
          const auto& tensor = player.tensor(l.tensor);
          const bool there = tensor && !(trace.tensors[l.tensor].born && lease >= count);
          if (there && reads(l.mode)) mem.prefetch(*tensor);
        };
        player.before_begin = [&, wish, window](std::size_t lease) {
          for (std::size_t ahead = lease == 0 ? 1 : window; ahead <= window; ++ahead) wish(lease + ahead);
        };
        player.after_end = [&, window, reuse_share](std::size_t lease) {
          const std::size_t after = next_lease[lease];
          const auto& tensor = player.tensor(trace.leases[lease].tensor);
          if (!tensor || (after != never && after <= window)) return;
          if (after == never || bytes_before[lease + after] - bytes_before[lease + 1] > reuse_share * budget) {
            mem.evict(*tensor);
          }
        };
      });
      now.setting = std::to_string(window) + " leases ahead, reuse within " + fixed(reuse_share, 2) + " of the budget";
      keep_best(best, std::move(now));
    }
  }
  best->policy = "look_ahead";
  return *best;
}

/// Keeps as many of the tensors as fit in the first tier for good, those whose bytes are used most often first; the
/// others stream through the rest of it. The best of some sizes of that rest.
[[nodiscard]] inline step_result play_static_split(const scaled_step& what, const play_lengths& lengths) {
  const step_trace& trace = what.trace;
  std::vector<std::size_t> saved(trace.tensors.size(), 0);  // transfers of each byte that staying makes needless
  for (const step_lease& l : trace.leases) {
    saved[l.tensor] += (reads(l.mode) ? std::size_t{1} : 0U) + (writes(l.mode) ? std::size_t{1} : 0U);
  }
  std::vector<std::uint32_t> order(trace.tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::erase_if(order, [&](std::uint32_t t) { return trace.tensors[t].born; });
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return saved[a] > saved[b]; });
  std::optional<step_result> best;
  for (const double more : {0.0, 0.05}) {
    const std::size_t budget = what.limits.budget_bytes[0];
    const std::size_t streamed =
        what.leased_bytes + 2 * what.piece_bytes + static_cast<std::size_t>(more * static_cast<double>(budget));
    std::vector<char> stays(trace.tensors.size(), 0);
    std::size_t room = budget > streamed ? budget - streamed : 0;
    for (const std::uint32_t t : order) {
      if (trace.tensors[t].size_bytes > room) continue;
      room -= trace.tensors[t].size_bytes;
      stays[t] = 1;
    }
    step_result now = play_steps<lru>(what, lengths, as_it_comes(), [&](auto& player, auto&) {
      player.rule = [&](std::uint32_t t) -> std::optional<placement_rule> {
        if (stays[t] == 0) return std::nullopt;
        return placement_rule{1};
      };
    });
    now.setting = fixed(100.0 * static_cast<double>(streamed) / static_cast<double>(budget), 0) + " % to stream";
    keep_best(best, std::move(now));
  }
  best->policy = "static_split";
  return *best;
}

/// Follows the plan that the hierarchy makes of its recorded step. The first two steps are recorded, the third is the
/// first that follows the plan made of the second.
[[nodiscard]] inline step_result play_schedule_aware(const scaled_step& what, play_lengths lengths) {
  lengths.warm_up = (std::max)(lengths.warm_up, std::size_t{4});
  options limits;
  limits.plan_steps = true;
  step_result result = play_steps<schedule_aware>(what, lengths, limits, [](auto&, auto&) {});
  result.policy = "schedule_aware";
  return result;
}

/// A policy under comparison.
struct named_policy {
  std::string name;
  std::function<step_result(const scaled_step&, const play_lengths&)> play;
};

/// The policies of this bench, in the order of its tables.
[[nodiscard]] inline std::vector<named_policy> all_policies() {
  return {{"schedule_aware", play_schedule_aware},
          {"lru", [](const scaled_step& s, const play_lengths& l) { return play_plain<lru>(s, l, "lru"); }},
          {"fifo", [](const scaled_step& s, const play_lengths& l) { return play_plain<fifo>(s, l, "fifo"); }},
          {"look_ahead", play_look_ahead},
          {"static_split", play_static_split}};
}

}  // namespace vtier::bench
