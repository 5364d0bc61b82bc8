// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/happens_before.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.hpp"

#include <vtier/core/random_source.hpp>

using vtier::random_source;
using vtier::sim::access_history;
using vtier::sim::access_kind;
using vtier::sim::actor;
using vtier::sim::step_stamp;
using vtier::sim::vector_clock;

TEST_CASE("a clock counts each actor by itself and learns by joining", "[core]") {
  vector_clock a;
  vector_clock b;
  CHECK(a.of(7) == 0);
  CHECK(a.advance(0) == 1);
  CHECK(a.advance(0) == 2);
  CHECK(b.advance(3) == 1);
  b.join(a);
  CHECK(b.of(0) == 2);
  CHECK(b.of(3) == 1);
  CHECK(a.of(3) == 0);  // joining goes one way
  a.join(b);
  CHECK(a.of(3) == 1);
}

namespace {

// A use by an actor that knows what `known` says; gives how many earlier uses it conflicts with.
struct scene {
  access_history history;
  std::vector<vector_clock> clocks = std::vector<vector_clock>(4);

  std::size_t touch(actor who, std::uintptr_t first, std::size_t size, access_kind how) {
    std::size_t conflicts = 0;
    const step_stamp by{who, clocks[who].advance(who), 0};
    history.touch(first, size, how, by, clocks[who], [&](const step_stamp&, access_kind) { ++conflicts; });
    return conflicts;
  }
  std::size_t read(actor who, std::uintptr_t first, std::size_t size) {
    return touch(who, first, size, access_kind::read);
  }
  std::size_t write(actor who, std::uintptr_t first, std::size_t size) {
    return touch(who, first, size, access_kind::write);
  }
  void tell(actor from, actor to) { clocks[to].join(clocks[from]); }
};

}  // namespace

TEST_CASE("two uses conflict where one writes and nothing joins them", "[core]") {
  scene s;
  CHECK(s.write(0, 100, 50) == 0);
  CHECK(s.read(0, 100, 50) == 0);  // in its own order
  CHECK(s.read(1, 149, 10) == 1);  // one byte in common
  CHECK(s.read(1, 150, 10) == 0);  // none
  CHECK(s.write(2, 90, 10) == 0);  // beside it
  s.tell(0, 3);
  CHECK(s.read(3, 100, 50) == 0);
  CHECK(s.write(3, 100, 40) == 0);  // follows the write and the reads of 0 there
  CHECK(s.write(0, 100, 10) > 0);   // but 0 does not follow 3
}

TEST_CASE("a write conflicts with each reader that it does not follow", "[core]") {
  scene s;
  CHECK(s.read(0, 0, 8) == 0);
  CHECK(s.read(1, 0, 8) == 0);  // readers do not
  CHECK(s.write(2, 0, 8) == 2);
  scene t;
  CHECK(t.read(0, 0, 8) == 0);
  t.tell(0, 1);
  CHECK(t.read(1, 0, 8) == 0);
  t.tell(1, 2);  // and with it what 1 knows of 0
  CHECK(t.write(2, 0, 8) == 0);
}

TEST_CASE("what is forgotten was never used", "[core]") {
  scene s;
  CHECK(s.write(0, 0, 100) == 0);
  s.history.forget(20, 30);
  CHECK(s.write(1, 20, 30) == 0);
  CHECK(s.write(1, 19, 1) == 1);
  CHECK(s.write(1, 50, 1) == 1);
  CHECK(s.write(1, 0, 0) == 0);  // no bytes
}

TEST_CASE("the history of ranges says what a history of single bytes says", "[core]") {
  constexpr std::size_t size = 64;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    random_source random{seed};
    scene ranges;
    // One history a byte, which needs no splitting.
    std::vector<access_history> bytes(size);
    for (int step = 0; step < 60; ++step) {
      const auto who = static_cast<actor>(random.below(4));
      if (random.below(3) == 0) ranges.tell(static_cast<actor>(random.below(4)), who);
      const std::size_t first = random.below(size);
      const std::size_t count = 1 + random.below(size - first);
      const auto how = random.below(2) == 0 ? access_kind::read : access_kind::write;
      const step_stamp by{who, ranges.clocks[who].advance(who), 0};
      bool found = false;
      ranges.history.touch(first, count, how, by, ranges.clocks[who],
                           [&](const step_stamp&, access_kind) { found = true; });
      bool expected = false;
      for (std::size_t i = first; i < first + count; ++i) {
        bytes[i].touch(i, 1, how, by, ranges.clocks[who], [&](const step_stamp&, access_kind) { expected = true; });
      }
      CAPTURE(seed, step, who, first, count);
      REQUIRE(found == expected);
    }
  }
}
