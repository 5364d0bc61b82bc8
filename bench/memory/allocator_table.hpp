// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a comparison of allocators found: rows, as a table to read and as JSON.

#include <cstddef>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>

#include "support/json.hpp"
#include "support/spread.hpp"

namespace vtier::bench {

/// One allocator under one workload.
///
/// Units   ns_per_pair: ns that a thread spends on one allocation and one free, blocks untouched; reserved_over_live:
///         bytes taken from below to bytes alive, when most live; touch_ns: ns for the first write to a page of 4 KiB
struct allocator_row {
  std::string allocator;
  std::string workload;
  std::size_t live_count = 0;
  std::size_t thread_count = 1;
  double mean_bytes = 0.0;
  spread ns_per_pair;
  std::optional<spread> over_vtier;  // times the library's, within a round; empty where there is no such row
  std::optional<double> reserved_over_live;
  std::optional<double> touch_ns;
  std::size_t run_count = 0;
  std::size_t pair_count = 0;  // in all runs
};

/// An allocator that could not be measured under a workload.
struct skipped_row {
  std::string allocator;
  std::string workload;
  std::size_t live_count = 0;
  std::size_t thread_count = 1;
  std::string reason;
};

/// The rows so far; those of one workload follow each other.
struct allocator_table {
  std::vector<allocator_row> rows;
  std::vector<skipped_row> skipped;
  std::vector<std::string> failures;

  [[nodiscard]] json_object json() const {
    const auto number = [](const std::optional<double>& value) {
      std::ostringstream text;
      text << std::setprecision(9);
      if (value) text << *value;
      return value ? text.str() : std::string{"null"};
    };
    std::vector<std::string> all;
    for (const auto& r : rows) {
      json_object o;
      o.add("allocator", r.allocator)
          .add("workload", r.workload)
          .add("live", r.live_count)
          .add("threads", r.thread_count)
          .add("mean_bytes", r.mean_bytes)
          .add("ns_per_pair", r.ns_per_pair.median)
          .add("ns_low", r.ns_per_pair.low)
          .add("ns_high", r.ns_per_pair.high)
          .add_value("over_vtier", number(r.over_vtier ? std::optional{r.over_vtier->median} : std::nullopt))
          .add_value("over_vtier_low", number(r.over_vtier ? std::optional{r.over_vtier->low} : std::nullopt))
          .add_value("over_vtier_high", number(r.over_vtier ? std::optional{r.over_vtier->high} : std::nullopt))
          .add_value("reserved_over_live", number(r.reserved_over_live))
          .add_value("touch_ns", number(r.touch_ns))
          .add("runs", r.run_count)
          .add("pairs", r.pair_count);
      all.push_back(o.text());
    }
    json_object result;
    result.add_value("rows", json_list(all));
    all.clear();
    for (const auto& s : skipped) {
      json_object o;
      o.add("allocator", s.allocator)
          .add("workload", s.workload)
          .add("live", s.live_count)
          .add("threads", s.thread_count)
          .add("reason", s.reason);
      all.push_back(o.text());
    }
    return result.add_value("skipped", json_list(all));
  }
};

/// What a workload is called for people.
[[nodiscard]] inline std::string title_of(const allocator_row& r) {
  const std::string digits = std::to_string(r.live_count);
  std::string result = r.workload + ", ";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  result += " live";
  if (r.thread_count > 1) result += ", " + std::to_string(r.thread_count) + " threads";
  return result;
}

/// Whether two rows belong to one workload.
[[nodiscard]] inline bool same_workload(const allocator_row& a, const allocator_row& b) {
  return a.workload == b.workload && a.live_count == b.live_count && a.thread_count == b.thread_count;
}

/// Prints a table as it grows.
class table_printer {
 public:
  explicit table_printer(const allocator_table& from) : from_{&from} {}

  /// Prints what is new.
  void print() {
    for (; rows_ < from_->rows.size(); ++rows_) {
      const allocator_row& r = from_->rows[rows_];
      if (rows_ == 0 || !same_workload(from_->rows[rows_ - 1], r)) {
        std::cout << '\n'
                  << title_of(r) << ", mean size " << format_bytes(static_cast<std::size_t>(r.mean_bytes)) << '\n';
        line("", "ns per pair", "low to high", "x vtier", "taken/live", "touch ns");
      }
      line(r.allocator, fixed(r.ns_per_pair.median, 1),
           fixed(r.ns_per_pair.low, 1) + " to " + fixed(r.ns_per_pair.high, 1),
           r.over_vtier ? fixed(r.over_vtier->median, 2) : "-",
           r.reserved_over_live ? fixed(*r.reserved_over_live, 3) : "-", r.touch_ns ? fixed(*r.touch_ns, 0) : "-");
    }
    for (; skipped_ < from_->skipped.size(); ++skipped_) {
      const skipped_row& s = from_->skipped[skipped_];
      std::cout << "  " << std::left << std::setw(26) << s.allocator << "skipped under " << s.workload << ", "
                << s.live_count << " live: " << s.reason << '\n';
    }
    for (; failures_ < from_->failures.size(); ++failures_)
      std::cout << "failed: " << from_->failures[failures_] << '\n';
    std::cout.flush();
  }

 private:
  static void line(const std::string& allocator, const std::string& ns, const std::string& range,
                   const std::string& ratio, const std::string& taken, const std::string& touch) {
    std::cout << "  " << std::left << std::setw(26) << allocator << std::right << std::setw(12) << ns << std::setw(24)
              << range << std::setw(10) << ratio << std::setw(12) << taken << std::setw(10) << touch << '\n';
  }

  const allocator_table* from_;
  std::size_t rows_ = 0;
  std::size_t skipped_ = 0;
  std::size_t failures_ = 0;
};

}  // namespace vtier::bench
