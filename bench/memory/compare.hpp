// SPDX-License-Identifier: Apache-2.0
#pragma once

// All allocators under one workload, in turns: the same calls, each run in a process of its own.

#include <unistd.h>

#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "memory/allocator_table.hpp"
#include "memory/candidates.hpp"
#include "memory/measure.hpp"
#include "memory/workloads.hpp"
#include "support/child_process.hpp"
#include "support/spread.hpp"

namespace vtier::bench {

/// Limits of one run on this machine: two minutes, and a third of its memory.
[[nodiscard]] inline child_limits limits_here() {
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  return {.seconds = 120.0, .resident_bytes = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 3};
}

/// How a comparison goes.
struct comparison_options {
  std::size_t run_count = 7;
  run_lengths lengths;
  child_limits limits;
};

/// Measures a workload with all allocators and adds the rows.
///
/// Gives   first each allocator's checked run, then `run_count` rounds of timed ones, each round beginning with another
///         allocator; who could not be measured is among the skipped, who did wrong among the failures
/// Needs   one thread in this process
inline void compare_allocators(allocator_table& to, const workload& w, const std::vector<candidate>& all,
                               const comparison_options& options) {
  struct measured {
    const candidate* who = nullptr;
    checked_result checked;
    std::vector<double> ns, ratios, touches;
    std::size_t pair_count = 0;
    bool out = false;
  };
  std::vector<measured> field;
  // Runs something of one allocator; false where it was not to be had.
  const auto attempt = [&](const candidate& c, auto&& run) {
    try {
      run();
      return true;
    } catch (const skipped& reason) {
      to.skipped.push_back({c.name, w.name, w.live_count, w.threads.size(), reason.what()});
    } catch (const std::exception& problem) {
      to.failures.push_back(c.name + " under " + w.name + ": " + problem.what());
    }
    return false;
  };
  for (const candidate& c : all) {
    if (w.threads.size() > 1 && !c.shared) continue;
    measured m;
    m.who = &c;
    if (attempt(c, [&] { m.checked = in_child(options.limits, [&] { return c.check(w, options.lengths); }); })) {
      field.push_back(std::move(m));
    }
  }
  for (std::size_t run = 0; run < options.run_count; ++run) {
    std::optional<double> reference;
    std::map<measured*, double> now;
    for (std::size_t turn = 0; turn < field.size(); ++turn) {
      measured& m = field[(run + turn) % field.size()];
      if (m.out) continue;
      m.out = !attempt(*m.who, [&] {
        const auto got = in_child(options.limits, [&] { return m.who->time(w, options.lengths); });
        m.ns.push_back(got.ns_per_pair);
        m.pair_count += got.pair_count;
        if (got.touch_ns >= 0.0) m.touches.push_back(got.touch_ns);
        now[&m] = got.ns_per_pair;
        if (m.who->name == reference_name) reference = got.ns_per_pair;
      });
    }
    if (!reference) continue;
    for (auto& [m, ns] : now) m->ratios.push_back(ns / *reference);
  }
  for (const measured& m : field) {
    if (m.out) continue;
    allocator_row row{m.who->name,  w.name,       w.live_count, w.threads.size(), w.mean_bytes, spread_of(m.ns),
                      std::nullopt, std::nullopt, std::nullopt, m.ns.size(),      m.pair_count};
    if (m.ratios.size() == m.ns.size()) row.over_vtier = spread_of(m.ratios);
    if (m.checked.taken_bytes > 0) {
      row.reserved_over_live = static_cast<double>(m.checked.taken_bytes) / static_cast<double>(w.peak_live_bytes);
    }
    if (!m.touches.empty()) row.touch_ns = spread_of(m.touches).median;
    to.rows.push_back(std::move(row));
  }
}

}  // namespace vtier::bench
