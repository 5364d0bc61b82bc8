// SPDX-License-Identifier: Apache-2.0
#include <vtier/policy/detail/stay_places.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"

namespace {

using vtier::detail::place_stays;
using vtier::detail::stay;
using vtier::detail::stay_places;

std::vector<stay> random_stays(vtier::random_source& decide, std::uint32_t lap, std::uint32_t count) {
  std::vector<stay> stays;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::uint32_t>(decide.below(lap));
    // Some to the very end, some all the time, some over the end.
    auto end = static_cast<std::uint32_t>(decide.below(lap + 1));
    if (decide.below(10) == 0) end = lap;
    if (decide.below(10) == 0) end = begin;
    stays.push_back({i, begin, end, static_cast<std::int64_t>(1 + decide.below(50))});
  }
  return stays;
}

/// The ticks that a stay is there, one by one.
std::vector<bool> ticks_of(const stay& s, std::uint32_t lap) {
  std::vector<bool> there(lap, false);
  if (s.begin < s.end) {
    for (std::uint32_t t = s.begin; t < s.end; ++t) there[t] = true;
  } else {
    for (std::uint32_t t = s.begin; t < lap; ++t) there[t] = true;
    for (std::uint32_t t = 0; t < s.end; ++t) there[t] = true;
  }
  return there;
}

bool share_a_tick(const stay& a, const stay& b, std::uint32_t lap) {
  const auto of_a = ticks_of(a, lap);
  const auto of_b = ticks_of(b, lap);
  for (std::uint32_t t = 0; t < lap; ++t) {
    if (of_a[t] && of_b[t]) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("stay: two meet where they share a tick") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    vtier::random_source decide{seed};
    const auto lap = static_cast<std::uint32_t>(1 + decide.below(40));
    const auto stays = random_stays(decide, lap, 30);
    for (const stay& a : stays) {
      for (const stay& b : stays) REQUIRE(a.meets(b) == share_a_tick(a, b, lap));
    }
  }
}

TEST_CASE("stay places: no two that are there at once share a byte, and the least possible is not far") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    vtier::random_source decide{seed};
    const auto lap = static_cast<std::uint32_t>(2 + decide.below(60));
    const auto stays = random_stays(decide, lap, static_cast<std::uint32_t>(1 + decide.below(60)));
    std::int64_t most = 0;  // that is there at once
    for (std::uint32_t t = 0; t < lap; ++t) {
      std::int64_t there = 0;
      for (const stay& s : stays) there += ticks_of(s, lap)[t] ? s.size_bytes : 0;
      most = (std::max)(most, there);
    }
    const stay_places places = place_stays(stays, lap, most);
    CAPTURE(seed, lap, most, places.size_bytes);
    REQUIRE(places.offset_bytes.size() == stays.size());
    REQUIRE(places.size_bytes >= most);
    REQUIRE(places.size_bytes <= 2 * most);
    for (std::size_t i = 0; i < stays.size(); ++i) {
      if (places.offset_bytes[i] == stay_places::unplaced) continue;
      const auto from = static_cast<std::int64_t>(places.offset_bytes[i]);
      REQUIRE(from + stays[i].size_bytes <= most);
      for (std::size_t j = 0; j < i; ++j) {
        if (places.offset_bytes[j] == stay_places::unplaced || !share_a_tick(stays[i], stays[j], lap)) continue;
        const auto other = static_cast<std::int64_t>(places.offset_bytes[j]);
        const bool apart = from + stays[i].size_bytes <= other || other + stays[j].size_bytes <= from;
        REQUIRE(apart);
      }
    }
    // Where there is room for all, all have a place below the highest end.
    const stay_places roomy = place_stays(stays, lap, 2 * most);
    for (std::size_t i = 0; i < stays.size(); ++i) {
      REQUIRE(roomy.offset_bytes[i] != stay_places::unplaced);
      REQUIRE(roomy.offset_bytes[i] + static_cast<std::size_t>(stays[i].size_bytes) <=
              static_cast<std::size_t>(roomy.size_bytes));
    }
  }
}
