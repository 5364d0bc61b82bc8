// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is wrong with this machine or this run, in words: what was seen, which tensors it concerns, what to change.
//
// A pure function of what a hierarchy has counted. report.hpp prints the numbers; this holds them against limits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/observe/detail/examiner.hpp>
#include <vtier/observe/detail/lines.hpp>
#include <vtier/observe/finding.hpp>
#include <vtier/runtime/statistics.hpp>

namespace vtier {

/// What was found in the statistics of a hierarchy, printable.
///
/// Threads as any value
class health {
 public:
  /// Looks at everything that was counted, or at what was counted between two moments (counted_since).
  ///
  /// Cost    O(links x tiers + errors + notes)
  explicit health(const statistics& counted, const health_limits& limits = {})
      : findings_{detail::examiner{counted, limits}.findings()},
        step_count_{counted.step_count},
        step_ns_{counted.step_ns},
        blocked_ns_{counted.blocked_ns} {}

  /// What is wrong, the worst first.
  [[nodiscard]] const std::vector<finding>& findings() const noexcept { return findings_; }

  /// Whether nothing is worse than a remark.
  [[nodiscard]] bool healthy() const noexcept {
    return findings_.empty() || findings_.front().severity == severity::remark;
  }

  /// Whether something was found.
  [[nodiscard]] bool has(symptom what) const noexcept {
    return std::any_of(findings_.begin(), findings_.end(), [&](const finding& f) { return f.what == what; });
  }

  /// Everything in words, for people; lines of at most 120 columns, each of which ends with a newline. One line where
  /// nothing was found.
  [[nodiscard]] std::string text() const {
    std::string to;
    if (findings_.empty()) {
      std::string line = "healthy: nothing found";
      if (step_count_ > 0) {
        line += " in " + std::to_string(step_count_) + " steps, host blocked for " +
                detail::percent(detail::share_of(static_cast<double>(blocked_ns_), static_cast<double>(step_ns_))) +
                " of their time";
      }
      detail::append_lines(to, line);
    }
    for (const finding& f : findings_) {
      detail::append_lines(to, std::string{name(f.severity)} + ": " + std::string{name(f.what)} + ": " + f.text);
    }
    return to;
  }

  /// Prints text(). A template, so that whoever never prints need not include <ostream>.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& to, const health& h) {
    const std::string text = h.text();
    return to.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
  }

 private:
  std::vector<finding> findings_;
  std::uint64_t step_count_;
  std::int64_t step_ns_;
  std::int64_t blocked_ns_;
};

/// Says what is wrong, by everything that was counted.
///
/// Threads any
[[nodiscard]] inline health check(const statistics& counted, const health_limits& limits = {}) {
  return health{counted, limits};
}

/// Says what is wrong, by what was counted between two moments: without the first steps, which fill the tiers.
///
/// Threads any
[[nodiscard]] inline health check(const statistics& before, const statistics& now, const health_limits& limits = {}) {
  return health{counted_since(before, now), limits};
}

}  // namespace vtier
