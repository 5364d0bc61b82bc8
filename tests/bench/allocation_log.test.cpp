// SPDX-License-Identifier: Apache-2.0
#include "support/allocation_log.hpp"

#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <vtier/core/error.hpp>

#include "support/catch.hpp"
#include "support/memory_trace.hpp"
#include "support/model_steps.hpp"

namespace {

using vtier::bench::log_trace;
using vtier::bench::memory_event;
using vtier::bench::read_allocation_log;

log_trace read(const std::string& text) {
  std::istringstream from{text};
  return read_allocation_log(from);
}

using step = std::tuple<bool, std::size_t, std::size_t>;  // allocates, id, size

std::vector<step> steps(const log_trace& log) {
  std::vector<step> result;
  for (const auto& e : log.trace.events) {
    result.emplace_back(e.what == memory_event::kind::allocate, e.id, e.size_bytes);
  }
  return result;
}

const std::string header = "Thread,Time,Action,Pointer,Size,Stream\n";

}  // namespace

TEST_CASE("a log is read as a trace that ends with nothing alive", "[bench][allocation_log]") {
  const log_trace log = read(header +
                             "7,10:00:00.000001,allocate,0x200,1000,0x0\n"
                             "8,10:00:00.000002,allocate,0x600,24,0x1\r\n"
                             "7,10:00:00.000003,allocate failure,(nil),99999,0x0\n"
                             "7,10:00:00.000004,free,0x200,1000,0x0\n"
                             "\n"
                             "7,10:00:00.000005,allocate,0x200,50,0x0\n"
                             "7,10:00:00.000006,free,0x900,8,0x0\n"
                             "7,10:00:00.000007,allocate,(nil),0,0x0\n"
                             "7,10:00:00.000008,free,(nil),0,0x0\n");
  CHECK(steps(log) ==
        std::vector<step>{
            {true, 0, 1000}, {true, 1, 24}, {false, 0, 1000}, {true, 2, 50}, {false, 1, 24}, {false, 2, 50}});
  CHECK(log.trace.block_count == 3);
  CHECK(log.trace.step_begin == 0);
  CHECK(log.thread_count == 2);
  CHECK(log.failure_count == 1);
  CHECK(log.unknown_free_count == 1);
  CHECK(log.unfreed_count == 2);
}

TEST_CASE("an address that is allocated twice was freed unseen", "[bench][allocation_log]") {
  const log_trace log = read(header +
                             "1,00:00:00.000000,allocate,0x10,5,0x0\n1,00:00:00.000000,allocate,0x10,6,0x0\n"
                             "1,00:00:00.000000,free,0x10,6,0x0\n");
  CHECK(steps(log) == std::vector<step>{{true, 0, 5}, {false, 0, 5}, {true, 1, 6}, {false, 1, 6}});
}

TEST_CASE("a line that is none is refused by its number", "[bench][allocation_log]") {
  const std::string time = "1,00:00:00.000000,";
  for (const char* rest : {"allocate,0x10,5", "allocate,0x10,5,0x0,0", "allocate,0x1g,5,0x0", "allocate,0x10,,0x0",
                           "allocate,0x10,-5,0x0", "resize,0x10,5,0x0"}) {
    const std::string line = time + rest;
    INFO(line);
    try {
      read(header + line + "\n");
      FAIL("it was taken");
    } catch (const vtier::usage_error& refused) {
      CHECK(std::string{refused.what()}.find("line 2") != std::string::npos);
    }
  }
  CHECK_THROWS_AS(read(header + time + "allocate,0x10,70368744177665,0x0\n"), std::runtime_error);
}

TEST_CASE("a step that is written as a log is the same step when read", "[bench][allocation_log]") {
  auto shape = vtier::bench::public_models().front();
  shape.layers = 1;
  const auto trace = vtier::bench::record_step(shape);
  std::stringstream text;
  vtier::bench::write_allocation_log(text, trace);
  const log_trace log = read_allocation_log(text);
  REQUIRE(log.trace.events.size() == trace.events.size() + trace.step_begin);
  bool same = true;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const auto& a = trace.events[i];
    const auto& b = log.trace.events[i];
    same = same && a.what == b.what && a.id == b.id && a.size_bytes == b.size_bytes;
  }
  CHECK(same);
  CHECK(log.unfreed_count == trace.step_begin);
}
