// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/detail/block_map.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"

namespace {

using vtier::detail::block_map;

std::uint64_t give(block_map& map, std::uint64_t start) {
  std::uint64_t size = 0;
  REQUIRE(map.give(start, size) == block_map::answer::done);
  return size;
}

// The blocks cover the region without a gap, no two free ones touch, and the live ones are those that the model has.
void check_whole(const block_map& map, std::uint64_t first, const std::map<std::uint64_t, std::uint64_t>& model) {
  std::uint64_t end = first;
  std::uint64_t used = 0;
  std::uint64_t largest = 0;
  std::size_t live_count = 0;
  bool free_before = false;
  bool right = true;
  map.for_each([&](std::uint64_t start, std::uint64_t size, bool live) {
    right = right && start == end && size > 0 && !(free_before && !live);
    end = start + size;
    free_before = !live;
    if (live) {
      const auto at = model.find(start);
      right = right && at != model.end() && at->second == size;
      used += size;
      ++live_count;
    } else {
      largest = (std::max)(largest, size);
    }
  });
  REQUIRE(right);
  REQUIRE(live_count == model.size());
  REQUIRE(map.live_count() == live_count);
  REQUIRE(map.used() == used);
  REQUIRE(map.largest_free() == largest);
  REQUIRE(map.free_at_end() ==
          (free_before ? end -
                             [&] {
                               std::uint64_t start_of_last = 0;
                               map.for_each([&](std::uint64_t start, std::uint64_t, bool) { start_of_last = start; });
                               return start_of_last;
                             }()
                       : 0));
  REQUIRE(end == first + map.capacity());
}

}  // namespace

TEST_CASE("a map without a region has nothing to give", "[memory][block_map]") {
  block_map map;
  std::uint64_t size = 0;
  CHECK(map.take(1) == block_map::nowhere);
  CHECK(map.give(0, size) == block_map::answer::unknown);
  CHECK(map.largest_free() == 0);
  CHECK(map.free_at_end() == 0);
  check_whole(map, 0, {});
}

TEST_CASE("random programs of a map are those of a plain one", "[memory][block_map]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    vtier::random_source random{seed};
    const std::uint64_t first = random.below(3) == 0 ? 0 : 1 + random.below(std::uint64_t{1} << 40U);
    const std::uint64_t size_max = std::uint64_t{1} << (1 + random.below(14));
    block_map map;
    std::map<std::uint64_t, std::uint64_t> model;
    std::vector<std::uint64_t> starts;
    std::uint64_t refused = 0;
    for (int step = 0; step < 2'000; ++step) {
      const std::uint64_t choice = random.below(10);
      if (choice == 0 && map.capacity() < 400 * size_max) {
        map.extend(first + map.capacity(), 1 + random.below(4 * size_max));
      } else if (choice < 6) {
        const std::uint64_t size = 1 + random.below(random.below(2) == 0 ? size_max : 8);
        const std::uint64_t alignment = random.below(4) == 0 ? std::uint64_t{1} << random.below(10) : 1;
        const std::uint64_t largest = map.largest_free();
        const std::uint64_t start = map.take(size, alignment);
        if (start == block_map::nowhere) {
          ++refused;
          REQUIRE(largest < size + alignment - 1);  // whatever is free and fits is found
          continue;
        }
        REQUIRE(start % alignment == 0);
        REQUIRE(model.emplace(start, size).second);
        starts.push_back(start);
      } else if (!starts.empty()) {
        std::swap(starts[random.below(starts.size())], starts.back());
        const std::uint64_t start = starts.back();
        starts.pop_back();
        REQUIRE(give(map, start) == model.at(start));
        model.erase(start);
        std::uint64_t size = 0;
        REQUIRE(map.give(start, size) != block_map::answer::done);
      }
      if (step % 50 == 0) check_whole(map, first, model);
    }
    check_whole(map, first, model);
    while (!starts.empty()) {
      give(map, starts.back());
      model.erase(starts.back());
      starts.pop_back();
    }
    check_whole(map, first, model);
    CHECK(map.largest_free() == map.capacity());
    CHECK((refused > 0 || seed != 0));
  }
}

TEST_CASE("the same calls give the same places, also while the table grows", "[memory][block_map]") {
  const auto places = [] {
    vtier::random_source random{7};
    block_map map;
    map.extend(1'000, 10'000'000);
    std::vector<std::uint64_t> starts;
    std::vector<std::uint64_t> all;
    for (int step = 0; step < 30'000; ++step) {
      if (random.below(3) > 0) {
        starts.push_back(map.take(1 + random.below(300)));
        REQUIRE(starts.back() != block_map::nowhere);
        all.push_back(starts.back());
      } else if (!starts.empty()) {
        std::swap(starts[random.below(starts.size())], starts.back());
        give(map, starts.back());
        starts.pop_back();
      }
    }
    return all;
  };
  CHECK(places() == places());
}

TEST_CASE("a block of a class of sizes that is too small for one request does not hide one that fits",
          "[memory][block_map]") {
  // 4096 to 4223 granules are one class: the last one to come back is looked at first.
  block_map map;
  map.extend(0, 100'000);
  std::vector<std::uint64_t> kept;
  std::vector<std::uint64_t> given;
  for (const std::uint64_t size : {4'200U, 4'100U, 4'101U, 4'102U, 4'103U}) {
    given.push_back(map.take(size));
    kept.push_back(map.take(1));
  }
  const std::uint64_t rest = map.take(map.largest_free());
  for (const std::uint64_t start : given) give(map, start);
  CHECK(map.take(4'190) == given.front());
  CHECK(map.take(4'190) == block_map::nowhere);
  give(map, rest);
  CHECK(map.take(4'190) == rest);
}

TEST_CASE("what is not a whole block is told from what is none", "[memory][block_map]") {
  block_map map;
  map.extend(10, 100);
  std::uint64_t size = 0;
  const std::uint64_t a = map.take(10);
  const std::uint64_t b = map.take(10);
  CHECK(map.give(a + 1, size) == block_map::answer::unknown);
  CHECK(map.give(block_map::nowhere, size) == block_map::answer::unknown);
  CHECK(map.give(a, size) == block_map::answer::done);
  CHECK(map.give(a, size) == block_map::answer::twice);
  CHECK(map.give(b, size) == block_map::answer::done);
  CHECK(map.give(b, size) == block_map::answer::unknown);  // it is part of a by now
}
