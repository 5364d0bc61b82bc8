// SPDX-License-Identifier: Apache-2.0
// Replays an allocation log against the library's pool and other allocators: what `memory` measures, on the sizes and
// the order of a program of yours.
//
//   replay --log FILE [--runs 7] [--seconds 0.3] [--allocator TEXT] [--json FILE] [--svg FILE] [--smoke]
//   replay --model NAME --write-log FILE
//
// The log has the six columns of RMM's logging adaptor, Thread,Time,Action,Pointer,Size,Stream. It is replayed by one
// thread, in the order of its lines, as fast as it goes: once to warm up, then again and again; what it leaves alive is
// freed between. The numbers mean what bench/memory/memory.cpp says. The second form writes the step of a model from
// support/model_steps.hpp as a log, to try with.

#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory/allocator_table.hpp"
#include "memory/bar_picture.hpp"
#include "memory/candidates.hpp"
#include "memory/compare.hpp"
#include "memory/workloads.hpp"
#include "support/allocation_log.hpp"
#include "support/arguments.hpp"
#include "support/json.hpp"
#include "support/model_steps.hpp"

namespace {

using namespace vtier::bench;

const std::string usage =
    "replay --log FILE [--runs 7] [--seconds 0.3] [--allocator TEXT] [--json FILE] [--svg FILE] [--smoke], or replay "
    "--model NAME --write-log FILE";

void write_model(const std::string& name, const std::string& path) {
  std::string known;
  for (const auto& shape : public_models()) {
    known += " " + shape.name;
    if (shape.name != name) continue;
    std::ofstream to{path};
    write_allocation_log(to, record_step(shape));
    to.close();
    if (!to) throw std::runtime_error("cannot write " + path);
    return;
  }
  throw std::invalid_argument("--model needs one of" + known + ", got " + name);
}

// The small log of a smoke run.
log_trace small_log() {
  model_shape shape = public_models().front();
  shape.layers = 1;
  std::stringstream text;
  write_allocation_log(text, record_step(shape));
  return read_allocation_log(text);
}

log_trace read_log(const std::string& path) {
  std::ifstream from{path};
  if (!from) throw std::runtime_error("cannot read " + path);
  return read_allocation_log(from);
}

}  // namespace

int main(int argc, char** argv) try {
  make_room_for_thread_locals(argv);
  arguments given{argc, argv};
  const bool smoke = given.flag("--smoke");
  const std::string log_path = given.text("--log", "");
  const std::string model = given.text("--model", "");
  const std::string write_path = given.text("--write-log", "");
  comparison_options options;
  options.run_count = given.count("--runs", smoke ? 2 : 7);
  options.lengths.timed_seconds = given.seconds("--seconds", smoke ? 0.005 : 0.3);
  options.lengths.checked_seconds = smoke ? 1.0 : 20.0;
  options.limits = limits_here();
  const std::string allocator = given.text("--allocator", "");
  const std::string json_path = given.text("--json", "");
  const std::string svg_path = given.text("--svg", "");
  given.finish(usage);
  if (!write_path.empty()) {
    write_model(model, write_path);
    return 0;
  }
  if (log_path.empty() && !smoke) throw std::invalid_argument("no log; usage: " + usage);

  const log_trace log = log_path.empty() ? small_log() : read_log(log_path);
  if (log.trace.events.empty()) throw std::invalid_argument("the log allocates nothing");
  const std::string name = log_path.empty() ? "a small log" : std::filesystem::path{log_path}.filename().string();
  std::cout << "replay: " << name << ", " << log.trace.block_count << " allocations by " << log.thread_count
            << " threads, replayed by one; left out: " << log.failure_count << " failures, " << log.unknown_free_count
            << " frees of unknown blocks; " << log.unfreed_count << " blocks that it leaves are freed at its end\n";
  std::vector<candidate> allocators = all_candidates();
  std::erase_if(allocators, [&](const candidate& c) { return c.name.find(allocator) == std::string::npos; });
  allocator_table table;
  compare_allocators(table, recorded(name, log.trace), allocators, options);
  table_printer{table}.print();
  auto json = table.json();
  json.add("log", name).add("seconds", options.lengths.timed_seconds);
  write_file(json_path, json.text());
  write_file(svg_path, draw_bars("Allocators on " + name, table.rows));
  if (table.rows.empty()) throw std::invalid_argument("no allocator has such a name");
  return table.failures.empty() ? 0 : 1;
} catch (const std::exception& problem) {
  std::cerr << "replay: " << problem.what() << '\n';
  return 1;
}
