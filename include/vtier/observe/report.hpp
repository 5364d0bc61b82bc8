// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy has counted, in words: tables of tiers, roles and links, hits, waiting times, remarks and errors.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
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

  /// Everything in words, for people; ends with a newline.
  [[nodiscard]] std::string text() const {
    std::size_t width = 8;
    for (const auto& t : tiers) width = (std::max)(width, short_name(t.name).size());
    for (const auto& l : links) width = (std::max)(width, short_name(l.name).size());

    std::string to;
    std::vector<std::string> head{"tier", "budget", "peak", "used", "staging"};
    for (const role what : all_roles) head.emplace_back(name(what));
    row(to, head, width);
    for (const auto& t : tiers) {
      std::vector<std::string> cells{short_name(t.name), format_bytes(t.budget_bytes), format_bytes(t.peak_bytes),
                                     format_bytes(t.used_bytes), format_bytes(t.staging_bytes)};
      for (const std::size_t bytes : t.role_bytes) cells.push_back(format_bytes(bytes));
      row(to, cells, width);
    }
    for (const auto& t : tiers) {
      if (t.reserved_bytes == 0) continue;
      to += "  reserved in " + short_name(t.name) + ": " + format_bytes(t.reserved_bytes) + '\n';
    }
    if (staging_bytes > 0) to += "  staging outside any tier: " + format_bytes(staging_bytes) + '\n';
    if (!links.empty()) {
      row(to, {"link", "moved", "transfers"}, width);
      for (const auto& l : links)
        row(to, {short_name(l.name), format_bytes(l.moved_bytes), std::to_string(l.transfer_count)}, width);
    }
    to += "  tensors: " + std::to_string(tensor_count) + " of " + format_bytes(tensor_bytes) + " (at most " +
          format_bytes(tensor_peak_bytes) + ")\n";
    to += "  leases: " + std::to_string(lease_count) + ", in place " + one_decimal(hit_share() * 100.0) +
          " %, of these by prefetch " + std::to_string(prefetch_hit_count) + "; prefetches dropped " +
          std::to_string(prefetch_dropped_count) + "; evictions without a copy " + std::to_string(clean_drop_count) +
          (evicted_ahead_bytes > 0 ? ", ahead of need " + format_bytes(evicted_ahead_bytes) : std::string{}) + '\n';
    to += "  host blocked: " + milliseconds(blocked_ns) + " (for bytes from files " + milliseconds(blocked_fetch_ns) +
          ", for room " + milliseconds(blocked_room_ns) +
          (blocked_reserve_ns > 0 ? ", for reservations " + milliseconds(blocked_reserve_ns) : std::string{}) + ")";
    if (step_count > 0 && step_ns > 0) {
      to += ", " + one_decimal(static_cast<double>(blocked_ns) / static_cast<double>(step_ns) * 100.0) + " % of " +
            std::to_string(step_count) + " steps of " + milliseconds(step_ns / static_cast<std::int64_t>(step_count));
    }
    to += '\n';
    constexpr std::size_t leased_shown_max = 8;
    for (std::size_t i = 0; i < leased.size() && i < leased_shown_max; ++i) {
      const auto& l = leased[i];
      to += "  leased: tensor #" + std::to_string(l.tensor) + ", " + std::string{name(l.what)} + " of " +
            format_bytes(l.size_bytes) + (l.tier.empty() ? std::string{} : " in " + short_name(l.tier)) + ", for " +
            milliseconds(l.age_ns) + '\n';
    }
    if (leased.size() > leased_shown_max) {
      to += "  leased: and " + std::to_string(leased.size() - leased_shown_max) + " more\n";
    }
    for (const auto& note : notes) to += "  note: " + note + '\n';
    for (const auto& error : errors) to += "  error: " + error + '\n';
    return to;
  }

  /// Prints text(). A template, so that whoever never prints need not include <ostream>.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& to, const report& r) {
    const std::string text = r.text();
    return to.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
  }

 private:
  static std::string one_decimal(double value) {
    const auto tenths = static_cast<std::int64_t>(value * 10.0 + 0.5);
    return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10);
  }

  // A name as a table can hold it.
  static std::string short_name(const std::string& given) {
    constexpr std::size_t bytes_max = 60;
    if (given.size() <= bytes_max) return one_line(given);
    std::size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(given[end]) & 0xC0U) == 0x80U) --end;  // no half of a character
    return one_line(given.substr(0, end)) + "...";
  }

  static std::string milliseconds(std::int64_t ns) { return one_decimal(static_cast<double>(ns) / 1e6) + " ms"; }

  static void row(std::string& to, const std::vector<std::string>& cells, std::size_t first_width) {
    constexpr std::size_t other_width = 12;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t width = i == 0 ? first_width : other_width;
      const std::string space(width > cells[i].size() ? width - cells[i].size() : 0, ' ');
      to += "  " + (i == 0 ? cells[i] + space : space + cells[i]);
    }
    to += '\n';
  }
};

}  // namespace vtier
