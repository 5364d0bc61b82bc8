// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy has counted, in words: tables of tiers, roles and links, hits, waiting times, remarks and errors.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/statistics.hpp>

namespace vtier {

/// The statistics of a hierarchy at one moment, printable.
///
/// Threads as any value
class report : public statistics {
 public:
  explicit report(statistics counted) : statistics{std::move(counted)} {}

  /// The share of leases that found their bytes in place, 0 to 1; 1 where there was none.
  [[nodiscard]] double hit_share() const noexcept {
    return lease_count == 0 ? 1.0 : static_cast<double>(hit_count) / static_cast<double>(lease_count);
  }

  /// Prints everything for people; ends with a newline.
  friend std::ostream& operator<<(std::ostream& to, const report& r) {
    std::ostringstream text;  // leaves the caller's formatting flags alone
    r.print(text);
    return to << text.str();
  }

 private:
  static std::string percent(double share) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << share * 100.0 << " %";
    return text.str();
  }

  static std::string milliseconds(std::int64_t ns) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << static_cast<double>(ns) / 1e6 << " ms";
    return text.str();
  }

  static void row(std::ostream& to, const std::vector<std::string>& cells, std::size_t first_width) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      to << "  ";
      if (i == 0) {
        to << std::left << std::setw(static_cast<int>(first_width)) << cells[i];
      } else {
        to << std::right << std::setw(12) << cells[i];
      }
    }
    to << '\n';
  }

  void print(std::ostream& to) const {
    std::size_t width = 8;
    for (const auto& t : tiers) width = (std::max)(width, t.name.size());
    for (const auto& l : links) width = (std::max)(width, l.name.size());

    std::vector<std::string> head{"tier", "budget", "peak", "used", "staging"};
    for (const role what : all_roles) head.emplace_back(name(what));
    row(to, head, width);
    for (const auto& t : tiers) {
      std::vector<std::string> cells{t.name, format_bytes(t.budget_bytes), format_bytes(t.peak_bytes),
                                     format_bytes(t.used_bytes), format_bytes(t.staging_bytes)};
      for (const std::size_t bytes : t.role_bytes) cells.push_back(format_bytes(bytes));
      row(to, cells, width);
    }
    if (staging_bytes > 0) to << "  staging outside any tier: " << format_bytes(staging_bytes) << '\n';
    if (!links.empty()) {
      row(to, {"link", "moved", "transfers"}, width);
      for (const auto& l : links) row(to, {l.name, format_bytes(l.moved_bytes), std::to_string(l.transfer_count)}, width);
    }
    to << "  tensors: " << tensor_count << " of " << format_bytes(tensor_bytes) << " (at most "
       << format_bytes(tensor_peak_bytes) << ")\n";
    to << "  leases: " << lease_count << ", in place " << percent(hit_share()) << ", of these by prefetch "
       << prefetch_hit_count << "; prefetches dropped " << prefetch_dropped_count << "; evictions without a copy "
       << clean_drop_count << '\n';
    to << "  host blocked: " << milliseconds(blocked_ns) << " (for bytes from files " << milliseconds(blocked_fetch_ns)
       << ", for room " << milliseconds(blocked_room_ns) << ")";
    if (step_count > 0 && step_ns > 0) {
      to << ", " << percent(static_cast<double>(blocked_ns) / static_cast<double>(step_ns)) << " of " << step_count
         << " steps of " << milliseconds(step_ns / static_cast<std::int64_t>(step_count));
    }
    to << '\n';
    for (const auto& note : notes) to << "  note: " << note << '\n';
    for (const auto& error : errors) to << "  error: " << error << '\n';
  }
};

}  // namespace vtier
