// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/policy/detail/tier_replay.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/lower_bound.hpp>

#include "policy/every_schedule.hpp"
#include "support/catch.hpp"

namespace {

// Leases of one tensor after the other, each of 100 bytes and 10 ns.
vtier::step_trace scan(std::size_t tensors, vtier::access mode) {
  vtier::step_trace t;
  for (std::uint32_t i = 0; i < tensors; ++i) {
    t.tensors.push_back({100, vtier::role::optimizer, false});
    t.leases.push_back({i, mode, 2 * i, 2 * i + 1});
    t.moment_ns.push_back(10 * i);
    t.moment_ns.push_back(10 * i + 10);
  }
  t.duration_ns = static_cast<std::int64_t>(10 * tensors);
  return t;
}

// How near a bound comes to the least of all schedules, where that is not zero.
struct nearness {
  std::size_t exact = 0;
  std::vector<double> ratios;

  void add(double bound, double least) {
    if (least == 0.0) return;
    ratios.push_back(bound / least);
    if (bound >= least - 1e-6) ++exact;
  }
  double median() {
    std::sort(ratios.begin(), ratios.end());
    return ratios.at(ratios.size() / 2);
  }
};

// Rates of a link, now and then as if one of the three were not there.
vtier::link_rates random_rates(vtier::random_source& random) {
  const auto rate = [&] {
    return random.below(5) == 0 ? std::numeric_limits<double>::infinity()
                                : 1.0 / static_cast<double>(2 + random.below(40));
  };
  const double up = rate();
  const double down = rate();
  return {up, down, rate()};
}

}  // namespace

TEST_CASE("a step that fits moves nothing and takes what it computes", "[policy]") {
  const auto bound = vtier::lower_bound(scan(4, vtier::access::read_write), {{400, 0}, {{1.0, 1.0}}});
  CHECK(bound.links.at(0).up_bytes == 0.0);
  CHECK(bound.links.at(0).down_bytes == 0.0);
  CHECK(bound.ns() == 40.0);
}

TEST_CASE("a scan in a circle must fetch what has no room, and write it down where it changes it", "[policy]") {
  // At each lease one tensor is there for it, and the others share the rest: of five tensors two places are short.
  const auto changed = vtier::lower_bound(scan(5, vtier::access::read_write), {{300, 0}, {{1.0, 1.0}}});
  CHECK(changed.links.at(0).up_bytes > 0.0);
  CHECK(changed.links.at(0).up_bytes <= 300.0);  // keeping two and streaming three does with that
  CHECK(changed.links.at(0).down_bytes == changed.links.at(0).up_bytes);
  const auto read = vtier::lower_bound(scan(5, vtier::access::read), {{300, 0}, {{1.0, 1.0}}});
  CHECK(read.links.at(0).up_bytes == changed.links.at(0).up_bytes);
  CHECK(read.links.at(0).down_bytes == 0.0);
  CHECK(read.ns() >= read.links.at(0).up_bytes);
  const auto overwritten = vtier::lower_bound(scan(5, vtier::access::write), {{300, 0}, {{1.0, 1.0}}});
  CHECK(overwritten.links.at(0).up_bytes == 0.0);
  CHECK(overwritten.links.at(0).down_bytes == changed.links.at(0).down_bytes);
}

TEST_CASE("links that share a bus are bound by their sum", "[policy]") {
  const auto apart = vtier::lower_bound(scan(5, vtier::access::read_write), {{300, 0}, {{1.0, 1.0}}});
  const auto shared = vtier::lower_bound(scan(5, vtier::access::read_write), {{300, 0}, {{1.0, 1.0, 1.0}}});
  CHECK(shared.ns() >= 2.0 * apart.links.at(0).up_bytes);

  // Room for one beside what is leased: it saves a byte up or a byte down, and the bus knows.
  vtier::step_trace one = scan(3, vtier::access::read);
  one.leases[1].mode = vtier::access::write;
  const auto bound = vtier::lower_bound(one, {{200, 0}, {{1.0, 1.0, 1.0}}}).links.at(0);
  CHECK(bound.up_bytes + bound.down_bytes == 100.0);
  CHECK(bound.both_bytes >= 149.0);
  CHECK(bound.ns >= bound.both_bytes);
}

TEST_CASE("a part of a step that reads and writes more than there is lasts as long as its bus needs", "[policy]") {
  // 80 ns of computing in which four tensors are read and then four written, and a long time of computing alone.
  vtier::step_trace trace = scan(8, vtier::access::read);
  for (std::size_t i = 4; i < 8; ++i) trace.leases[i].mode = vtier::access::write;
  trace.duration_ns = 10'000;
  const vtier::link_rates apart{1.0, 1.0};
  CHECK(vtier::lower_bound(trace, {{100, 0}, {apart}}).ns() == 10'000.0 - 80.0 + 600.0);
  const vtier::link_rates shared{1.0, 1.0, 0.5};
  CHECK(vtier::lower_bound(trace, {{100, 0}, {shared}}).ns() == 10'000.0 - 80.0 + 1'200.0);
}

TEST_CASE("each boundary counts with the tiers above it taken as one", "[policy]") {
  const auto bound = vtier::lower_bound(scan(5, vtier::access::read), {{200, 100, 0}, {{100.0, 100.0}, {1.0, 1.0}}});
  CHECK(bound.links.at(0).up_bytes >= bound.links.at(1).up_bytes);
  const auto one = vtier::lower_bound(scan(5, vtier::access::read), {{300, 0}, {{1.0, 1.0}}});
  CHECK(bound.links.at(1).up_bytes == one.links.at(0).up_bytes);
}

TEST_CASE("a bound of what is no step is a usage_error", "[policy]") {
  vtier::step_trace broken = scan(2, vtier::access::read);
  broken.moment_ns.pop_back();
  CHECK_THROWS_AS(vtier::lower_bound(broken, {{300, 0}, {{1.0, 1.0}}}), vtier::usage_error);
  CHECK_THROWS_AS(vtier::lower_bound(scan(2, vtier::access::read), {{300, 0}, {{0.0, 1.0}}}), vtier::usage_error);
  CHECK(vtier::lower_bound(vtier::step_trace{}, {{300, 0}, {{1.0, 1.0}}}).ns() == 0.0);
}

TEST_CASE("no schedule of a small step moves fewer bytes than the bound", "[policy]") {
  vtier::random_source random{2};
  nearness up;
  nearness down;
  nearness both;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const auto trace = vtier::test::small_step(random, 2 + random.below(3), 4 + random.below(3));
    REQUIRE(trace.fault() == "");
    const std::int64_t capacity = vtier::test::some_capacity(random, trace);
    const auto bound = vtier::lower_bound(trace, {{static_cast<std::size_t>(capacity), 0}, {{1.0, 1.0, 1.0}}});
    const vtier::link_bound& link = bound.links.at(0);
    const vtier::test::every_schedule all{trace, capacity};
    const double up_least = all.least(1, 0);
    const double down_least = all.least(0, 1);
    const double both_least = all.least(1, 1);
    REQUIRE(link.up_bytes <= up_least + 1e-9);
    REQUIRE(link.down_bytes <= down_least + 1e-9);
    REQUIRE(link.up_bytes + link.down_bytes <= link.both_bytes);
    REQUIRE(link.both_bytes <= both_least + 1e-9);
    REQUIRE(link.ns >= link.both_bytes);
    up.add(link.up_bytes, up_least);
    down.add(link.down_bytes, down_least);
    both.add(link.both_bytes, both_least);
  }
  // Nothing would be a bound too. It is of fractions, and sizes of four bytes do not fill a place as they do.
  for (nearness* n : {&up, &down, &both}) {
    CHECK(n->ratios.size() >= 150);
    CHECK(5 * n->exact >= n->ratios.size());
    CHECK(n->median() >= 0.6);
  }
}

TEST_CASE("the bound of tensors of one size is what the best schedule moves", "[policy]") {
  // Intervals of one size are a matrix of consecutive ones: its best point has whole tensors.
  vtier::random_source random{6};
  nearness up;
  nearness down;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const auto trace = vtier::test::small_step(random, 3 + random.below(2), 5 + random.below(3), 1);
    const std::int64_t capacity = vtier::test::some_capacity(random, trace);
    const auto bound = vtier::lower_bound(trace, {{static_cast<std::size_t>(capacity), 0}, {{1.0, 1.0}}});
    const vtier::test::every_schedule all{trace, capacity};
    const double up_least = all.least(1, 0);
    const double down_least = all.least(0, 1);
    REQUIRE(bound.links.at(0).up_bytes == Approx(up_least));
    REQUIRE(bound.links.at(0).down_bytes <= down_least + 1e-9);
    up.add(bound.links.at(0).up_bytes, up_least);
    down.add(bound.links.at(0).down_bytes, down_least);
  }
  CHECK(up.ratios.size() >= 150);
  CHECK(10 * down.exact >= 9 * down.ratios.size());  // reads between two writes make the difference
}

TEST_CASE("no plan of a small step that fits is faster than the bound", "[policy]") {
  vtier::random_source random{3};
  std::size_t plans = 0;
  nearness near;
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const auto trace = vtier::test::small_step(random, 2 + random.below(3), 3 + random.below(3));
    const std::int64_t capacity = vtier::test::some_capacity(random, trace);
    const vtier::link_rates rates = random_rates(random);
    const auto bound = vtier::lower_bound(trace, {{static_cast<std::size_t>(capacity), 0}, {rates}});
    const auto in = vtier::detail::uses_of(trace);
    vtier::detail::tier_replay replay{trace.tensors, in, capacity, rates};
    double least = std::numeric_limits<double>::infinity();
    vtier::test::every_plan every{trace, in, capacity, [&](const vtier::detail::tier_plan& plan) {
                                    ++plans;
                                    const auto took = replay.play(plan);
                                    REQUIRE(took.ns >= bound.ns() - 1e-6);
                                    REQUIRE(took.up_bytes >= bound.links.at(0).up_bytes);
                                    REQUIRE(took.down_bytes >= bound.links.at(0).down_bytes);
                                    least = (std::min)(least, took.ns);
                                  }};
    every.visit();
    if (least > bound.compute_ns) near.add(bound.ns(), least);
  }
  CHECK(plans >= 20000);
  CHECK(near.ratios.size() >= 50);  // others are as fast as they compute
  CHECK(near.median() >= 0.5);
}

TEST_CASE("a bound is right at the edges of what a step can be", "[policy]") {
  const vtier::link_rates rates{1.0, 1.0};
  const auto bytes = [&](const vtier::step_trace& trace, std::size_t budget) {
    const auto l = vtier::lower_bound(trace, {{budget, 0}, {rates}}).links.at(0);
    return std::vector<double>{l.up_bytes, l.down_bytes};
  };
  using pair = std::vector<double>;
  SECTION("nothing fits beside a lease") {
    CHECK(bytes(scan(3, vtier::access::read_write), 100) == pair{300.0, 300.0});
    CHECK(bytes(scan(3, vtier::access::read), 100) == pair{300.0, 0.0});
    CHECK(bytes(scan(3, vtier::access::write), 100) == pair{0.0, 300.0});
  }
  SECTION("tensors without bytes") {
    auto trace = scan(3, vtier::access::read_write);
    for (auto& t : trace.tensors) t.size_bytes = 0;
    CHECK(bytes(trace, 0) == pair{0.0, 0.0});
    CHECK(vtier::lower_bound(trace, {{0, 0}, {rates}}).ns() == 30.0);
    trace.tensors.push_back({100, vtier::role::parameter, false});  // that nobody uses
    CHECK(bytes(trace, 0) == pair{0.0, 0.0});
  }
  SECTION("a tensor that is only written, beside one that is only read") {
    auto trace = scan(2, vtier::access::read);
    trace.leases[0].mode = vtier::access::write;
    CHECK(bytes(trace, 200) == pair{0.0, 0.0});
    CHECK(bytes(trace, 100) == pair{100.0, 100.0});
    trace.tensors[0].born = true;  // what nobody reads need not go down
    CHECK(bytes(trace, 100) == pair{100.0, 0.0});
  }
  SECTION("no lease") {
    vtier::step_trace trace;
    trace.tensors.push_back({100, vtier::role::parameter, false});
    trace.duration_ns = 70;
    CHECK(bytes(trace, 0) == pair{0.0, 0.0});
    CHECK(vtier::lower_bound(trace, {{0, 0}, {rates}}).ns() == 70.0);
  }
  SECTION("budgets that are larger than any machine, alone and in sum") {
    const std::size_t most = (std::numeric_limits<std::size_t>::max)();
    CHECK(bytes(scan(5, vtier::access::read_write), most) == pair{0.0, 0.0});
    const auto bound = vtier::lower_bound(scan(5, vtier::access::read_write), {{most, most, 0}, {rates, rates}});
    CHECK(bound.ns() == 50.0);
    CHECK(bound.links.at(1).up_bytes == 0.0);
  }
}
