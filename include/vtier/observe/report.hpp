// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy has counted, in words: tables of tiers, roles and links, hits, waiting times by cause, how far
// recorded steps are from the least they could take, remarks and errors. What is wrong with it stands in health.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/observe/detail/lines.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/statistics.hpp>

namespace vtier {

/// The statistics of a hierarchy at one moment, or between two (counted_since), printable.
///
/// Threads as any value
class report : public statistics {
 public:
  explicit report(statistics counted) : statistics{std::move(counted)} {}

  /// The share of leases that found their bytes in place, 0 to 1; 1 where there was none.
  [[nodiscard]] double hit_share() const noexcept {
    return lease_count == 0 ? 1.0 : static_cast<double>(hit_count) / static_cast<double>(lease_count);
  }

  /// Everything in words, for people; lines of at most 120 columns, each of which ends with a newline.
  [[nodiscard]] std::string text() const {
    std::string to;
    say_tiers(to);
    say_links(to);
    say_schedules(to);
    detail::append_lines(to, "tensors: " + std::to_string(tensor_count) + " of " + format_bytes(tensor_bytes) +
                                 " (at most " + format_bytes(tensor_peak_bytes) + ")");
    detail::append_lines(
        to, "leases: " + std::to_string(lease_count) + ", in place " + detail::percent(hit_share()) +
                ", of these by prefetch " + std::to_string(prefetch_hit_count) + "; prefetches dropped " +
                std::to_string(prefetch_dropped_count) +
                (prefetch_unused_bytes > 0 ? ", unused " + format_bytes(prefetch_unused_bytes) : std::string{}) +
                "; evictions without a copy " + std::to_string(clean_drop_count) +
                (evicted_ahead_bytes > 0 ? ", ahead of need " + format_bytes(evicted_ahead_bytes) : std::string{}));
    say_waiting(to);
    say_leased(to);
    for (const auto& note : notes) detail::append_lines(to, "note: " + note);
    for (const auto& error : errors) detail::append_lines(to, "error: " + error);
    return to;
  }

  /// Prints text(). A template, so that whoever never prints need not include <ostream>.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& to, const report& r) {
    const std::string text = r.text();
    return to.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
  }

 private:
  using rows = std::vector<std::vector<std::string>>;

  void say_tiers(std::string& to) const {
    rows table{{"tier", "budget", "peak", "used", "staging"}};
    for (const role what : all_roles) table.front().emplace_back(name(what));
    for (const auto& t : tiers) {
      table.push_back({detail::short_name(t.name), format_bytes(t.budget_bytes), format_bytes(t.peak_bytes),
                       format_bytes(t.used_bytes), format_bytes(t.staging_bytes)});
      for (const std::size_t bytes : t.role_bytes) table.back().push_back(format_bytes(bytes));
    }
    detail::append_table(to, table);
    for (const auto& t : tiers) {
      if (t.reserved_bytes == 0) continue;
      detail::append_lines(to, "reserved in " + detail::short_name(t.name) + ": " + format_bytes(t.reserved_bytes));
    }
    if (staging_bytes > 0) detail::append_lines(to, "staging outside any tier: " + format_bytes(staging_bytes));
  }

  void say_links(std::string& to) const {
    rows table{{"link", "moved", "transfers", "a step", "came back", "busy", "GB/s", "limit"}};
    rows by_role{{"moved"}};
    for (const role what : all_roles) by_role.front().emplace_back(name(what));
    const std::string unknown = "-";
    bool roles_known = false;
    for (const auto& l : links) {
      const std::string link = detail::short_name(l.name);
      const auto moved = static_cast<double>(l.moved_bytes);
      table.push_back({link, format_bytes(l.moved_bytes), std::to_string(l.transfer_count),
                       step_count > 0 ? format_bytes(l.moved_bytes / step_count) : unknown,
                       format_bytes(l.swapped_bytes), l.busy_ns > 0 ? detail::milliseconds(l.busy_ns) : unknown,
                       l.busy_ns > 0 ? detail::gigabytes_per_second(moved / static_cast<double>(l.busy_ns)) : unknown,
                       l.limit_bytes_per_ns > 0.0 ? detail::gigabytes_per_second(l.limit_bytes_per_ns) : unknown});
      by_role.push_back({link});
      for (const std::size_t bytes : l.role_moved_bytes) {
        by_role.back().push_back(format_bytes(bytes));
        roles_known = roles_known || bytes > 0;
      }
    }
    detail::append_table(to, table);
    if (roles_known) detail::append_table(to, by_role);
  }

  void say_schedules(std::string& to) const {
    rows table{{"step", "times", "otherwise", "last", "compute", "plan", "bound", "last/bound"}};
    const auto time = [](std::int64_t ns) { return ns > 0 ? detail::milliseconds(ns) : std::string{"-"}; };
    for (const auto& s : schedules) {
      const bool known = s.bound_ns > 0 && s.last_step_ns > 0;
      table.push_back(
          {detail::short_name(s.name), std::to_string(s.step_count), std::to_string(s.deviation_count),
           time(s.last_step_ns), time(s.compute_ns), s.planned ? time(s.planned_ns) : "none", time(s.bound_ns),
           known ? detail::one_decimal(static_cast<double>(s.last_step_ns) / static_cast<double>(s.bound_ns)) : "-"});
    }
    detail::append_table(to, table);
  }

  void say_waiting(std::string& to) const {
    const auto part = [](const char* cause, std::int64_t ns) {
      return ns > 0 ? std::string{cause} + detail::milliseconds(ns) : std::string{};
    };
    std::string line = "host blocked: " + detail::milliseconds(blocked_ns) + " (for bytes from files " +
                       detail::milliseconds(blocked_fetch_ns) + ", for room " + detail::milliseconds(blocked_room_ns) +
                       part(", for reservations ", blocked_reserve_ns) + part(", in flushes ", blocked_flush_ns) +
                       part(", for kernels and copies ", blocked_events_ns) + ")";
    if (step_count > 0 && step_ns > 0) {
      line += ", " + detail::percent(static_cast<double>(blocked_ns) / static_cast<double>(step_ns)) + " of " +
              std::to_string(step_count) + " steps of " +
              detail::milliseconds(step_ns / static_cast<std::int64_t>(step_count));
    }
    detail::append_lines(to, line);
  }

  void say_leased(std::string& to) const {
    constexpr std::size_t shown_max = 8;
    for (std::size_t i = 0; i < leased.size() && i < shown_max; ++i) {
      const auto& l = leased[i];
      detail::append_lines(to, "leased: tensor #" + std::to_string(l.tensor) + ", " + std::string{name(l.what)} +
                                   " of " + format_bytes(l.size_bytes) +
                                   (l.tier.empty() ? std::string{} : " in " + detail::short_name(l.tier)) + ", for " +
                                   detail::milliseconds(l.age_ns));
    }
    if (leased.size() > shown_max) {
      detail::append_lines(to, "leased: and " + std::to_string(leased.size() - shown_max) + " more");
    }
  }
};

}  // namespace vtier
