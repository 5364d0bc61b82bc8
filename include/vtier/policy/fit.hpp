// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a step can run at all within its budgets, and what is short by how much: known before the first byte moves.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier {

/// What a step needs, and what there is.
///
/// Units   bytes; 0 short: it fits
struct step_fit {
  std::size_t leased_peak_bytes = 0;   // the most that is under lease at once, in the first tier
  std::size_t leased_peak_moment = 0;  // when
  std::size_t tensor_peak_bytes = 0;   // the most that exists at once, in all tiers
  std::size_t first_short_bytes = 0;   // what the first tier lacks for the leases
  std::size_t total_short_bytes = 0;   // what all tiers together lack for the tensors
  std::string text;                    // the same in words, and what to do

  /// Whether the step can run.
  [[nodiscard]] bool fits() const noexcept { return first_short_bytes == 0 && total_short_bytes == 0; }
};

/// Compares what a step needs with the budgets of tiers, fastest first.
///
/// Needs   a trace without fault. Bytes are counted as they are: places in a tier are rounded up to its granule, and
///         tensors of many sizes need some room to change places
/// Errors  usage_error that says what is wrong with the trace, or that there are no tiers
/// Threads any
/// Cost    O(leases)
[[nodiscard]] inline step_fit fit_of(const step_trace& trace, const std::vector<std::size_t>& budget_bytes) {
  if (const auto why = trace.fault(); !why.empty()) throw usage_error(why);
  if (budget_bytes.empty()) throw usage_error("a step needs at least one tier to fit in");
  const detail::tier_uses in = detail::uses_of(trace);
  const std::size_t moments = in.tick_count();
  std::vector<std::int64_t> leased(moments + 1, 0);  // what changes at each moment
  std::vector<std::int64_t> alive(moments + 1, 0);
  detail::for_each_hold(trace.tensors.size(), in, [&](const detail::tier_use& u, std::uint32_t from) {
    const auto size = static_cast<std::int64_t>(trace.tensors[u.tensor].size_bytes);
    leased[from] += size;
    leased[u.end] -= size;
  });
  std::vector<std::uint32_t> first(trace.tensors.size(), detail::no_use);
  std::vector<std::uint32_t> last(trace.tensors.size(), 0);
  for (const step_lease& l : trace.leases) {
    if (first[l.tensor] == detail::no_use) first[l.tensor] = l.begin;
    last[l.tensor] = (std::max)(last[l.tensor], l.end);
  }
  std::int64_t staying = 0;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const auto size = static_cast<std::int64_t>(trace.tensors[t].size_bytes);
    if (!trace.tensors[t].born) {
      staying += size;
    } else if (first[t] != detail::no_use) {
      alive[first[t]] += size;
      alive[last[t]] -= size;
    }
  }
  step_fit result;
  std::int64_t leased_now = 0;
  std::int64_t alive_now = staying;
  std::int64_t alive_peak = staying;
  for (std::size_t m = 0; m < moments; ++m) {
    leased_now += leased[m];
    alive_now += alive[m];
    alive_peak = (std::max)(alive_peak, alive_now);
    if (leased_now > static_cast<std::int64_t>(result.leased_peak_bytes)) {
      result.leased_peak_bytes = static_cast<std::size_t>(leased_now);
      result.leased_peak_moment = m;
    }
  }
  result.tensor_peak_bytes = static_cast<std::size_t>(alive_peak);
  std::size_t total = 0;
  for (const std::size_t b : budget_bytes) {
    total = checked_add(total, b).value_or((std::numeric_limits<std::size_t>::max)());
  }
  if (result.leased_peak_bytes > budget_bytes.front()) {
    result.first_short_bytes = result.leased_peak_bytes - budget_bytes.front();
    result.text = "the step leases " + format_bytes(result.leased_peak_bytes) + " at once, " +
                  format_bytes(result.first_short_bytes) + " more than the first tier's " +
                  format_bytes(budget_bytes.front()) +
                  ": end leases sooner, use a smaller batch, split large tensors, or raise that budget";
  }
  if (result.tensor_peak_bytes > total) {
    result.total_short_bytes = result.tensor_peak_bytes - total;
    result.text += (result.text.empty() ? "" : "; ") + std::string{"its tensors are "} +
                   format_bytes(result.tensor_peak_bytes) + ", " + format_bytes(result.total_short_bytes) +
                   " more than all tiers hold: raise a budget or add a tier";
  }
  if (result.fits()) {
    result.text = "the step fits: it leases at most " + format_bytes(result.leased_peak_bytes) + " of " +
                  format_bytes(budget_bytes.front()) + " at once, and its tensors are " +
                  format_bytes(result.tensor_peak_bytes) + " of " + format_bytes(total);
  }
  return result;
}

}  // namespace vtier
