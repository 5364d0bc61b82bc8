// SPDX-License-Identifier: Apache-2.0
// What an allocation and a free cost, and how much memory lies idle between blocks: the library's pool beside other
// allocators, on the sizes and orders of training.
//
//   memory [--runs 7] [--seconds 0.3] [--only TEXT] [--allocator TEXT] [--most-live 1000000] [--json FILE] [--svg FILE]
//          [--smoke]
//
// ns per pair   What one thread spends on one allocation and one free, calls and order made beforehand, no block
//               touched. Each run is a process of its own, filled and warmed up before the clock runs; allocators take
//               turns, and the median over the runs is given with its spread. "x vtier" is the median of the ratios
//               within a round.
// taken/live    Bytes that the allocator held from below when most bytes of the timed part lived, to those bytes. Below
//               the pool and caching_rules are addresses, counted as they are committed; below std::pmr's pools is
//               malloc, counted likewise; the others tell it themselves, or the kernel does (memory/peers.hpp says by
//               which call): address space that they could use at once, without what they have handed back.
// touch ns      The first write to a page of 4 KiB, in up to 16 fresh blocks and 64 MiB: what the system charges for
//               memory that is used, beside the pair and never within it. The pool and caching_rules hand out
//               addresses of memory that is not theirs to touch: no number.
//
// tensor_random: sizes from 4 KiB to 64 MiB, their logarithm uniform, freed in random order, a constant number alive;
// tensor_lifo: bursts, the last one freed first; _1MiB: sizes up to 1 MiB. The other workloads are steps of models
// (support/model_steps.hpp); "vtier pack (offline)" places such a step as a whole, its ns are those of the packing by
// block and its memory is that of one step. caching_rules stands for PyTorch's rules, not for its speed. A library that
// is not here, or an allocator that has no memory or time for a workload, is skipped, and the table says why.
// --only and --allocator take those whose name contains the text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory/allocator_table.hpp"
#include "memory/bar_picture.hpp"
#include "memory/candidates.hpp"
#include "memory/compare.hpp"
#include "memory/offline_packing.hpp"
#include "memory/workloads.hpp"
#include "support/arguments.hpp"
#include "support/json.hpp"
#include "support/model_steps.hpp"

namespace {

using namespace vtier::bench;

const std::string usage =
    "memory [--runs 7] [--seconds 0.3] [--only TEXT] [--allocator TEXT] [--most-live 1000000] [--json FILE] "
    "[--svg FILE] [--smoke]";

constexpr std::uint64_t seed = 20;

struct settings {
  comparison_options comparison;
  std::string only;
  std::string allocator;
  std::size_t most_live = 1'000'000;
  std::size_t pairs = 100'000;
  bool smoke = false;
  std::string json_path;
  std::string svg_path;
};

settings read_arguments(int argc, char** argv) {
  arguments given{argc, argv};
  settings chosen;
  chosen.smoke = given.flag("--smoke");
  if (chosen.smoke) {
    chosen.comparison.run_count = 2;
    chosen.most_live = 200;
    chosen.pairs = 1000;
  }
  chosen.comparison.run_count = given.count("--runs", chosen.comparison.run_count);
  chosen.comparison.lengths.timed_seconds = given.seconds("--seconds", chosen.smoke ? 0.005 : 0.3);
  chosen.comparison.lengths.checked_seconds = chosen.smoke ? 1.0 : 60.0;
  chosen.comparison.limits = limits_here();
  chosen.only = given.text("--only", "");
  chosen.allocator = given.text("--allocator", "");
  chosen.most_live = given.count("--most-live", chosen.most_live);
  chosen.json_path = given.text("--json", "");
  chosen.svg_path = given.text("--svg", "");
  given.finish(usage);
  return chosen;
}

/// A workload that is made when its turn comes.
struct planned {
  std::string name;
  std::size_t run_count;
  std::function<workload()> make;
  std::optional<model_shape> model{};  // where it is a step of one
};

std::vector<model_shape> models(bool smoke) {
  auto all = public_models();
  if (!smoke) return all;
  for (auto& m : all) m.layers = 2;
  return all;
}

std::vector<planned> plan(const settings& s) {
  constexpr std::size_t kib = 1024;
  const size_range wide{4 * kib, 64 * kib * kib};
  const size_range narrow{4 * kib, kib * kib};
  const std::size_t runs = s.comparison.run_count;
  std::vector<planned> all;
  std::vector<std::size_t> live_counts{(std::min)(s.most_live, std::size_t{1000})};
  if (s.most_live > 1000) live_counts.push_back(s.most_live);
  for (const auto& [suffix, sizes] : {std::pair{std::string{}, wide}, std::pair{std::string{"_1MiB"}, narrow}}) {
    for (const std::size_t live : live_counts) {
      const std::string name = "tensor_random" + suffix;
      const std::size_t pairs = (std::max)(s.pairs, live);
      // The fill of very many blocks takes most of a run; three of those tell enough.
      all.push_back({name, live > 100'000 ? (std::min)(runs, std::size_t{3}) : runs, [=, sizes = sizes] {
                       return random_order(name, sizes, live, (std::max)(live, pairs / 5), pairs, seed);
                     }});
    }
    const std::string name = "tensor_lifo" + suffix;
    all.push_back({name, runs, [=, sizes = sizes, pairs = s.pairs] {
                     return last_in_first_out(name, sizes, live_counts.front(), pairs, seed);
                   }});
  }
  for (const auto& [suffix, sizes] : {std::pair{std::string{}, wide}, std::pair{std::string{"_1MiB"}, narrow}}) {
    const std::string name = "tensor_random" + suffix;
    all.push_back({name, runs, [=, sizes = sizes, pairs = s.pairs] {
                     return random_order(name, sizes, live_counts.front(), pairs / 5, pairs, seed, 2);
                   }});
  }
  for (const auto& shape : models(s.smoke)) {
    all.push_back({shape.name, runs, [shape] { return recorded(shape.name, record_step(shape, seed)); }, shape});
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  make_room_for_thread_locals(argv);
  const settings s = read_arguments(argc, argv);
  std::vector<candidate> allocators = all_candidates();
  std::erase_if(allocators, [&](const candidate& c) { return c.name.find(s.allocator) == std::string::npos; });
  std::cout << "memory: " << s.comparison.run_count << " runs in turns, each in a process of its own\n";
  allocator_table table;
  table_printer printer{table};
  for (const auto& p : plan(s)) {
    if (p.name.find(s.only) == std::string::npos) continue;
    comparison_options options = s.comparison;
    options.run_count = p.run_count;
    compare_allocators(table, p.make(), allocators, options);
    if (p.model && packing_name.find(s.allocator) != std::string::npos) {
      pack_model(table, *p.model, options.run_count, seed);
    }
    printer.print();
  }

  auto json = table.json();
  json.add("seed", static_cast<std::size_t>(seed)).add("seconds", s.comparison.lengths.timed_seconds);
  write_file(s.json_path, json.text());
  std::vector<allocator_row> drawn = table.rows;
  std::erase_if(drawn, [](const allocator_row& r) { return r.allocator == packing_name; });
  write_file(s.svg_path, draw_bars("Allocators on the sizes and orders of training", drawn));
  if (table.rows.empty()) throw std::invalid_argument("no workload or no allocator has such a name");
  return table.failures.empty() ? 0 : 1;
} catch (const std::exception& problem) {
  std::cerr << "memory: " << problem.what() << '\n';
  return 1;
}
