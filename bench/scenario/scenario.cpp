// SPDX-License-Identifier: Apache-2.0
// How close steps of training come to their lower bound, by policy: traces of published models, played by the library
// on a simulated machine.
//
//   scenario [--all] [--only TEXT] [--policy TEXT] [--state 64MiB] [--steps 2] [--json FILE] [--svg FILE] [--smoke]
//
// Nothing is measured on this machine: a world in virtual time has a device, its two links and, where a scenario says
// so, drives, at the speeds of the machine that is imitated; the hierarchy that moves the bytes is the real one, and so
// are the bytes, which are looked at in every lease. All sizes and rates are divided so that the state takes no more
// than --state here, which leaves times as they are (scenario/scenarios.hpp).
//
// time    time of a step over its lower bound, in the mean of the last --steps steps; never below 1
// bytes   what crossed all links, over the least that must (policy/lower_bound.hpp); "up" and "down" by boundary
//         between tiers
// peak    the most bytes in the first tier over its budget
//
// lru             the library without a plan: least recently used, fetched on demand. The host runs ahead of the
//                 device, so demand comes early
// fifo            first in, first out, likewise
// look_ahead      fetches a window of leases ahead, lets go after a use what is not used again soon; the best of some
//                 windows and distances
// static_split    keeps a fixed part of the tensors in the first tier, the others stream through the rest; the best of
//                 some sizes of the rest
// schedule_aware  the library with a plan made from the recorded step
//
// --only and --policy take those whose name contains the text.

#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/core/clock.hpp>

#include "scenario/dot_picture.hpp"
#include "scenario/policies.hpp"
#include "scenario/scenario_table.hpp"
#include "scenario/scenarios.hpp"
#include "support/arguments.hpp"
#include "support/json.hpp"

namespace {

using namespace vtier::bench;

const std::string usage =
    "scenario [--all] [--only TEXT] [--policy TEXT] [--state 64MiB] [--steps 2] [--json FILE] [--svg FILE] [--smoke]";

struct settings {
  bool smoke = false;
  bool all = false;
  std::string only;
  std::string policy;
  std::size_t state_bytes_max = 0;
  play_lengths lengths;
  std::string json_path;
  std::string svg_path;
};

settings read_arguments(int argc, char** argv) {
  arguments given{argc, argv};
  settings chosen;
  chosen.smoke = given.flag("--smoke");
  chosen.all = given.flag("--all");
  chosen.only = given.text("--only", "");
  chosen.policy = given.text("--policy", "");
  chosen.state_bytes_max = given.bytes("--state", std::size_t{chosen.smoke ? 4U : 64U} << 20U);
  chosen.lengths.measured = given.count("--steps", chosen.smoke ? 1 : 2);
  chosen.json_path = given.text("--json", "");
  chosen.svg_path = given.text("--svg", "");
  given.finish(usage);
  return chosen;
}

void compare(scenario_table& table, const scenario& s, const settings& chosen) {
  const scaled_step what = scale_step(s, chosen.state_bytes_max);
  const std::size_t needed = what.leased_bytes + 4 * what.piece_bytes;
  if (needed > what.limits.budget_bytes[0]) {
    table.skipped.push_back(s.name() + ": the leases of a moment need " + vtier::format_bytes(what.leased_bytes) +
                            " of a budget of " + vtier::format_bytes(what.limits.budget_bytes[0]) + ", both divided");
    return;
  }
  table.facts.push_back(facts_of(s.name(), what));
  const vtier::steady_clock clock;
  for (const named_policy& p : all_policies()) {
    if (p.name.find(chosen.policy) == std::string::npos) continue;
    const auto began = clock.now_ns();
    try {
      table.rows.push_back(row_of(s.name(), what, p.play(what, chosen.lengths)));
    } catch (const std::exception& problem) {
      throw std::runtime_error(s.name() + ", " + p.name + ": " + problem.what());
    }
    std::cerr << s.name() << ", " << p.name << ": " << fixed(static_cast<double>(clock.now_ns() - began) * 1e-9, 1)
              << " s of this machine\n";
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const settings chosen = read_arguments(argc, argv);
  scenario_table table;
  scenario_printer printer{table};
  for (const scenario& s : chosen.smoke ? smoke_scenarios() : all_scenarios(chosen.all)) {
    if (s.name().find(chosen.only) == std::string::npos) continue;
    compare(table, s, chosen);
    printer.print();
  }
  auto json = table.json();
  json.add("steps", chosen.lengths.measured).add("state_bytes_max", chosen.state_bytes_max);
  write_file(chosen.json_path, json.text());
  write_file(chosen.svg_path, draw_dots("Policies on training steps that do not fit the device", table.rows));
  if (table.rows.empty()) throw std::invalid_argument("no scenario or no policy has such a name");
  return 0;
} catch (const std::exception& problem) {
  std::cerr << "scenario: " << problem.what() << '\n';
  return 1;
}
