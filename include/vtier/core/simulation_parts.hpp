// SPDX-License-Identifier: Apache-2.0
#pragma once

// The words of a simulated machine: what can fail, marks, work and lanes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/happens_before.hpp>

namespace vtier::sim {

/// What can be made to fail, each occasion counted by itself.
enum class fault : std::uint8_t {
  device_memory,
  host_memory,
  registration,
  stream,
  copy,
  launch,
  record,
  wait,
  query,
  file_open,
  reservation,
  file_read,
  file_write
};

/// How many kinds of faults there are.
inline constexpr std::size_t fault_count = 13;

/// The name of a kind of fault, as the enumerator is written.
[[nodiscard]] constexpr const char* name(fault what) noexcept {
  constexpr std::array<const char*, fault_count> names{
      "device_memory", "host_memory", "registration", "stream",      "copy",      "launch",    "record",
      "wait",          "query",       "file_open",    "reservation", "file_read", "file_write"};
  return names[static_cast<std::size_t>(what)];
}

/// Where a call was made.
struct call_site {
  const char* file = "";
  int line = 0;
};

/// How a world behaves.
struct world_options {
  std::uint64_t seed = 1;
  double disorder = 4.0;     // a duration is up to 2^disorder times longer or shorter than its link says; 0: as it says
  double fault_share = 0.0;  // of the occasions that can fail, those that do
  std::size_t operation_count_max = 200'000;  // more than this in one world: something goes round for ever
  bool logs = false;                          // whether events are written down
  std::size_t violation_count_max = 32;       // later ones are only counted
};

/// Something that passes once: a recorded event, the end of a request.
struct mark {
  bool passed = false;
  std::int64_t passed_ns = 0;             // when
  vector_clock known;                     // what is over once it has passed
  std::size_t owner = 0;                  // the device it belongs to, by number
  std::shared_ptr<std::int64_t> counter;  // of the marks that are alive

  mark() = default;
  explicit mark(std::shared_ptr<std::int64_t> alive) : counter{std::move(alive)} { ++*counter; }
  mark(const mark&) = delete;
  mark& operator=(const mark&) = delete;
  ~mark() {
    if (counter != nullptr) --*counter;
  }
};

/// A piece of work in a lane.
///
/// Units   ns
struct work {
  std::int64_t duration_ns = 0;
  std::size_t link = 0;         // work of one link takes turns; 0: none
  std::shared_ptr<mark> after;  // what must pass before it starts
  std::shared_ptr<mark> done;   // what passes when it has run
  std::function<void()> run;
  step_stamp stamp;
  vector_clock known;  // what is over when it runs
};

/// Work that runs in the order in which it was given.
struct lane {
  std::string name;
  actor who = 0;
  vector_clock known;  // what is over once all its work has run
  std::deque<work> queue;
  std::int64_t due_ns = -1;  // when the first has run; -1: it has not started
};

}  // namespace vtier::sim
