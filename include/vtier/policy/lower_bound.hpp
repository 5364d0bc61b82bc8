// SPDX-License-Identifier: Apache-2.0
#pragma once

// What no schedule can beat: the least time and the least traffic of a step that is repeated for ever.
//
// Bytes. Between two uses a tier keeps a share y of a tensor, 0 to 1. If the next use reads, s (1 - y) bytes come up
// again. At no moment may what is leased and what is kept exceed the tier. Whole tensors are points of that program, so
// its least is a bound; with one cost per byte it is solved exactly by letting go of what is needed last
// (detail/fractional_cache.hpp). Down: what a use wrote goes down once unless some share stays until the next use that
// writes it: a schedule must not lose bytes, and whether they are read again is not known until they are overwritten.
// That interval has the leases in between in it, in which the tensor counts only with the share that is
// kept: the program is wider than the truth, and the bound stays one.
// Both. Room that saves bytes up is not there to save bytes down: detail/joint_bound.hpp bounds the sum of the two. In
// a ns at most rates.up + rates.down bytes cross, or as many as a shared bus lets through.
// Windows. Take any part of the step. What it reads and the tier cannot have held at its beginning must come up inside:
// it lasts (distinct bytes read - capacity) / rate at least, and likewise down and both, and as long as it computes.
// Parts that do not overlap add up; the best division is found by dynamic programming over a bounded number of cuts.
// Several tiers. The same for each boundary, with the tiers above it taken as one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/policy/detail/fractional_cache.hpp>
#include <vtier/policy/detail/joint_bound.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier {

/// The least that must cross a boundary in a step.
///
/// Units   bytes; ns
struct link_bound {
  double up_bytes = 0.0;
  double down_bytes = 0.0;
  double both_bytes = 0.0;  // of the two together, not less than their sum
  double ns = 0.0;          // for these bytes, and for the best division into windows
};

/// What no schedule of a step can beat.
///
/// Units   ns
struct step_bound {
  double compute_ns = 0.0;
  std::vector<link_bound> links;  // as step_limits has them

  /// The least time of a step.
  [[nodiscard]] double ns() const noexcept {
    double result = compute_ns;
    for (const link_bound& l : links) result = (std::max)(result, l.ns);
    return result;
  }
};

namespace detail {

/// What is leased at each tick, each tensor once, of the uses that `counts` names.
template <class Counts>
[[nodiscard]] std::vector<std::int64_t> leased_bytes(const std::vector<step_tensor>& tensors, const tier_uses& in,
                                                     Counts&& counts) {
  std::vector<std::int64_t> result(in.tick_count() + 1, 0);  // what changes at each tick, then the sums of it
  for_each_hold(tensors.size(), in, [&](const tier_use& u, std::uint32_t from) {
    if (!counts(u)) return;
    const auto size = static_cast<std::int64_t>(tensors[u.tensor].size_bytes);
    result[from] += size;
    result[u.end] -= size;
  });
  std::partial_sum(result.begin(), result.end(), result.begin());
  result.pop_back();
  return result;
}

/// The least bytes up: intervals that lead to a read.
[[nodiscard]] inline double least_up_bytes(const std::vector<step_tensor>& tensors, const tier_uses& in,
                                           std::int64_t capacity) {
  std::vector<kept_interval> kept;
  for (const idle_interval& i : in.idle) {
    if (i.fetched) kept.push_back({i.begin, i.end, static_cast<std::int64_t>(tensors[i.tensor].size_bytes)});
  }
  return least_missed_bytes(kept, leased_bytes(tensors, in, [](const tier_use&) { return true; }), capacity);
}

/// The least bytes down: intervals from a use that writes to the next.
[[nodiscard]] inline double least_down_bytes(const std::vector<step_tensor>& tensors, const tier_uses& in,
                                             std::int64_t capacity) {
  struct last {
    std::uint32_t write = no_use;
    std::uint32_t first_write = no_use;
    std::uint32_t read_begin = no_use;  // the last read after `write`
  };
  std::vector<last> seen(tensors.size());
  std::vector<kept_interval> kept;
  const auto add = [&](std::uint32_t tensor, std::uint32_t begin, std::uint32_t end) {
    kept.push_back({begin, end, static_cast<std::int64_t>(tensors[tensor].size_bytes)});
  };
  const auto end_of_born = [&](std::uint32_t tensor) {
    const last& l = seen[tensor];
    if (l.write != no_use && l.read_begin != no_use && l.read_begin > in.uses[l.write].end) {
      add(tensor, in.uses[l.write].end, l.read_begin);
    }
  };
  for (std::uint32_t i = 0; i < in.uses.size(); ++i) {
    const tier_use& u = in.uses[i];
    last& l = seen[u.tensor];
    if (u.writes) {
      if (tensors[u.tensor].born && !u.reads) {
        end_of_born(u.tensor);
      } else if (l.write != no_use) {
        add(u.tensor, in.uses[l.write].end, u.begin);
      }
      l.write = i;
      if (l.first_write == no_use) l.first_write = i;
      l.read_begin = no_use;
    } else {
      l.read_begin = u.begin;
    }
  }
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    if (seen[t].write == no_use) continue;
    if (tensors[t].born) {
      end_of_born(t);
    } else {
      add(t, in.uses[seen[t].write].end, in.uses[seen[t].first_write].begin);
    }
  }
  // What is leased counts where no interval stands for it: uses that write, and tensors that no use writes.
  const auto counts = [&](const tier_use& u) { return u.writes || seen[u.tensor].write == no_use; };
  return least_missed_bytes(kept, leased_bytes(tensors, in, counts), capacity);
}

/// The least time of a step by its best division into windows.
///
/// Cost    O(cuts (uses + cuts)), cuts at most 256
[[nodiscard]] inline double least_window_ns(const std::vector<step_tensor>& tensors, const tier_uses& in,
                                            std::int64_t capacity, const link_rates& rates) {
  constexpr std::size_t cuts_max = 256;
  const std::size_t ticks = in.tick_count();
  if (ticks == 0) return static_cast<double>(in.duration_ns);
  std::vector<std::size_t> cuts;  // ticks; a window is [cuts[i], cuts[j])
  const std::size_t parts = (std::min)(ticks, cuts_max);
  for (std::size_t i = 0; i <= parts; ++i) cuts.push_back(ticks * i / parts);
  const auto ns_at = [&](std::size_t tick) {
    return tick == 0 ? 0.0 : static_cast<double>(tick == ticks ? in.duration_ns : in.tick_ns[tick]);
  };
  std::vector<std::size_t> first_use(parts + 1, in.uses.size());  // the first that begins at the cut or later
  for (std::size_t c = 0, u = 0; c <= parts; ++c) {
    while (u < in.uses.size() && in.uses[u].begin < cuts[c]) ++u;
    first_use[c] = u;
  }
  std::vector<double> best(parts + 1, 0.0);
  std::vector<std::uint32_t> read_in(tensors.size(), no_use);
  std::vector<std::uint32_t> written_in(tensors.size(), no_use);
  for (std::size_t i = 0; i < parts; ++i) {
    const auto mark = static_cast<std::uint32_t>(i);
    double read_bytes = 0.0;
    double dirty_bytes = 0.0;
    for (std::size_t j = i + 1; j <= parts; ++j) {
      for (std::size_t u = first_use[j - 1]; u < first_use[j]; ++u) {
        const tier_use& use = in.uses[u];
        const auto size = static_cast<double>(tensors[use.tensor].size_bytes);
        if (read_in[use.tensor] != mark && written_in[use.tensor] != mark && use.reads) {
          read_bytes += size;
        }
        read_in[use.tensor] = mark;
        if (use.writes && written_in[use.tensor] != mark) {
          written_in[use.tensor] = mark;
          if (!tensors[use.tensor].born) dirty_bytes += size;
        }
      }
      const double up_bytes = (std::max)(0.0, read_bytes - static_cast<double>(capacity));
      const double down_bytes = (std::max)(0.0, dirty_bytes - static_cast<double>(capacity));
      const double window_ns = (std::max)({ns_at(cuts[j]) - ns_at(cuts[i]), up_bytes / rates.up,
                                           down_bytes / rates.down, (up_bytes + down_bytes) / rates.both});
      best[j] = (std::max)(best[j], best[i] + window_ns);
    }
  }
  return best[parts];
}

}  // namespace detail

/// Computes what no schedule of a step can beat.
///
/// Needs   a trace and limits without fault
/// Gives   a bound for one step of many, each beginning as the one before it ended; zero bytes for what fits
/// Errors  usage_error that says what is wrong with the trace or the limits
/// Threads any
/// Cost    O(laps x leases log leases), a few laps as a rule; about 256 x leases for the windows
/// Source  Belady 1966 on fractions; Hoffman and Kruskal on consecutive ones
[[nodiscard]] inline step_bound lower_bound(const step_trace& trace, const step_limits& limits) {
  if (const auto why = trace.fault(); !why.empty()) throw usage_error(why);
  if (const auto why = limits.fault(); !why.empty()) throw usage_error(why);
  const detail::tier_uses in = detail::uses_of(trace);
  step_bound result;
  result.compute_ns = static_cast<double>(trace.duration_ns);
  std::size_t capacity = 0;
  for (std::size_t i = 0; i < limits.links.size(); ++i) {
    capacity = checked_add(capacity, limits.budget_bytes[i]).value_or(~std::size_t{0} / 4);
    const auto bytes = static_cast<std::int64_t>((std::min)(capacity, ~std::size_t{0} / 4));
    const link_rates& rates = limits.links[i];
    link_bound l;
    l.up_bytes = detail::least_up_bytes(trace.tensors, in, bytes);
    l.down_bytes = detail::least_down_bytes(trace.tensors, in, bytes);
    l.both_bytes = (std::max)(l.up_bytes + l.down_bytes, detail::joint_bound{trace.tensors, in, bytes}.least(1.0, 1.0));
    l.ns = (std::max)({l.up_bytes / rates.up, l.down_bytes / rates.down,
                       l.both_bytes / (std::min)(rates.both, rates.up + rates.down),
                       detail::least_window_ns(trace.tensors, in, bytes, rates)});
    result.links.push_back(l);
  }
  return result;
}

}  // namespace vtier
