// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two ways of moving the same bytes, side by side: the limit and the library in turns, round by round.
//
// Google Benchmark names, filters and runs the comparisons (one iteration is one round, its time the library's); the
// ratio within each round, which it has no notion of, is taken here and printed by a reporter of its kind.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <vtier/core/clock.hpp>

#include "support/json.hpp"
#include "support/spread.hpp"

namespace vtier::bench {

/// One comparison, or one time where there is no limit to compare with.
///
/// Units   GB/s are 1e9 bytes in a second
struct row {
  std::string what;
  double limit_gbps = 0.0;
  double vtier_gbps = 0.0;
  spread share;  // the library's rate as a part of the limit's
  std::size_t rounds = 0;
};
struct time_row {
  std::string what;
  spread ns;
  std::size_t rounds = 0;
};

/// What one side does. Only `timed` is on the clock.
struct side {
  std::function<void()> before = [] {};
  std::function<void()> timed;
  std::function<void()> after = [] {};  // looks whether it happened; throws where not
};

/// The rows so far.
///
/// Threads the one that runs the benchmarks
class results {
 public:
  /// Compares in all the rounds that `state` has; both sides run once beforehand.
  ///
  /// Gives   a row; which side goes first changes from round to round
  void compare(benchmark::State& state, const std::string& what, std::size_t size_bytes, const side& limit,
               const side& ours) {
    std::vector<double> limit_gbps;
    std::vector<double> vtier_gbps;
    std::vector<double> shares;
    run(limit);
    run(ours);
    bool limit_first = true;
    for (auto _ : state) {
      double limit_ns = limit_first ? run(limit) : 0.0;
      const double ours_ns = run(ours);
      if (!limit_first) limit_ns = run(limit);
      limit_first = !limit_first;
      const double bytes = static_cast<double>(size_bytes);
      limit_gbps.push_back(bytes / limit_ns);
      vtier_gbps.push_back(bytes / ours_ns);
      shares.push_back(limit_ns / ours_ns);
      state.SetIterationTime(ours_ns * 1e-9);
    }
    row made{what, spread_of(limit_gbps).median, spread_of(vtier_gbps).median, spread_of(shares), shares.size()};
    state.counters["limit_gbps"] = made.limit_gbps;
    state.counters["vtier_gbps"] = made.vtier_gbps;
    state.counters["share"] = made.share.median;
    rows.push_back(std::move(made));
  }

  /// Times something that happens `count` times in each round; one round more runs beforehand.
  void time(benchmark::State& state, const std::string& what, std::size_t count, const side& ours) {
    std::vector<double> each_ns;
    run(ours);
    for (auto _ : state) {
      const double took_ns = run(ours);
      each_ns.push_back(took_ns / static_cast<double>(count));
      state.SetIterationTime(took_ns * 1e-9);
    }
    time_row made{what, spread_of(each_ns), each_ns.size()};
    state.counters["ns"] = made.ns.median;
    times.push_back(std::move(made));
  }

  /// Registers a benchmark that runs once, with as many iterations as there are to be rounds. An exception in it is
  /// printed and kept in `failures`.
  void add(const std::string& name, std::size_t rounds, std::function<void(benchmark::State&)> run) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [this, name, run = std::move(run)](benchmark::State& state) {
                                   try {
                                     run(state);
                                   } catch (const std::exception& problem) {
                                     failures.push_back(name + ": " + problem.what());
                                     state.SkipWithError(problem.what());
                                   }
                                 })
        ->Iterations(static_cast<benchmark::IterationCount>(rounds))
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }

  [[nodiscard]] json_object json() const {
    std::vector<std::string> all;
    for (const auto& r : rows) {
      all.push_back(json_object{}
                        .add("what", r.what)
                        .add("limit_gbps", r.limit_gbps)
                        .add("vtier_gbps", r.vtier_gbps)
                        .add("share", r.share.median)
                        .add("share_low", r.share.low)
                        .add("share_high", r.share.high)
                        .add("rounds", r.rounds)
                        .text());
    }
    json_object result;
    result.add_value("rows", json_list(all));
    all.clear();
    for (const auto& t : times) {
      all.push_back(json_object{}
                        .add("what", t.what)
                        .add("ns", t.ns.median)
                        .add("ns_low", t.ns.low)
                        .add("ns_high", t.ns.high)
                        .add("rounds", t.rounds)
                        .text());
    }
    return result.add_value("times", json_list(all));
  }

  std::vector<row> rows;
  std::vector<time_row> times;
  std::vector<std::string> failures;

 private:
  // Units   ns
  static double run(const side& one) {
    const steady_clock clock;
    one.before();
    const std::int64_t began = clock.now_ns();
    one.timed();
    const std::int64_t took = clock.now_ns() - began;
    one.after();
    return static_cast<double>(took > 0 ? took : 1);
  }
};

/// Prints each row as soon as it is there.
class table_reporter : public benchmark::BenchmarkReporter {
 public:
  explicit table_reporter(const results& from) : from_{&from} {}

  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>&) override {
    for (; rows_ < from_->rows.size(); ++rows_) {
      if (rows_ == 0) line("", "limit GB/s", "vtier GB/s", "share", "");
      const row& r = from_->rows[rows_];
      line(r.what, fixed(r.limit_gbps, 2), fixed(r.vtier_gbps, 2), fixed(r.share.median, 2),
           range(r.share, 2, r.rounds));
    }
    for (; times_ < from_->times.size(); ++times_) {
      if (times_ == 0) line("", "", "vtier ns", "", "");
      const time_row& t = from_->times[times_];
      line(t.what, "", fixed(t.ns.median, 0), "", range(t.ns, 0, t.rounds));
    }
    for (; failures_ < from_->failures.size(); ++failures_) {
      std::cout << "failed: " << from_->failures[failures_] << '\n';
    }
    std::cout.flush();
  }

 private:
  static std::string range(const spread& s, int decimals, std::size_t rounds) {
    return "  " + fixed(s.low, decimals) + " to " + fixed(s.high, decimals) + " in " + std::to_string(rounds) +
           " rounds";
  }

  static void line(const std::string& what, const std::string& limit, const std::string& ours, const std::string& share,
                   const std::string& rest) {
    std::cout << std::left << std::setw(44) << what << std::right << std::setw(12) << limit << std::setw(12) << ours
              << std::setw(8) << share << rest << '\n';
  }

  const results* from_;
  std::size_t rows_ = 0;
  std::size_t times_ = 0;
  std::size_t failures_ = 0;
};

}  // namespace vtier::bench
