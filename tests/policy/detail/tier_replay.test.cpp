// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/policy/detail/room_profile.hpp>
#include <vtier/policy/detail/tier_plan.hpp>
#include <vtier/policy/detail/tier_replay.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/lower_bound.hpp>

#include "support/catch.hpp"

TEST_CASE("a profile of room answers as a plain list of ticks does", "[policy]") {
  vtier::random_source random{5};
  for (int round = 0; round < 50; ++round) {
    const std::size_t ticks = 1 + random.below(40);
    vtier::detail::room_profile profile{ticks};
    std::vector<std::int64_t> plain(ticks, 0);
    for (int step = 0; step < 40; ++step) {
      const std::size_t first = random.below(ticks + 1);
      const std::size_t last = first + random.below(ticks + 1 - first);
      const auto bytes = static_cast<std::int64_t>(random.below(100)) - 20;
      profile.add(first, last, bytes);
      for (std::size_t t = first; t < last; ++t) plain[t] += bytes;
      const std::size_t low = random.below(ticks);
      const std::size_t high = low + 1 + random.below(ticks - low);
      const auto begin = plain.begin() + static_cast<std::ptrdiff_t>(low);
      const auto end = plain.begin() + static_cast<std::ptrdiff_t>(high);
      REQUIRE(profile.most(low, high) == *std::max_element(begin, end));
      const auto limit = static_cast<std::int64_t>(random.below(200)) - 50;
      std::size_t earliest = high;
      while (earliest > low && plain[earliest - 1] <= limit) --earliest;
      REQUIRE(profile.earliest(low, high, limit) == earliest);
    }
  }
}

TEST_CASE("no plan of one tier is better than the bound, or holds more than the tier", "[policy]") {
  vtier::random_source random{11};
  for (int round = 0; round < 200; ++round) {
    vtier::step_trace trace;
    const std::size_t tensors = 2 + random.below(6);
    for (std::size_t i = 0; i < tensors; ++i) {
      trace.tensors.push_back({100 * (1 + random.below(4)), vtier::role::parameter, false});
    }
    for (std::uint32_t i = 0; i < 12; ++i) {
      const auto mode = static_cast<vtier::access>(random.below(3));
      trace.leases.push_back({static_cast<std::uint32_t>(random.below(tensors)), mode, 2 * i, 2 * i + 1});
      trace.moment_ns.push_back(100 * i);
      trace.moment_ns.push_back(100 * i + static_cast<std::int64_t>(random.below(100)));
    }
    trace.duration_ns = 1200;
    const std::size_t budget = 400 + 100 * random.below(10);
    const auto rate = [&] { return 0.25 * static_cast<double>(1 + random.below(8)); };
    vtier::link_rates rates{rate(), rate()};
    if (random.below(2) == 0) rates.both = rate();
    const auto bound = vtier::lower_bound(trace, {{budget, 0}, {rates}});
    const auto in = vtier::detail::uses_of(trace);
    std::vector<std::uint32_t> order(in.idle.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto capacity = static_cast<std::int64_t>(budget);
    const auto plan = vtier::detail::pack_intervals(trace.tensors, in, vtier::detail::profile_of(trace.tensors, in),
                                                    order, capacity, capacity / 10);
    vtier::detail::tier_replay replay{trace.tensors, in, capacity, rates};  // asserts that the room is enough
    const auto took = replay.play(plan);
    REQUIRE(took.ns >= bound.ns() - 1e-6);
    REQUIRE(took.up_bytes >= bound.links.at(0).up_bytes);
    REQUIRE(took.down_bytes >= bound.links.at(0).down_bytes);
  }
}

TEST_CASE("a step without leases takes what it computes", "[policy]") {
  vtier::step_trace trace;
  trace.duration_ns = 70;
  const auto in = vtier::detail::uses_of(trace);
  CHECK(vtier::detail::tier_replay{trace.tensors, in, 0, {}}.play({}).ns == 70.0);
}
