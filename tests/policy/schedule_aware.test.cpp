// SPDX-License-Identifier: Apache-2.0
#include <vtier/policy/schedule_aware.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/policy/lru.hpp>

#include "support/catch.hpp"

namespace {

using vtier::occupancy;
using vtier::stretch;
using vtier::victim_window;

std::vector<stretch> make(std::vector<stretch> tier) {
  std::size_t offset = 0;
  std::uint64_t block = 0;
  for (stretch& s : tier) {
    s.offset_bytes = offset;
    s.block = s.state == occupancy::free ? 0 : ++block;
    offset += s.size_bytes;
  }
  return tier;
}

stretch piece(std::size_t size, occupancy state, std::uint64_t last_use, std::uint64_t next_use) {
  return {0, size, last_use, 0, state, next_use};
}

std::optional<victim_window> chosen(const std::vector<stretch>& tier, std::size_t size) {
  return vtier::schedule_aware{}.choose(tier, size);
}

}  // namespace

TEST_CASE("what is used furthest ahead leaves, however lately it was used", "[schedule_aware]") {
  const auto tier =
      make({piece(10, occupancy::clean, 1, 5), piece(10, occupancy::clean, 9, 50), piece(10, occupancy::clean, 2, 20)});
  CHECK(chosen(tier, 10) == victim_window{1, 2});
  CHECK(chosen(tier, 20) == victim_window{1, 3});
}

TEST_CASE("what has no next use leaves before what has one; among such the oldest", "[schedule_aware]") {
  const auto tier = make({piece(10, occupancy::dirty, 1, 1'000'000), piece(10, occupancy::dirty, 8, vtier::unknown_use),
                          piece(10, occupancy::dirty, 4, vtier::unknown_use)});
  CHECK(chosen(tier, 10) == victim_window{2, 3});
  CHECK(chosen(tier, 20) == victim_window{1, 3});
}

TEST_CASE("what costs nothing goes first, and held stretches never", "[schedule_aware]") {
  const auto tier = make({piece(10, occupancy::stale, 9, 1), piece(10, occupancy::clean, 1, vtier::unknown_use),
                          piece(10, occupancy::held, 0, vtier::unknown_use), piece(10, occupancy::duplicate, 9, 2)});
  CHECK(chosen(tier, 10) == victim_window{0, 1});
  CHECK(chosen(tier, 20) == victim_window{0, 2});
  CHECK_FALSE(chosen(tier, 30).has_value());
}

TEST_CASE("windows are those whose soonest next use is the furthest", "[schedule_aware]") {
  vtier::random_source random{7};
  std::size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<stretch> tier;
    for (std::size_t i = 0, n = 1 + random.below(8); i < n; ++i) {
      tier.push_back(piece(1 + random.below(4), static_cast<occupancy>(random.below(7)), random.below(6),
                           random.below(3) == 0 ? vtier::unknown_use : random.below(6)));
    }
    tier = make(tier);
    const std::size_t size = 1 + random.below(10);
    const auto price = [&](std::size_t first, std::size_t last) {
      std::pair<std::uint64_t, std::uint64_t> most{0, 0};
      std::size_t bytes = 0;
      bool held = false;
      for (std::size_t i = first; i < last; ++i) {
        const stretch& s = tier[i];
        bytes += s.size_bytes;
        held = held || s.state == occupancy::held;
        const bool free = s.state == occupancy::free || s.state == occupancy::stale || s.state == occupancy::duplicate;
        if (!free) most = (std::max)(most, std::pair{vtier::unknown_use - s.next_use, s.last_use + 1});
      }
      return held || bytes < size ? std::nullopt : std::optional{most};
    };
    auto best = std::optional<std::pair<std::uint64_t, std::uint64_t>>{};
    for (std::size_t first = 0; first < tier.size(); ++first) {
      for (std::size_t last = first + 1; last <= tier.size(); ++last) {
        const auto p = price(first, last);
        if (p && (!best || *p < *best)) best = p;
      }
    }
    const auto window = chosen(tier, size);
    REQUIRE(window.has_value() == best.has_value());
    if (!window) continue;
    ++found;
    CHECK(price(window->first, window->last) == best);
  }
  CHECK(found > 500);
}

TEST_CASE("where nothing is known of the future it is least recently used", "[schedule_aware]") {
  vtier::random_source random{8};
  for (int round = 0; round < 1000; ++round) {
    std::vector<stretch> tier;
    for (std::size_t i = 0, n = 1 + random.below(8); i < n; ++i) {
      tier.push_back(
          piece(1 + random.below(4), static_cast<occupancy>(random.below(7)), random.below(6), vtier::unknown_use));
    }
    tier = make(tier);
    const std::size_t size = 1 + random.below(8);
    CHECK(chosen(tier, size) == vtier::lru{}.choose(tier, size));
  }
}
