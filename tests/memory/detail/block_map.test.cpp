// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/detail/block_map.hpp>

#include <algorithm>
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

// A region as the tests know it.
struct region {
  std::size_t number = 0;
  std::uint64_t first = 0;
  std::uint64_t size = 0;
};

// Once what was kept has merged, the blocks cover their regions without a gap, no two free ones touch, and the live
// ones are those that the model has. A live block that is longer than what was asked covers its rest too.
void check_whole(block_map& map, std::vector<region> regions, const std::map<std::uint64_t, std::uint64_t>& model) {
  map.settle();
  REQUIRE_FALSE(map.settle());
  std::sort(regions.begin(), regions.end(), [](const region& a, const region& b) { return a.number < b.number; });
  struct seen {
    std::uint64_t start, size;
    bool live;
  };
  std::vector<seen> blocks;
  map.for_each([&](std::uint64_t start, std::uint64_t size, bool live, block_map::handle) {
    blocks.push_back({start, size, live});
  });
  const auto end_of = [&](std::size_t i, std::uint64_t region_end) {
    const bool is_last =
        i + 1 == blocks.size() || blocks[i + 1].start >= region_end || blocks[i + 1].start < blocks[i].start;
    return is_last ? region_end : blocks[i + 1].start;
  };
  std::uint64_t used = 0;
  std::uint64_t largest = 0;
  std::uint64_t capacity = 0;
  std::size_t live_count = 0;
  std::size_t at = 0;
  for (const region& r : regions) {
    CAPTURE(r.number, r.first, r.size);
    std::uint64_t end = r.first;
    std::uint64_t free_at_end = 0;
    bool right = true;
    while (end < r.first + r.size) {
      REQUIRE(at < blocks.size());
      const seen& b = blocks[at];
      right = right && b.start == end && b.size > 0 && !(free_at_end > 0 && !b.live);
      end = end_of(at++, r.first + r.size);
      const std::uint64_t unused = end - b.start - b.size;
      right = right && b.start + b.size <= end && (unused == 0 || b.live) && unused <= block_map::kept_max / 16;
      free_at_end = b.live ? 0 : b.size;
      largest = (std::max)(largest, free_at_end);
      if (b.live) {
        const auto known = model.find(b.start);
        right = right && known != model.end() && known->second == b.size && map.live_size(b.start) == b.size;
        used += b.size;
        ++live_count;
      }
    }
    REQUIRE(right);
    REQUIRE(end == r.first + r.size);
    REQUIRE(map.free_at_end(r.number) == free_at_end);
    capacity += r.size;
  }
  REQUIRE(at == blocks.size());
  REQUIRE(live_count == model.size());
  REQUIRE(map.live_count() == live_count);
  REQUIRE(map.used() == used);
  REQUIRE(map.largest_free() == largest);
  REQUIRE(map.capacity() == capacity);
}

}  // namespace

TEST_CASE("a map without a region has nothing to give", "[memory][block_map]") {
  block_map map;
  std::uint64_t size = 0;
  CHECK(map.take(1) == block_map::nowhere);
  CHECK(map.give(0, size) == block_map::answer::unknown);
  CHECK(map.largest_free() == 0);
  check_whole(map, {}, {});
  const std::size_t none = map.add_region(0);
  CHECK(map.take(1) == block_map::nowhere);
  CHECK(map.free_at_end(none) == 0);
  check_whole(map, {{none, 0, 0}}, {});
}

TEST_CASE("random programs of a map are those of a plain one", "[memory][block_map]") {
  std::uint64_t removed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    vtier::random_source random{seed};
    const std::uint64_t size_max = std::uint64_t{1} << (1 + random.below(14));
    const std::uint64_t apart = std::uint64_t{1} << 30U;
    const std::size_t region_max = 1 + random.below(5);
    block_map map;
    std::vector<region> regions;
    std::uint64_t next_first = random.below(3) == 0 ? 0 : 1 + random.below(std::uint64_t{1} << 40U);
    std::map<std::uint64_t, std::uint64_t> model;
    std::vector<std::uint64_t> starts;
    std::uint64_t refused = 0;
    for (int step = 0; step < 3'000; ++step) {
      const std::uint64_t choice = random.below(20);
      if (choice == 0 && regions.size() < region_max) {
        const std::uint64_t size = random.below(2) == 0 ? 0 : 1 + random.below(2 * size_max);
        regions.push_back({map.add_region(next_first, size), next_first, size});
        // Some regions begin where the one before may come to end: they stay two all the same.
        next_first += random.below(2) == 0 ? size : apart;
        if (size == 0) next_first += apart;
      } else if (choice <= 2 && map.capacity() < 400 * size_max) {
        if (regions.empty()) continue;
        region& r = regions[random.below(regions.size())];
        const std::uint64_t size = 1 + random.below(4 * size_max);
        const bool meets = std::any_of(regions.begin(), regions.end(), [&](const region& o) {
          return o.first >= r.first + r.size && o.first < r.first + r.size + size && o.number != r.number;
        });
        if (meets || (next_first >= r.first + r.size && next_first < r.first + r.size + size)) continue;
        map.extend(r.number, size);
        r.size += size;
      } else if (choice == 3 && !regions.empty()) {
        const std::size_t at = random.below(regions.size());
        map.settle();
        const std::uint64_t free = map.free_at_end(regions[at].number);
        const std::uint64_t size = random.below(2) == 0 ? free : random.below(free + 1);
        map.cut_end(regions[at].number, size);
        regions[at].size -= size;
        if (regions[at].size == 0 && random.below(2) == 0) {
          map.remove_region(regions[at].number);
          regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(at));
          ++removed;
        }
      } else if (choice < 12) {
        const std::uint64_t size = 1 + random.below(random.below(2) == 0 ? size_max : 8);
        const std::uint64_t alignment = random.below(4) == 0 ? std::uint64_t{1} << random.below(10) : 1;
        if (random.below(8) == 0) map.settle();
        const std::uint64_t largest = map.largest_free();
        const std::uint64_t start = map.take(size, alignment);
        if (start == block_map::nowhere) {
          ++refused;
          REQUIRE(largest < size + alignment - 1);  // whatever is free and fits is found
          REQUIRE_FALSE(map.settle());              // and nothing is kept then
          continue;
        }
        REQUIRE(start % alignment == 0);
        REQUIRE(model.emplace(start, size).second);
        starts.push_back(start);
      } else if (choice == 12 && !starts.empty()) {
        const std::uint64_t start = starts[random.below(starts.size())];
        std::uint64_t& size = model.at(start);
        if (size < 2) continue;
        const std::uint64_t first_size = 1 + random.below(size - 1);
        map.split(start, first_size);
        if (random.below(2) == 0) {
          REQUIRE(map.are_neighbours(start, start + first_size));
          map.join(start);
        } else {
          model.emplace(start + first_size, size - first_size);
          starts.push_back(start + first_size);
          size = first_size;
        }
      } else if (choice == 13) {
        map.settle();
        std::vector<block_map::handle> free;
        std::vector<std::uint64_t> free_starts;
        map.for_each([&](std::uint64_t start, std::uint64_t, bool live, block_map::handle block) {
          if (!live) free.push_back(block);
          if (!live) free_starts.push_back(start);
        });
        if (free.empty()) continue;
        const std::size_t at = random.below(free.size());
        map.claim(free[at]);
        model.emplace(free_starts[at], map.live_size(free_starts[at]));
        starts.push_back(free_starts[at]);
      } else if (!starts.empty()) {
        std::swap(starts[random.below(starts.size())], starts.back());
        const std::uint64_t start = starts.back();
        starts.pop_back();
        REQUIRE(give(map, start) == model.at(start));
        model.erase(start);
        std::uint64_t size = 0;
        REQUIRE(map.give(start, size) == block_map::answer::twice);
      }
      if (step % 50 == 0) check_whole(map, regions, model);
    }
    check_whole(map, regions, model);
    while (!starts.empty()) {
      give(map, starts.back());
      model.erase(starts.back());
      starts.pop_back();
    }
    check_whole(map, regions, model);
    map.settle();
    for (const region& r : regions) CHECK(map.free_at_end(r.number) == r.size);
    CHECK((refused > 0 || seed != 0));
  }
  CHECK(removed > 0);
}

TEST_CASE("the same calls give the same places, also while the table grows", "[memory][block_map]") {
  const auto places = [] {
    vtier::random_source random{7};
    block_map map;
    map.add_region(1'000, 10'000'000);
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
  map.add_region(0, 100'000);
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
  map.add_region(10, 100);
  std::uint64_t size = 0;
  const std::uint64_t a = map.take(10);
  const std::uint64_t b = map.take(10);
  CHECK(map.give(a + 1, size) == block_map::answer::unknown);
  CHECK(map.give(block_map::nowhere, size) == block_map::answer::unknown);
  CHECK(map.give(a, size) == block_map::answer::done);
  CHECK(map.give(a, size) == block_map::answer::twice);
  CHECK(map.give(b, size) == block_map::answer::done);
  CHECK(map.give(b, size) == block_map::answer::twice);
  CHECK(map.give(a + 1, size) == block_map::answer::twice);  // who knows what was there
  CHECK(map.give(9, size) == block_map::answer::unknown);
  CHECK(map.give(110, size) == block_map::answer::unknown);
}
