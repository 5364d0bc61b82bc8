// SPDX-License-Identifier: Apache-2.0
// Plans as values: what they move is played on tables here, lap after lap, with nothing of theirs but the actions.

#include <vtier/policy/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>

#include "policy/every_schedule.hpp"
#include "support/catch.hpp"

namespace {

using vtier::access;
using vtier::plan_action_kind;
using vtier::role;
using vtier::step_limits;
using vtier::step_plan;
using vtier::step_trace;

// What a lap of a plan does to the first tier: bytes that a lease had to wait for without a plan, the most that is
// held.
struct lap_result {
  std::int64_t missed_bytes = 0;
  std::int64_t up_bytes = 0;
  std::int64_t down_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t end_bytes = 0;  // of the highest place
  std::size_t placed_count = 0;
};

lap_result last_lap(const step_trace& trace, const step_plan& plan) {
  const std::size_t n = trace.tensors.size();
  std::vector<char> here(n, 0);
  std::vector<char> clean(n, 1);
  std::vector<int> open(n, 0);
  std::vector<std::size_t> at(n, vtier::no_place);
  for (std::size_t i = 0; i < plan.held_at_start.size(); ++i) {
    here[plan.held_at_start[i]] = 1;
    at[plan.held_at_start[i]] = plan.place_at_start[i];
  }
  std::vector<const vtier::step_lease*> begins(trace.moment_ns.size(), nullptr);
  std::vector<const vtier::step_lease*> ends(trace.moment_ns.size(), nullptr);
  std::vector<std::uint32_t> last_end(n, 0);
  for (const auto& l : trace.leases) {
    begins[l.begin] = &l;
    ends[l.end] = &l;
    last_end[l.tensor] = (std::max)(last_end[l.tensor], l.end);
  }
  const auto size = [&](std::uint32_t t) { return static_cast<std::int64_t>(trace.tensors[t].size_bytes); };
  lap_result result;
  // A tensor comes to a place, where no other may be.
  const auto put = [&](std::uint32_t t, std::size_t offset) {
    here[t] = 1;
    clean[t] = 1;
    at[t] = offset;
    result.placed_count += offset == vtier::no_place ? 0U : 1U;
    for (std::uint32_t o = 0; o < n && offset != vtier::no_place; ++o) {
      if (o == t || here[o] == 0 || at[o] == vtier::no_place) continue;
      const bool apart = at[o] + trace.tensors[o].size_bytes <= offset || offset + trace.tensors[t].size_bytes <= at[o];
      CAPTURE(t, o, offset, at[o]);
      CHECK(apart);
    }
    if (offset != vtier::no_place) {
      result.end_bytes = (std::max)(result.end_bytes, static_cast<std::int64_t>(offset) + size(t));
    }
  };
  std::vector<std::uint32_t> dying;
  for (int lap = 0; lap < 3; ++lap) {
    result = {};
    std::size_t next = 0;
    for (std::uint32_t m = 0; m < trace.moment_ns.size(); ++m) {
      for (const std::uint32_t t : dying) here[t] = 0;  // a trainer drops it behind the end of the lease
      dying.clear();
      if (const auto* l = begins[m]) {
        if (here[l->tensor] == 0) {
          if (vtier::reads(l->mode)) {
            result.missed_bytes += size(l->tensor);
            result.up_bytes += size(l->tensor);
          }
          put(l->tensor, plan.lease_places[static_cast<std::size_t>(l - trace.leases.data())]);
        }
        if (vtier::writes(l->mode)) clean[l->tensor] = 0;
        ++open[l->tensor];
      }
      if (const auto* l = ends[m]) {
        --open[l->tensor];
        if (trace.tensors[l->tensor].born && m == last_end[l->tensor]) dying.push_back(l->tensor);
      }
      for (; next < plan.actions.size() && plan.actions[next].moment == m; ++next) {
        const auto& a = plan.actions[next];
        if (a.tier != 0) continue;
        switch (a.what) {
          case plan_action_kind::fetch:
            if (here[a.tensor] != 0) break;
            result.up_bytes += size(a.tensor);
            put(a.tensor, a.offset_bytes);
            break;
          case plan_action_kind::evict:
            REQUIRE(open[a.tensor] == 0);
            if (here[a.tensor] != 0 && clean[a.tensor] == 0) result.down_bytes += size(a.tensor);
            clean[a.tensor] = 1;
            here[a.tensor] = 0;
            break;
          case plan_action_kind::write_back:
            if (here[a.tensor] != 0 && clean[a.tensor] == 0) result.down_bytes += size(a.tensor);
            clean[a.tensor] = 1;
            break;
        }
      }
      std::int64_t held = 0;
      for (std::uint32_t t = 0; t < n; ++t) held += here[t] != 0 ? size(t) : 0;
      result.peak_bytes = (std::max)(result.peak_bytes, held);
    }
    REQUIRE(next == plan.actions.size());
  }
  return result;
}

// Layers forward and back, then an optimizer over more bytes than the layers have.
step_trace training(std::size_t layers, std::size_t size) {
  step_trace t;
  std::int64_t now = 0;
  const auto lease = [&](std::uint32_t tensor, access mode, std::int64_t ns) {
    const auto m = static_cast<std::uint32_t>(t.moment_ns.size());
    t.leases.push_back({tensor, mode, m, m + 1});
    t.moment_ns.push_back(now);
    t.moment_ns.push_back(now += ns);
  };
  const auto count = static_cast<std::uint32_t>(layers);
  for (std::uint32_t i = 0; i < 2 * count; ++i) {
    t.tensors.push_back({size, i < count ? role::parameter : role::optimizer, false});
  }
  for (std::uint32_t i = 0; i < count; ++i) lease(i, access::read, 100);
  for (std::uint32_t i = count; i-- > 0;) lease(i, access::read, 200);
  for (std::uint32_t i = 0; i < count; ++i) {
    lease(i, access::read_write, 10);
    lease(count + i, access::read_write, 10);
  }
  t.duration_ns = now;
  return t;
}

}  // namespace

TEST_CASE("a plan fetches what is needed before it is needed, and holds no more than there is room for", "[plan]") {
  vtier::random_source random{31};
  std::size_t moving = 0;
  std::size_t placed = 0;
  for (int round = 0; round < 400; ++round) {
    const step_trace trace = vtier::test::small_step(random, 2 + random.below(5), 3 + random.below(20));
    const std::int64_t capacity = vtier::test::some_capacity(random, trace);
    const step_limits limits{{static_cast<std::size_t>(capacity), 1'000'000}, {{0.1 + random.uniform(), 1.0}}};
    const step_plan plan = vtier::make_plan(trace, limits);
    const lap_result lap = last_lap(trace, plan);
    CAPTURE(round, capacity);
    CHECK(lap.peak_bytes <= capacity);
    CHECK(lap.end_bytes <= capacity);
    placed += lap.placed_count;
    CHECK(static_cast<double>(lap.up_bytes) == plan.traffic[0].up_bytes);
    CHECK(static_cast<double>(lap.down_bytes) == plan.traffic[0].down_bytes);
    CHECK(static_cast<double>(lap.up_bytes) >= plan.bound.links[0].up_bytes - 1e-6);
    CHECK(static_cast<double>(lap.down_bytes) >= plan.bound.links[0].down_bytes - 1e-6);
    CHECK(plan.step_ns >= plan.bound.ns() - 1e-6);
    CHECK(std::is_sorted(plan.actions.begin(), plan.actions.end(),
                         [](const auto& a, const auto& b) { return a.moment < b.moment; }));
    moving += plan.actions.empty() ? 0U : 1U;
  }
  CHECK(moving > 100);
  CHECK(placed > 1000);
}

TEST_CASE("what fits is left alone", "[plan]") {
  const step_trace trace = training(4, 100);
  const step_plan plan = vtier::make_plan(trace, {{800, 0}, {{1.0, 1.0}}});
  CHECK(plan.actions.empty());
  CHECK(plan.held_at_start.size() == 8);
  CHECK(plan.step_ns == static_cast<double>(trace.duration_ns));
}

TEST_CASE("a plan of a training step is near its bound", "[plan]") {
  const step_trace trace = training(24, 64);
  for (const std::size_t share : {20U, 40U, 60U, 80U}) {
    const std::size_t budget = 48 * 64 * share / 100;
    const step_plan plan = vtier::make_plan(trace, {{budget, 0}, {{1.0, 1.0}}});
    CAPTURE(share, plan.step_ns, plan.bound.ns());
    CHECK(last_lap(trace, plan).missed_bytes <= 64 * 3);  // a fetch at the very moment of its use is none before it
    CHECK(plan.step_ns <= 1.25 * plan.bound.ns());
  }
}

TEST_CASE("a tier between two is planned by what crosses it", "[plan]") {
  const step_trace trace = training(16, 64);
  const step_plan plan = vtier::make_plan(trace, {{512, 1024, 0}, {{1.0, 1.0}, {0.5, 0.5}}});
  std::size_t lower = 0;
  for (const auto& a : plan.actions) lower += a.tier == 1 ? 1U : 0U;
  CHECK(lower > 0);
  CHECK(plan.traffic[1].up_bytes > 0.0);
  CHECK(plan.traffic[1].up_bytes <= plan.traffic[0].up_bytes);
  CHECK(plan.step_ns >= plan.bound.ns());
  // Room for all below the first tier: nothing crosses the second boundary.
  const step_plan roomy = vtier::make_plan(trace, {{512, 1'000'000, 0}, {{1.0, 1.0}, {0.5, 0.5}}});
  for (const auto& a : roomy.actions) CHECK(a.tier == 0);
  CHECK(roomy.traffic[1].up_bytes == 0.0);
}

TEST_CASE("the same step gets the same plan", "[plan]") {
  const step_trace trace = training(12, 100);
  const step_limits limits{{1000, 0}, {{0.7, 0.4}}};
  CHECK(vtier::make_plan(trace, limits).actions == vtier::make_plan(trace, limits).actions);
}

TEST_CASE("what cannot be planned is refused in words", "[plan]") {
  const step_trace trace = training(4, 100);
  CHECK_THROWS_AS(vtier::make_plan(trace, {{800}, {}}), vtier::usage_error);
  try {
    static_cast<void>(vtier::make_plan(trace, {{800, 0}, {{0.0, 1.0}}}));
    FAIL("a link without bandwidth");
  } catch (const vtier::usage_error& e) {
    CHECK(std::string{e.what()}.find("bandwidth of zero") != std::string::npos);
  }
  try {
    static_cast<void>(vtier::make_plan(trace, {{99, 0}, {{1.0, 1.0}}}));
    FAIL("a lease that has no room");
  } catch (const vtier::usage_error& e) {
    CHECK(std::string{e.what()}.find("1 B more than the first tier's 99 B") != std::string::npos);
  }
  CHECK(vtier::make_plan(step_trace{}, {{1, 1}, {{1.0, 1.0}}}).actions.empty());
}
