// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/policy/detail/joint_bound.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/lower_bound.hpp>

#include "policy/every_schedule.hpp"
#include "support/catch.hpp"

TEST_CASE("no schedule of a small step costs less than the joint bound, at any prices", "[policy]") {
  vtier::random_source random{4};
  const std::int64_t prices[][2] = {{1, 1}, {1, 3}, {2, 1}, {0, 1}, {1, 0}};
  std::size_t better = 0;  // than the two bounds on their own, for bytes that cost the same in both directions
  std::size_t worse = 0;
  std::vector<double> ratios;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const auto trace = vtier::test::small_step(random, 2 + random.below(3), 4 + random.below(3));
    const std::int64_t capacity = vtier::test::some_capacity(random, trace);
    const auto in = vtier::detail::uses_of(trace);
    vtier::detail::joint_bound bound{trace.tensors, in, capacity};
    const vtier::test::every_schedule all{trace, capacity};
    for (const auto& price : prices) {
      CAPTURE(price[0], price[1]);
      const double found = bound.least(static_cast<double>(price[0]), static_cast<double>(price[1]));
      const double least = all.least(price[0], price[1]);
      REQUIRE(found >= 0.0);
      REQUIRE(found <= least + 1e-9);
      if (price[0] != 1 || price[1] != 1 || least == 0.0) continue;
      ratios.push_back(found / least);
      const double apart = vtier::detail::least_up_bytes(trace.tensors, in, capacity) +
                           vtier::detail::least_down_bytes(trace.tensors, in, capacity);
      if (found > apart + 0.01) ++better;
      if (found < apart - 0.01) ++worse;
    }
  }
  std::sort(ratios.begin(), ratios.end());
  CHECK(10 * better >= ratios.size());
  CHECK(worse == 0);
  CHECK(ratios.at(ratios.size() / 2) >= 0.6);
}

TEST_CASE("the joint bound knows that what is kept for one direction is not there for the other", "[policy]") {
  // One place beside the leases. Keeping the first saves its bytes up, keeping the second its bytes down: not both.
  vtier::step_trace trace;
  trace.tensors = {
      {1, vtier::role::parameter, false}, {1, vtier::role::parameter, false}, {1, vtier::role::parameter, false}};
  trace.leases = {{0, vtier::access::read, 0, 1}, {1, vtier::access::write, 2, 3}, {2, vtier::access::read, 4, 5}};
  trace.moment_ns = {0, 1, 2, 3, 4, 5};
  trace.duration_ns = 6;
  REQUIRE(trace.fault() == "");
  const auto in = vtier::detail::uses_of(trace);
  const double apart =
      vtier::detail::least_up_bytes(trace.tensors, in, 2) + vtier::detail::least_down_bytes(trace.tensors, in, 2);
  vtier::detail::joint_bound bound{trace.tensors, in, 2};
  const double least = vtier::test::every_schedule{trace, 2}.least(1, 1);
  CHECK(apart == 1.0);
  CHECK(least == 1.5);
  CHECK(bound.least(1.0, 1.0) == Approx(1.5).margin(0.01));
  CHECK(bound.least(2.0, 2.0) == Approx(3.0).margin(0.02));
  CHECK(bound.least(0.0, 0.0) == 0.0);
}

TEST_CASE("the joint bound of what has room, or has no leases, is nothing", "[policy]") {
  vtier::random_source random{8};
  for (int round = 0; round < 20; ++round) {
    const auto trace = vtier::test::small_step(random, 4, 6);
    const auto in = vtier::detail::uses_of(trace);
    CHECK(vtier::detail::joint_bound{trace.tensors, in, 16}.least(1.0, 1.0) == 0.0);
  }
  CHECK(vtier::detail::joint_bound{{}, vtier::detail::uses_of({}), 0}.least(1.0, 1.0) == 0.0);
}
