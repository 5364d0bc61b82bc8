// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a comparison of policies found: rows of ratios to the lower bound, as a table to read and as JSON.

#include <cstddef>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "scenario/policies.hpp"
#include "scenario/scenarios.hpp"
#include "support/json.hpp"
#include "support/spread.hpp"

namespace vtier::bench {

/// One policy in one scenario.
///
/// Units   seconds; a ratio of 1 is the bound, or the budget
struct scenario_row {
  std::string scenario;
  std::string policy;
  std::string setting;
  double step_seconds = 0.0;
  double time_ratio = 0.0;
  double bytes_ratio = 0.0;         // of all links together
  std::vector<double> up_ratios;    // by boundary between tiers
  std::vector<double> down_ratios;  // likewise
  double peak_ratio = 0.0;
  double plan_seconds = 0.0;
};

/// A scenario with its bound.
///
/// Units   seconds; gigabytes of the machine that is imitated
struct scenario_facts {
  std::string scenario;
  std::size_t lease_count = 0;
  double divisor = 1.0;
  double state_gb = 0.0;
  double compute_seconds = 0.0;
  double bound_seconds = 0.0;
  std::vector<double> up_gb;
  std::vector<double> down_gb;
};

/// Puts a result beside its bound.
[[nodiscard]] inline scenario_row row_of(const std::string& name, const scaled_step& what, const step_result& r) {
  scenario_row row{name, r.policy, r.setting, r.step_ns * 1e-9, r.step_ns / what.bound.ns(),
                   0.0,  {},       {},        r.peak_share,     r.plan_seconds};
  const auto ratio = [](double bytes, double least) { return least > 0.0 ? bytes / least : (bytes > 0.0 ? 1e9 : 1.0); };
  double bytes = 0.0;
  double least = 0.0;
  for (std::size_t b = 0; b < what.bound.links.size(); ++b) {
    const link_bound& l = what.bound.links[b];
    row.up_ratios.push_back(ratio(r.up_bytes[b], l.up_bytes));
    row.down_ratios.push_back(ratio(r.down_bytes[b], l.down_bytes));
    bytes += r.up_bytes[b] + r.down_bytes[b];
    least += l.up_bytes + l.down_bytes;
  }
  row.bytes_ratio = ratio(bytes, least);
  return row;
}

/// What is to be said of a scenario itself.
[[nodiscard]] inline scenario_facts facts_of(const std::string& name, const scaled_step& what) {
  scenario_facts f{
      name, what.trace.leases.size(), what.divisor, 0.0, what.bound.compute_ns * 1e-9, what.bound.ns() * 1e-9, {}, {}};
  const auto gb = [&](double bytes) { return bytes * what.divisor * 1e-9; };
  f.state_gb = gb(static_cast<double>(what.state_bytes));
  for (const link_bound& l : what.bound.links) {
    f.up_gb.push_back(gb(l.up_bytes));
    f.down_gb.push_back(gb(l.down_bytes));
  }
  return f;
}

/// The rows so far; those of one scenario follow each other.
struct scenario_table {
  std::vector<scenario_facts> facts;
  std::vector<scenario_row> rows;
  std::vector<std::string> skipped;

  [[nodiscard]] json_object json() const {
    const auto numbers = [](const std::vector<double>& values) {
      std::vector<std::string> all;
      for (const double v : values) all.push_back(fixed(v, 4));
      return json_list(all);
    };
    std::vector<std::string> all;
    for (const scenario_facts& f : facts) {
      all.push_back(json_object{}
                        .add("scenario", f.scenario)
                        .add("leases", f.lease_count)
                        .add("divisor", f.divisor)
                        .add("state_gb", f.state_gb)
                        .add("compute_seconds", f.compute_seconds)
                        .add("bound_seconds", f.bound_seconds)
                        .add_value("up_gb", numbers(f.up_gb))
                        .add_value("down_gb", numbers(f.down_gb))
                        .text());
    }
    json_object result;
    result.add_value("scenarios", json_list(all));
    all.clear();
    for (const scenario_row& r : rows) {
      all.push_back(json_object{}
                        .add("scenario", r.scenario)
                        .add("policy", r.policy)
                        .add("setting", r.setting)
                        .add("step_seconds", r.step_seconds)
                        .add("time_ratio", r.time_ratio)
                        .add("bytes_ratio", r.bytes_ratio)
                        .add_value("up_ratios", numbers(r.up_ratios))
                        .add_value("down_ratios", numbers(r.down_ratios))
                        .add("peak_ratio", r.peak_ratio)
                        .add("plan_seconds", r.plan_seconds)
                        .text());
    }
    result.add_value("rows", json_list(all));
    all.clear();
    for (const std::string& s : skipped) all.push_back(json_text(s));
    return result.add_value("skipped", json_list(all));
  }
};

/// Prints a table as it grows.
class scenario_printer {
 public:
  explicit scenario_printer(const scenario_table& from) : from_{&from} {}

  /// Prints what is new.
  void print() {
    for (; skipped_ < from_->skipped.size(); ++skipped_) std::cout << "\nskipped: " << from_->skipped[skipped_] << '\n';
    for (; facts_ < from_->facts.size(); ++facts_) {
      const scenario_facts& f = from_->facts[facts_];
      std::cout << '\n'
                << f.scenario << ": state " << fixed(f.state_gb, 1) << " GB, computes " << fixed(f.compute_seconds, 3)
                << " s, bound " << fixed(f.bound_seconds, 3) << " s";
      for (std::size_t b = 0; b < f.up_gb.size(); ++b) {
        std::cout << (b == 0 ? "; " : "; below: ") << fixed(f.up_gb[b], 1) << " GB up, " << fixed(f.down_gb[b], 1)
                  << " GB down";
      }
      std::cout << '\n';
      line("", "step s", "time", "bytes", "up", "down", "peak", "plan s", "");
    }
    for (; rows_ < from_->rows.size(); ++rows_) {
      const scenario_row& r = from_->rows[rows_];
      line(r.policy, fixed(r.step_seconds, 3), fixed(r.time_ratio, 3), fixed(r.bytes_ratio, 3), list(r.up_ratios),
           list(r.down_ratios), fixed(r.peak_ratio, 3), r.plan_seconds > 0.0 ? fixed(r.plan_seconds, 3) : "-",
           r.setting);
    }
    std::cout.flush();
  }

 private:
  static std::string list(const std::vector<double>& values) {
    std::string text;
    for (const double v : values) text += (text.empty() ? "" : " ") + (v < 1e9 ? fixed(v, 2) : std::string{"-"});
    return text;
  }
  static void line(const std::string& policy, const std::string& seconds, const std::string& time,
                   const std::string& bytes, const std::string& up, const std::string& down, const std::string& peak,
                   const std::string& plan, const std::string& setting) {
    std::cout << "  " << std::left << std::setw(16) << policy << std::right << std::setw(10) << seconds << std::setw(8)
              << time << std::setw(8) << bytes << std::setw(12) << up << std::setw(12) << down << std::setw(8) << peak
              << std::setw(8) << plan << (setting.empty() ? "" : "   ") << setting << '\n';
  }

  const scenario_table* from_;
  std::size_t facts_ = 0;
  std::size_t rows_ = 0;
  std::size_t skipped_ = 0;
};

}  // namespace vtier::bench
