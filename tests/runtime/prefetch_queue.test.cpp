// SPDX-License-Identifier: Apache-2.0
#include <vtier/runtime/prefetch_queue.hpp>

#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"

namespace {

using vtier::movement;
using vtier::movement_result;
using vtier::prefetch_queue;

movement fetch(std::uint64_t block, std::size_t tier = 0) { return {block, tier, movement::direction::fetch}; }
movement evict(std::uint64_t block, std::size_t tier = 0) { return {block, tier, movement::direction::evict}; }

// What is shown, where those in `pending` stay.
std::vector<movement> shown(prefetch_queue& queue, const std::set<std::uint64_t>& pending = {}) {
  std::vector<movement> seen;
  queue.serve([&](const movement& m) {
    seen.push_back(m);
    return pending.count(m.block) != 0 ? movement_result::pending : movement_result::finished;
  });
  return seen;
}

using movements = std::vector<movement>;

}  // namespace

TEST_CASE("wishes are shown in the order of asking and leave when they are finished", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8};
  CHECK(queue.empty());
  CHECK(queue.push(fetch(1)));
  CHECK(queue.push(evict(2)));
  CHECK(queue.push(fetch(3)));
  CHECK(queue.size() == 3);
  CHECK(shown(queue) == movements{fetch(1), evict(2), fetch(3)});
  CHECK(queue.empty());
  CHECK_FALSE(queue.serve([](const movement&) { return movement_result::finished; }));
}

TEST_CASE("a wish that is there already keeps its place", "[runtime][prefetch_queue]") {
  prefetch_queue queue{2};
  CHECK(queue.push(fetch(1)));
  CHECK(queue.push(fetch(2)));
  CHECK(queue.push(fetch(1)));  // and drops nothing although the list is full
  CHECK(shown(queue) == movements{fetch(1), fetch(2)});
}

TEST_CASE("the last wish for a block counts", "[runtime][prefetch_queue]") {
  prefetch_queue queue{2};
  queue.push(fetch(1));
  queue.push(fetch(2));
  CHECK(queue.push(evict(1)));  // its place is free by replacing the old wish
  CHECK(queue.size() == 2);
  CHECK(queue.push(fetch(2, 1)));
  CHECK(shown(queue) == movements{evict(1), fetch(2, 1)});
}

TEST_CASE("when the list is full the oldest wish goes", "[runtime][prefetch_queue]") {
  prefetch_queue queue{3};
  for (std::uint64_t i = 1; i <= 3; ++i) CHECK(queue.push(fetch(i)));
  CHECK_FALSE(queue.push(fetch(4)));
  CHECK(queue.size() == 3);
  CHECK(shown(queue) == movements{fetch(2), fetch(3), fetch(4)});
  for (std::uint64_t i = 0; i < 1'000; ++i) queue.push(fetch(i));
  CHECK(queue.size() == 3);
}

TEST_CASE("wishes for a block that dies are forgotten", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8};
  queue.push(fetch(1));
  queue.push(evict(2));
  queue.forget(1);
  queue.forget(7);
  CHECK(shown(queue) == movements{evict(2)});
}

TEST_CASE("behind a fetch that waits no later fetch is shown, an eviction is", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8};
  for (const movement& m : {fetch(1), fetch(2), fetch(3), evict(4), fetch(5)}) queue.push(m);
  CHECK(shown(queue, {2}) == movements{fetch(1), fetch(2), evict(4)});
  CHECK(queue.size() == 3);
  CHECK(shown(queue) == movements{fetch(2), fetch(3), fetch(5)});
}

TEST_CASE("an eviction that waits holds nobody up", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8};
  for (const movement& m : {evict(1), fetch(2), evict(3)}) queue.push(m);
  CHECK(shown(queue, {1}) == movements{evict(1), fetch(2), evict(3)});
  CHECK(queue.size() == 1);
}

TEST_CASE("serving says whether anything was finished", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8};
  queue.push(fetch(1));
  CHECK_FALSE(queue.serve([](const movement&) { return movement_result::pending; }));
  CHECK(queue.serve([](const movement&) { return movement_result::finished; }));
}
