// SPDX-License-Identifier: Apache-2.0
#include <vtier/policy/lru.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"

namespace {

using vtier::occupancy;
using vtier::stretch;
using vtier::victim_window;
using tier_map = std::vector<stretch>;

tier_map make(const std::vector<stretch>& wanted) {
  tier_map tier = wanted;
  std::size_t offset = 0;
  for (stretch& s : tier) {
    s.offset_bytes = offset;
    offset += s.size_bytes;
  }
  return tier;
}

stretch piece(std::size_t size_bytes, occupancy state, std::uint64_t last_use = 0) {
  return {0, size_bytes, last_use, state == occupancy::free ? 0U : 1U, state};
}

// What the documentation says of a window: its latest use, where dropping for nothing counts as never used; and what of
// it has to be written.
struct worth {
  bool possible = false;
  std::uint64_t latest = 0;
  std::size_t dirty_bytes = 0;
};
worth of(const tier_map& tier, victim_window window, std::size_t size_bytes) {
  worth w;
  std::size_t total = 0;
  for (std::size_t i = window.first; i < window.last; ++i) {
    const stretch& s = tier[i];
    if (s.state == occupancy::held) return w;
    total += s.size_bytes;
    const auto is = [&](occupancy state) { return s.state == state; };
    const bool for_nothing = is(occupancy::free) || is(occupancy::stale) || is(occupancy::duplicate);
    if (!for_nothing) w.latest = (std::max)(w.latest, s.last_use + 1);
    if (s.state == occupancy::dirty) w.dirty_bytes += s.size_bytes;
  }
  w.possible = total >= size_bytes;
  return w;
}

}  // namespace

TEST_CASE("the chosen window is the best of all windows", "[policy][lru]") {
  vtier::random_source random{11};
  const vtier::lru policy;
  int chosen = 0;
  for (int round = 0; round < 4'000; ++round) {
    std::vector<stretch> wanted;
    for (std::uint64_t i = random.below(10); i > 0; --i) {
      const std::size_t size = 1 + random.below(6);  // one by one: the order of arguments is the compiler's choice
      const auto state = static_cast<occupancy>(random.below(7));
      wanted.push_back(piece(size, state, random.below(8)));
    }
    const tier_map tier = make(wanted);
    const std::size_t size = 1 + random.below(16);
    CAPTURE(round, size, tier.size());

    std::optional<worth> best;
    for (std::size_t first = 0; first < tier.size(); ++first) {
      for (std::size_t last = first + 1; last <= tier.size(); ++last) {
        const worth w = of(tier, {first, last}, size);
        if (!w.possible) continue;
        const bool better =
            !best || w.latest < best->latest || (w.latest == best->latest && w.dirty_bytes < best->dirty_bytes);
        if (better) best = w;
      }
    }
    const auto got = policy.choose(tier, size);
    REQUIRE(got.has_value() == best.has_value());
    if (!got) continue;
    ++chosen;
    REQUIRE(got->first < got->last);
    REQUIRE(got->last <= tier.size());
    const worth w = of(tier, *got, size);
    REQUIRE(w.possible);
    REQUIRE(w.latest == best->latest);
    REQUIRE(w.dirty_bytes == best->dirty_bytes);
    // Nothing is evicted that need not be.
    REQUIRE_FALSE(of(tier, {got->first + 1, got->last}, size).possible);
    REQUIRE_FALSE(of(tier, {got->first, got->last - 1}, size).possible);
    REQUIRE(policy.choose(tier, size) == got);
  }
  CHECK(chosen > 500);
}

TEST_CASE("the least recently used goes first", "[policy][lru]") {
  const auto tier = make({piece(4, occupancy::clean, 9), piece(4, occupancy::clean, 3), piece(4, occupancy::clean, 5)});
  CHECK(vtier::lru{}.choose(tier, 4) == victim_window{1, 2});
  CHECK(vtier::lru{}.choose(tier, 5) == victim_window{1, 3});
  CHECK(vtier::lru{}.choose(tier, 12) == victim_window{0, 3});
  CHECK_FALSE(vtier::lru{}.choose(tier, 13).has_value());
  CHECK_FALSE(vtier::lru{}.choose({}, 1).has_value());
}

TEST_CASE("what costs nothing goes before what was used long ago", "[policy][lru]") {
  const auto costly = make({piece(4, occupancy::clean, 0), piece(4, occupancy::stale, 99)});
  CHECK(vtier::lru{}.choose(costly, 4) == victim_window{1, 2});
  const auto halves =
      make({piece(2, occupancy::duplicate, 9), piece(2, occupancy::free), piece(4, occupancy::dirty, 0)});
  CHECK(vtier::lru{}.choose(halves, 4) == victim_window{0, 2});
}

TEST_CASE("a held stretch is a wall", "[policy][lru]") {
  const auto tier = make({piece(4, occupancy::free), piece(1, occupancy::held), piece(4, occupancy::free)});
  CHECK_FALSE(vtier::lru{}.choose(tier, 5).has_value());
  CHECK(vtier::lru{}.choose(tier, 4) == victim_window{0, 1});
  const auto pinned = make({piece(4, occupancy::held), piece(4, occupancy::held)});
  CHECK_FALSE(vtier::lru{}.choose(pinned, 1).has_value());
}

TEST_CASE("of two windows used alike, the one with less to write goes", "[policy][lru]") {
  const auto tier = make({piece(4, occupancy::dirty, 3), piece(4, occupancy::clean, 3), piece(4, occupancy::dirty, 3)});
  CHECK(vtier::lru{}.choose(tier, 4) == victim_window{1, 2});
}

TEST_CASE("sizes near the end of 64 bits find nothing", "[policy][lru]") {
  const auto tier = make({piece(4, occupancy::free), piece(4, occupancy::free)});
  CHECK_FALSE(vtier::lru{}.choose(tier, (std::numeric_limits<std::size_t>::max)()).has_value());
}
