// SPDX-License-Identifier: Apache-2.0
#pragma once

// The best plan of one tier among many: each way to order the intervals is packed, replayed and compared.
//
// No order is best everywhere, and a replay is cheap and exact about the links. So the ways are a few knobs, turned one
// after the other, each where the replay likes it best, until none gains any more or the work is used up. What was seen
// on the traces of published models: intervals ordered by the bytes that are used while they last, or by their time,
// per byte that letting go moves; more room kept back for fetches where the links are tight; and not keeping what the
// next use overwrites is a gain where the links are idle and room is short.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/tier_plan.hpp>
#include <vtier/policy/detail/tier_replay.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/role.hpp>

namespace vtier::detail {

/// One way to order the intervals and to share the room.
struct search_knobs {
  bool by_time = false;       // the length of an interval: its time, else the bytes used meanwhile
  double write_weight = 1.0;  // what a write counts, a fetch being 1
  double headroom = 0.05;     // kept back for fetches, of the tier
  double slack = 0.02;        // of the tier, not planned with at all: what comes need not wait for what goes
  double spread = 0.0;        // mixes alike intervals, so that what is kept is spread over the step
  int let_go = 0;             // of what the next use overwrites: 0 nothing, 1 parameters, 2 all is never kept
  friend bool operator==(const search_knobs&, const search_knobs&) = default;
};

/// Searches a plan of one tier.
class tier_search {
 public:
  /// Needs   room for the uses alone
  tier_search(const std::vector<step_tensor>& tensors, const tier_uses& in, std::int64_t capacity,
              const link_rates& rates)
      : tensors_{&tensors},
        in_{&in},
        capacity_{capacity},
        used_{profile_of(tensors, in)},
        replay_{tensors, in, capacity, rates},
        clock_(in.tick_count() + 1, 0.0) {
    for (const tier_use& u : in.uses) clock_[u.begin + 1] += static_cast<double>(tensors[u.tensor].size_bytes);
    std::partial_sum(clock_.begin(), clock_.end(), clock_.begin());
  }

  /// Gives   the plan that takes the least time, of those the one that moves the fewest bytes
  /// Cost    replays_max times O(intervals log ticks)
  tier_plan best(std::size_t replays_max) {
    search_knobs& knobs = knobs_;
    tier_plan result = pack(knobs, capacity_);
    double least = cost(result);
    std::size_t replays = 1;
    const auto turn = [&](auto search_knobs::*knob, auto values) {
      bool gained = false;
      const auto before = knobs.*knob;
      for (const auto value : values) {
        if (value == before || replays >= replays_max) continue;
        search_knobs other = knobs;
        other.*knob = value;
        tier_plan tried = pack(other, capacity_);
        const double costs = cost(tried);
        ++replays;
        if (costs >= least) continue;
        least = costs;
        knobs = other;
        result = std::move(tried);
        gained = true;
      }
      return gained;
    };
    for (bool gained = true; gained && replays < replays_max;) {
      gained = turn(&search_knobs::let_go, std::vector{0, 1, 2});
      gained = turn(&search_knobs::headroom, std::vector{0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3}) || gained;
      gained = turn(&search_knobs::slack, std::vector{0.0, 0.01, 0.02, 0.04, 0.08}) || gained;
      gained = turn(&search_knobs::write_weight, std::vector{0.1, 0.25, 0.5, 1.0, 2.0, 4.0}) || gained;
      gained = turn(&search_knobs::by_time, std::vector<bool>{false, true}) || gained;
      gained = turn(&search_knobs::spread, std::vector{0.0, 0.15, 0.3, 0.6}) || gained;
    }
    return result;
  }

  /// The plan that the last best() found, for a tier that has less room.
  [[nodiscard]] tier_plan again(std::int64_t capacity) const { return pack(knobs_, capacity); }

  /// Plays a plan of this tier.
  replay_result play(const tier_plan& plan, replay_log* log = nullptr) { return replay_.play(plan, log); }

 private:
  // Time, and bytes where time is alike.
  double cost(const tier_plan& plan) {
    const replay_result r = replay_.play(plan);
    return r.ns *
           (1.0 + 1e-12 * (r.up_bytes + r.down_bytes) / static_cast<double>((std::max)(capacity_, std::int64_t{1})));
  }

  [[nodiscard]] double length(const idle_interval& i, bool by_time) const {
    const bool wraps = i.end <= i.begin;
    if (by_time) {
      return static_cast<double>(in_->tick_ns[i.end] - in_->tick_ns[i.begin] + (wraps ? in_->duration_ns : 0));
    }
    return clock_[i.end] - clock_[i.begin] + (wraps ? clock_.back() : 0.0);
  }

  [[nodiscard]] tier_plan pack(const search_knobs& knobs, std::int64_t capacity) const {
    constexpr double golden = 0.6180339887498949;
    std::vector<std::uint32_t> order;
    std::vector<double> key(in_->idle.size(), 0.0);
    for (std::uint32_t i = 0; i < in_->idle.size(); ++i) {
      const idle_interval& idle = in_->idle[i];
      const role what = (*tensors_)[idle.tensor].what;
      if (!idle.fetched && (knobs.let_go == 2 || (knobs.let_go == 1 && what == role::parameter))) continue;
      const bool writes = idle.segment != no_use && !idle.worthless;
      const double costs = (idle.fetched ? 1.0 : 0.0) + (writes ? knobs.write_weight : 0.0);
      const double mixed = 1.0 + knobs.spread * std::fmod(static_cast<double>(i) * golden, 1.0);
      // What is let go for nothing is kept last.
      key[i] = costs > 0.0 ? length(idle, knobs.by_time) / costs * mixed : (std::numeric_limits<double>::max)();
      order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair{key[a], a} < std::pair{key[b], b};
    });
    const auto share = [&](double of) { return static_cast<std::int64_t>(of * static_cast<double>(capacity)); };
    const std::int64_t planned = (std::max)(capacity - share(knobs.slack), used_.most(0, in_->tick_count()));
    return pack_intervals(*tensors_, *in_, used_, order, planned, share(knobs.headroom));
  }

  const std::vector<step_tensor>* tensors_;
  const tier_uses* in_;
  std::int64_t capacity_;
  search_knobs knobs_;
  room_profile used_;
  tier_replay replay_;
  std::vector<double> clock_;  // bytes used before each tick
};

}  // namespace vtier::detail
