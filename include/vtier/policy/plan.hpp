// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a recorded step to what is moved when in every step like it: a pure value that the runtime follows.
//
// Each boundary between two tiers is planned by itself, from the top: what crosses the first boundary, and when, is
// what the second tier is used for. A plan says only in which order things are moved between which leases; the streams
// and the links make the time of it. Correctness never depends on it: what a plan gets wrong is fetched on demand.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/policy/detail/stay_places.hpp>
#include <vtier/policy/detail/tier_search.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/fit.hpp>
#include <vtier/policy/lower_bound.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier {

/// What a plan does with a tensor: bring it into a tier; let it go from one, written down first where nothing below has
/// its newest bytes; write it down and keep it.
enum class plan_action_kind : std::uint8_t { fetch, evict, write_back };

/// A plan does not say where.
inline constexpr std::size_t no_place = ~std::size_t{0};

/// One movement of a plan.
///
/// Units   moments of the trace: after the lease that begins or ends at `moment`; due: when the tier is used for it
/// next,
///         in the following step where that is not behind `moment`
struct plan_action {
  std::uint32_t moment = 0;
  plan_action_kind what = plan_action_kind::fetch;
  std::uint32_t tensor = 0;
  std::uint32_t tier = 0;  // that it is brought into, leaves or is written down from
  std::uint32_t due = 0;
  std::size_t offset_bytes = no_place;  // of a fetch into the first tier: where to
  friend bool operator==(const plan_action&, const plan_action&) = default;
};

/// What a plan moves over the boundary below a tier in a step.
struct plan_traffic {
  double up_bytes = 0.0;
  double down_bytes = 0.0;
};

/// A plan, and what it promises.
///
/// Shape   actions in order of moment; traffic as step_limits has links
/// Units   bytes; ns
struct step_plan {
  std::vector<plan_action> actions;
  std::vector<std::uint32_t> held_at_start;  // tensors in the first tier when a step begins, in order of their use
  std::vector<std::size_t> place_at_start;   // of each of them: the offset in the first tier
  std::vector<std::size_t> lease_places;     // of each lease: where its tensor is placed, if it is in no place yet
  std::vector<plan_traffic> traffic;
  double step_ns = 0.0;  // of a step that follows it
  step_bound bound;      // what no plan can beat
};

namespace detail {

/// The tensors that a plan of a tier holds when a lap begins.
[[nodiscard]] inline std::vector<std::uint32_t> held_at_start_of(const tier_uses& uses, const tier_plan& plan) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> held;  // the use that it is for, tensor
  for (std::uint32_t i = 0; i < uses.idle.size(); ++i) {
    const idle_interval& idle = uses.idle[i];
    if (plan.kept[i] != 0 && idle.end <= idle.begin) held.emplace_back(idle.end, idle.tensor);
  }
  for (const planned_fetch& f : plan.fetches) {
    if (f.laps > 0) held.emplace_back(f.due, uses.idle[f.interval].tensor);
  }
  std::sort(held.begin(), held.end());
  std::vector<std::uint32_t> result;
  for (const auto& entry : held) result.push_back(entry.second);
  return result;
}

/// What a tier below is used for, by what happens at the boundary above it.
struct uses_below {
  tier_uses uses;
  std::vector<std::uint32_t> moments;  // of the trace, one for each tick
};

[[nodiscard]] inline uses_below uses_below_of(const std::vector<step_tensor>& tensors, const replay_log& above,
                                              double lap_ns, const std::vector<std::uint32_t>& moments_above) {
  struct mark {
    double ns = 0.0;
    std::uint32_t use = 0;
    std::uint32_t moment = 0;
    bool begins = false;
  };
  uses_below result;
  std::vector<mark> marks;
  for (const replay_action& a : above.actions) {
    if (a.what == replay_action_kind::drop) continue;
    const auto use = static_cast<std::uint32_t>(result.uses.uses.size());
    const bool up = a.what == replay_action_kind::fetch;
    const double begin = above.tick_ns[a.tick];
    const double end = (std::min)((std::max)(begin, a.done_ns), lap_ns);
    const auto tick = static_cast<std::size_t>(std::upper_bound(above.tick_ns.begin(), above.tick_ns.end(), end) -
                                               above.tick_ns.begin());
    result.uses.uses.push_back({a.tensor, 0, 0, up, !up});
    marks.push_back({begin, use, moments_above[a.tick], true});
    marks.push_back({end, use, moments_above[(std::max)(tick, std::size_t{1}) - 1], false});
  }
  std::stable_sort(marks.begin(), marks.end(), [](const mark& a, const mark& b) { return a.ns < b.ns; });
  for (std::uint32_t tick = 0; tick < marks.size(); ++tick) {
    const mark& m = marks[tick];
    (m.begins ? result.uses.uses[m.use].begin : result.uses.uses[m.use].end) = tick;
    result.uses.tick_ns.push_back(static_cast<std::int64_t>(m.ns));
    result.moments.push_back(m.moment);
  }
  result.uses.duration_ns = static_cast<std::int64_t>(lap_ns);
  // In order of begin, as they were given; actions of one moment stand in their order.
  result.uses.find_idle(tensors);
  for (idle_interval& i : result.uses.idle) {
    i.worthless = result.uses.uses[i.before].reads && !result.uses.uses[i.after].reads;
  }
  return result;
}

/// Writes the places of stays into a plan of the first tier.
inline void set_places(step_plan& plan, const step_trace& trace, const std::vector<stay>& stays,
                       const stay_places& places) {
  plan.lease_places.assign(trace.leases.size(), no_place);
  plan.place_at_start.assign(plan.held_at_start.size(), no_place);
  if (places.offset_bytes.empty()) return;
  std::vector<std::vector<std::size_t>> of(trace.tensors.size());  // stays by tensor, in order of begin
  std::vector<std::size_t> at_start(trace.tensors.size(), no_place);
  for (std::size_t i = 0; i < stays.size(); ++i) {
    of[stays[i].tensor].push_back(i);
    if (stays[i].wraps()) at_start[stays[i].tensor] = places.offset_bytes[i];
  }
  // The place of the stay that a time is in.
  const auto place = [&](std::uint32_t tensor, std::uint32_t when) {
    for (const std::size_t i : of[tensor]) {
      const stay& s = stays[i];
      const bool within = s.wraps() ? when >= s.begin || when < s.end : when >= s.begin && when < s.end;
      if (within) return places.offset_bytes[i];
    }
    return no_place;
  };
  for (plan_action& a : plan.actions) {
    if (a.what == plan_action_kind::fetch) a.offset_bytes = place(a.tensor, 2 * a.moment + 1);
  }
  for (std::size_t i = 0; i < trace.leases.size(); ++i) {
    plan.lease_places[i] = place(trace.leases[i].tensor, 2 * trace.leases[i].begin);
  }
  for (std::size_t i = 0; i < plan.held_at_start.size(); ++i) plan.place_at_start[i] = at_start[plan.held_at_start[i]];
}

/// When each tensor is used next.
class next_uses {
 public:
  next_uses(std::size_t tensor_count, const tier_uses& in) : begins_(tensor_count) {
    for (const tier_use& u : in.uses) begins_[u.tensor].push_back(u.begin);
  }
  /// The tick behind `tick` at which a use of the tensor begins; over the end of the lap where there is none before it.
  [[nodiscard]] std::uint32_t after(std::uint32_t tensor, std::uint32_t tick) const {
    const auto& all = begins_[tensor];
    if (all.empty()) return tick;
    const auto next = std::upper_bound(all.begin(), all.end(), tick);
    return next == all.end() ? all.front() : *next;
  }

 private:
  std::vector<std::vector<std::uint32_t>> begins_;
};

}  // namespace detail

/// How much work is put into a plan.
struct plan_effort {
  std::size_t replays_max = 0;  // 0: as many as take about half a second
};

/// Makes a plan for a step.
///
/// Needs   budgets that are all the tensors' own, and rates as measured
/// Gives   the same plan for the same values; nothing to do where all fits
/// Errors  usage_error that says what is wrong with the trace or the limits, or what does not fit
/// Threads any
/// Cost    O(replays x leases log leases), and the square of the times that tensors come to the first tier for their
///         places, which are not looked for beyond 16,384 of these
[[nodiscard]] inline step_plan make_plan(const step_trace& trace, const step_limits& limits,
                                         const plan_effort& effort = {}) {
  if (const auto why = limits.fault(); !why.empty()) throw usage_error(why);
  const step_fit fit = fit_of(trace, limits.budget_bytes);
  if (fit.first_short_bytes > 0) throw usage_error(fit.text);
  step_plan result;
  result.bound = lower_bound(trace, limits);
  result.step_ns = static_cast<double>(trace.duration_ns);
  result.traffic.resize(limits.links.size());
  constexpr int placings_max = 8;
  detail::tier_uses uses = detail::uses_of(trace);
  // Where tensors linger so long that there is no room for leases, the plan is made as if they did not.
  if (detail::profile_of(trace.tensors, uses).most(0, uses.tick_count()) >
      static_cast<std::int64_t>(limits.budget_bytes.front())) {
    for (detail::tier_use& u : uses.uses) u.room_end = 0;
  }
  std::vector<std::uint32_t> moments(uses.tick_count());
  for (std::uint32_t m = 0; m < moments.size(); ++m) moments[m] = m;
  for (std::uint32_t tier = 0; tier < limits.links.size() && !uses.uses.empty(); ++tier) {
    const auto capacity = static_cast<std::int64_t>((std::min)(
        limits.budget_bytes[tier], static_cast<std::size_t>((std::numeric_limits<std::int64_t>::max)() / 4)));
    if (detail::profile_of(trace.tensors, uses).most(0, uses.tick_count()) > capacity) break;
    const std::size_t replays = effort.replays_max > 0 ? effort.replays_max
                                                       : (std::clamp)(std::size_t{3'000'000} / uses.uses.size(),
                                                                      std::size_t{8}, std::size_t{300});
    detail::tier_search search{trace.tensors, uses, capacity, limits.links[tier]};
    detail::replay_log log;
    detail::tier_plan chosen = search.best(replays);
    detail::replay_result played = search.play(chosen, &log);
    detail::stay_places places;
    std::vector<detail::stay> stays;
    if (tier == 0) {
      // Room in bytes is not yet room in one piece: where places take more than there is, so much less is planned with.
      std::int64_t planned = capacity;
      for (int attempts = 0;; ++attempts) {
        result.held_at_start = detail::held_at_start_of(uses, chosen);
        for (const double patience : {1.0, 0.5, 0.0}) {
          stays = detail::stays_of(trace.tensors, uses, result.held_at_start, log, patience);
          places = detail::place_stays(stays, static_cast<std::uint32_t>(2 * uses.tick_count()), capacity);
          if (places.size_bytes <= capacity) break;
        }
        const std::int64_t over = places.size_bytes - capacity;
        if (over <= 0 || attempts == placings_max || places.offset_bytes.empty()) break;
        planned -= (std::min)(over, capacity / 50);
        if (detail::profile_of(trace.tensors, uses).most(0, uses.tick_count()) > planned) break;
        chosen = search.again(planned);
        log = {};
        played = search.play(chosen, &log);
      }
    }
    result.traffic[tier] = {played.up_bytes, played.down_bytes};
    result.step_ns = played.ns;
    const detail::next_uses next{trace.tensors.size(), uses};
    for (const detail::replay_action& a : log.actions) {
      const auto what = a.what == detail::replay_action_kind::fetch        ? plan_action_kind::fetch
                        : a.what == detail::replay_action_kind::write_back ? plan_action_kind::write_back
                                                                           : plan_action_kind::evict;
      result.actions.push_back({moments[a.tick], what, a.tensor, tier, moments[next.after(a.tensor, a.tick)]});
    }
    if (tier == 0) detail::set_places(result, trace, stays, places);
    detail::uses_below below = detail::uses_below_of(trace.tensors, log, played.ns, moments);
    uses = std::move(below.uses);
    moments = std::move(below.moments);
  }
  std::stable_sort(result.actions.begin(), result.actions.end(),
                   [](const plan_action& a, const plan_action& b) { return a.moment < b.moment; });
  return result;
}

}  // namespace vtier
