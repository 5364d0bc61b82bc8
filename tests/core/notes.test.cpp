// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/notes.hpp>

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

TEST_CASE("a sentence is kept once, in the order of first saying", "[core][notes]") {
  vtier::notes notes;
  CHECK(notes.list().empty());
  notes.say("b");
  notes.say("a");
  notes.say("b");
  CHECK(notes.list() == std::vector<std::string>{"b", "a"});
}

TEST_CASE("copies share the list, also when they were moved from", "[core][notes]") {
  vtier::notes first;
  vtier::notes second = first;
  second.say("through the copy");
  vtier::notes third = std::move(second);
  second.say("through what was moved from");  // NOLINT: that this works is the point
  CHECK(first.list() == std::vector<std::string>{"through the copy", "through what was moved from"});
  CHECK(third.list() == first.list());
  vtier::notes other;
  other = third;
  CHECK(other.list().size() == 2);
}

TEST_CASE("the list is bounded", "[core][notes]") {
  vtier::notes notes;
  for (std::size_t i = 0; i < 2 * vtier::notes::count_max; ++i) notes.say("sentence " + std::to_string(i));
  CHECK(notes.list().size() == vtier::notes::count_max);
  CHECK(notes.list().front() == "sentence 0");
}

TEST_CASE("several threads may speak at once", "[core][notes]") {
  for (int round = 0; round < 300; ++round) {
    vtier::notes notes;
    std::atomic<int> waiting{4};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&waiting, t, notes]() mutable {
        --waiting;
        while (waiting.load() > 0) std::this_thread::yield();
        for (int i = 0; i < 15; ++i) notes.say("thread " + std::to_string(t) + " says " + std::to_string(i));
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE(notes.list().size() == 60);
  }
}

TEST_CASE("a sentence is one line (VO-B11)", "[core][notes]") {
  vtier::notes remarks;
  remarks.say("tier\nof mine: unlocked");
  CHECK(remarks.list() == std::vector<std::string>{"tier of mine: unlocked"});
}
