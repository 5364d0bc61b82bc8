// SPDX-License-Identifier: Apache-2.0
#pragma once

// All schedules of a small step, as a judge of bounds and plans: random steps, the least bytes that any schedule of
// whole tensors moves per lap, and every plan that fits. It shares nothing with the headers that it judges but the
// step itself.
//
// Where each tensor is between two ticks is a state: away, here with a copy below, or here alone. A lap is a walk
// through states. As a lap need not end as it began, the least is a mean over laps for ever: a least mean cycle, by
// Karp's theorem, over the states in the slot that has the fewest.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/policy/detail/tier_plan.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier::test {

/// A random step with a few tensors and leases, which may overlap; sizes from 0, up to 20 ns between two moments.
inline step_trace small_step(random_source& random, std::size_t tensors, std::size_t leases, std::size_t size_max = 4) {
  step_trace result;
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::size_t size = random.below(12) == 0 ? 0 : 1 + random.below(size_max);
    result.tensors.push_back({size, role::activation, random.below(4) == 0});
  }
  std::vector<std::uint32_t> open;  // leases
  std::vector<char> written(tensors, 0);
  std::int64_t now = 0;
  while (result.leases.size() < leases || !open.empty()) {
    const auto moment = static_cast<std::uint32_t>(result.moment_ns.size());
    const auto tensor = static_cast<std::uint32_t>(random.below(tensors));
    auto mode = static_cast<access>(random.below(3));
    if (result.tensors[tensor].born && written[tensor] == 0) mode = access::write;
    bool may_begin = result.leases.size() < leases && (open.empty() || random.below(4) == 0);
    for (const std::uint32_t o : open) {
      const step_lease& beside = result.leases[o];
      if (beside.tensor == tensor && (writes(mode) || writes(beside.mode))) may_begin = false;
    }
    if (may_begin) {
      if (writes(mode)) written[tensor] = 1;
      open.push_back(static_cast<std::uint32_t>(result.leases.size()));
      result.leases.push_back({tensor, mode, moment, moment + 1});
    } else if (!open.empty()) {
      const auto which = open.begin() + static_cast<std::ptrdiff_t>(random.below(open.size()));
      result.leases[*which].end = moment;
      open.erase(which);
    } else {
      continue;
    }
    now += static_cast<std::int64_t>(random.below(20));
    result.moment_ns.push_back(now);
  }
  result.duration_ns = now + static_cast<std::int64_t>(random.below(20));
  return result;
}

/// Whether a lease on a tensor is in force between a tick and the next.
inline bool is_leased(const step_trace& trace, std::size_t tensor, std::size_t tick) {
  return std::any_of(trace.leases.begin(), trace.leases.end(),
                     [&](const step_lease& l) { return l.tensor == tensor && l.begin <= tick && tick < l.end; });
}

/// The most bytes that are leased at once: with less there is no schedule.
inline std::int64_t most_leased_bytes(const step_trace& trace) {
  std::int64_t result = 0;
  for (std::size_t tick = 0; tick < trace.moment_ns.size(); ++tick) {
    std::int64_t sum = 0;
    for (std::size_t x = 0; x < trace.tensors.size(); ++x) {
      if (is_leased(trace, x, tick)) sum += static_cast<std::int64_t>(trace.tensors[x].size_bytes);
    }
    result = (std::max)(result, sum);
  }
  return result;
}

/// A size of the first tier, from the least that will do to all that there is: more often a small one.
inline std::int64_t some_capacity(random_source& random, const step_trace& trace) {
  std::int64_t total = 0;
  for (const step_tensor& t : trace.tensors) total += static_cast<std::int64_t>(t.size_bytes);
  const std::int64_t least = most_leased_bytes(trace);
  const auto spare = static_cast<std::uint64_t>(total - least);
  return least + static_cast<std::int64_t>(random.below((random.below(8) == 0 ? spare : spare / 2) + 1));
}

/// All schedules of a step of whole tensors in one tier above an endless one.
///
/// Needs   a tier that is large enough for what is leased at once; a few tensors
class every_schedule {
 public:
  every_schedule(const step_trace& trace, std::int64_t capacity) : trace_{&trace}, capacity_{capacity} {
    for (std::size_t x = 0; x < trace.tensors.size(); ++x) states_ *= 3;
  }

  /// The least mean per lap of a weighted sum of bytes up and bytes down.
  [[nodiscard]] double least(std::int64_t up_weight, std::int64_t down_weight) const {
    const std::size_t ticks = trace_->moment_ns.size();
    if (ticks == 0) return 0.0;
    const auto lap = [&](values from, std::size_t first) {
      for (std::size_t t = 1; t <= ticks; ++t)
        from = next(std::move(from), (first + t) % ticks, up_weight, down_weight);
      return from;
    };
    // A lap begins in the slot in which the fewest states are possible.
    std::size_t first = 0;
    std::size_t count = states_ + 1;
    values some(states_, 0);
    for (std::size_t t = 0; t < 2 * ticks; ++t) {
      some = next(std::move(some), t % ticks, up_weight, down_weight);
      const std::size_t here = possible(some);
      if (t < ticks || here >= count) continue;
      count = here;
      first = t % ticks;
    }
    std::vector<values> after{lap(values(states_, 0), first)};  // least costs of so many laps, by the state at the end
    for (std::int64_t& v : after[0]) v = v < none ? 0 : none;
    for (std::size_t k = 0; k < count; ++k) after.push_back(lap(after.back(), first));
    double result = std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < states_; ++s) {
      if (after[count][s] >= none) continue;
      double most = -std::numeric_limits<double>::infinity();
      for (std::size_t k = 0; k < count; ++k) {
        if (after[k][s] >= none) continue;
        most = (std::max)(most, static_cast<double>(after[count][s] - after[k][s]) / static_cast<double>(count - k));
      }
      result = (std::min)(result, most);
    }
    return result;
  }

 private:
  using values = std::vector<std::int64_t>;  // by state: a digit of base 3 for each tensor
  static constexpr std::int64_t none = (std::numeric_limits<std::int64_t>::max)() / 2;
  enum place : std::size_t { away, clean, dirty };

  static std::size_t possible(const values& of) {
    return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), [](std::int64_t v) { return v < none; }));
  }

  [[nodiscard]] std::int64_t size(std::size_t tensor) const {
    return static_cast<std::int64_t>(trace_->tensors[tensor].size_bytes);
  }

  // Of a tensor of the step: nothing reads what is there after a tick.
  [[nodiscard]] bool is_dead(std::size_t tensor, std::size_t tick) const {
    if (!trace_->tensors[tensor].born || is_leased(*trace_, tensor, tick)) return false;
    for (const step_lease& l : trace_->leases) {  // in order of begin
      if (l.tensor == tensor && l.begin > tick) return !reads(l.mode);
    }
    return true;
  }

  // What it costs that a tensor goes from one place to another at a tick; none where it cannot.
  [[nodiscard]] std::int64_t cost(std::size_t tensor, std::size_t tick, place from, place to, std::int64_t up,
                                  std::int64_t down) const {
    for (const step_lease& l : trace_->leases) {
      if (l.tensor != tensor || !writes(l.mode) || tick < l.begin || tick >= l.end) continue;
      if (to != dirty) return none;
      if (tick == l.begin) return from == away && reads(l.mode) ? up : 0;
      return from == dirty ? 0 : none;
    }
    if (to == away && is_leased(*trace_, tensor, tick)) return none;
    if (from == away) {
      if (to == away) return 0;
      return to == clean && !is_dead(tensor, tick) ? up : none;
    }
    if (from == clean) return to == dirty ? none : 0;
    return to == dirty || (to == away && is_dead(tensor, tick)) ? 0 : down;
  }

  // The costs after a tick from those before it.
  [[nodiscard]] values next(values now, std::size_t tick, std::int64_t up_weight, std::int64_t down_weight) const {
    std::size_t place_value = 1;
    for (std::size_t x = 0; x < trace_->tensors.size(); ++x, place_value *= 3) {
      std::int64_t costs[3][3];
      for (std::size_t from = 0; from < 3; ++from) {
        for (std::size_t to = 0; to < 3; ++to) {
          costs[from][to] = cost(x, tick, static_cast<place>(from), static_cast<place>(to), up_weight * size(x),
                                 down_weight * size(x));
        }
      }
      for (std::size_t s = 0; s < states_; ++s) {
        if (s / place_value % 3 != 0) continue;
        const std::int64_t before[3] = {now[s], now[s + place_value], now[s + 2 * place_value]};
        for (std::size_t to = 0; to < 3; ++to) {
          std::int64_t least = none;
          for (std::size_t from = 0; from < 3; ++from) {
            if (before[from] < none && costs[from][to] < none)
              least = (std::min)(least, before[from] + costs[from][to]);
          }
          now[s + to * place_value] = least;
        }
      }
    }
    for (std::size_t s = 0; s < states_; ++s) {
      std::int64_t held = 0;
      for (std::size_t x = 0, rest = s; x < trace_->tensors.size(); ++x, rest /= 3) held += rest % 3 == 0 ? 0 : size(x);
      if (held > capacity_) now[s] = none;
    }
    return now;
  }

  const step_trace* trace_;
  std::int64_t capacity_;
  std::size_t states_ = 1;
};

/// Calls judge(plan) for every plan of one tier that fits: each set of kept intervals, each tick at which what is not
/// kept may start to come back.
template <class Judge>
class every_plan {
 public:
  every_plan(const step_trace& trace, const detail::tier_uses& in, std::int64_t capacity, Judge judge)
      : trace_{&trace}, in_{&in}, judge_{judge}, room_(trace.moment_ns.size(), capacity) {
    for (std::size_t tick = 0; tick < room_.size(); ++tick) {
      for (std::size_t x = 0; x < trace.tensors.size(); ++x) {
        if (is_leased(trace, x, tick)) room_[tick] -= static_cast<std::int64_t>(trace.tensors[x].size_bytes);
      }
    }
    plan_.kept.assign(in.idle.size(), 0);
  }

  void visit(std::uint32_t interval = 0) {
    if (interval == in_->idle.size()) {
      detail::tier_plan sorted = plan_;
      std::stable_sort(sorted.fetches.begin(), sorted.fetches.end(),
                       [](const detail::planned_fetch& a, const detail::planned_fetch& b) { return a.due < b.due; });
      judge_(sorted);
      return;
    }
    const detail::idle_interval& idle = in_->idle[interval];
    const auto size = static_cast<std::int64_t>(trace_->tensors[idle.tensor].size_bytes);
    const std::size_t ticks = room_.size();
    if (!idle.fetched) visit(interval + 1);
    // From the last tick back as long as there is room: a fetch that starts there, or the whole interval.
    std::size_t taken = idle.end;
    const bool wraps = idle.end <= idle.begin;
    bool fits = true;
    while (fits) {
      if (idle.fetched) {
        const bool before = wraps && taken >= idle.begin;
        plan_.fetches.push_back({interval, static_cast<std::uint32_t>(taken), idle.end, before ? 1U : 0U});
        visit(interval + 1);
        plan_.fetches.pop_back();
      }
      if (taken == idle.begin) break;
      const std::size_t slot = (taken + ticks - 1) % ticks;
      fits = room_[slot] >= size;
      if (fits) {
        room_[slot] -= size;
        taken = slot;
      }
    }
    if (fits) {
      plan_.kept[interval] = 1;
      visit(interval + 1);
      plan_.kept[interval] = 0;
    }
    for (; taken != idle.end; taken = (taken + 1) % ticks) room_[taken] += size;
  }

 private:
  const step_trace* trace_;
  const detail::tier_uses* in_;
  Judge judge_;
  std::vector<std::int64_t> room_;  // by tick
  detail::tier_plan plan_;
};

}  // namespace vtier::test
