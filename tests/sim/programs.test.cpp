// SPDX-License-Identifier: Apache-2.0
// Random programs on the simulated machine: orders of events and faults that nobody would think of.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/program.hpp"
#include "support/catch.hpp"
#include "support/sim_hierarchy.hpp"

namespace {

using vtier::sim::fault;
using vtier::test::program;
using vtier::test::program_of;
using vtier::test::program_options;
using vtier::test::program_result;

program_result run(std::uint64_t seed, const program_options& how) {
  const auto bytes = program_of(seed);
  return program{bytes, how}.run();
}

std::string first_of(const program_result& result) {
  return result.violations.empty() ? std::string{} : result.violations.front();
}

}  // namespace

TEST_CASE("programs break no rule, whatever the order of events", "[sim]") {
  std::size_t operations = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const auto result = run(seed, {.seed = seed});
    operations += result.operations;
    CAPTURE(seed);
    REQUIRE(first_of(result).empty());
  }
  CHECK(operations > 20'000);
}

TEST_CASE("seeds that once found something", "[sim]") {
  for (const std::uint64_t seed : {55U,    64U,    71U,    85U,    142U,   447U,   1046U,  3590U,   14957U,  20566U,
                                   37943U, 41494U, 61039U, 69830U, 71365U, 92347U, 94568U, 132895U, 184558U, 328438U}) {
    const auto result = run(seed, {.seed = seed, .reserves = false, .deadlines = false});
    CAPTURE(seed);
    CHECK(first_of(result).empty());
  }
  for (const std::uint64_t seed : {1575U, 100853U}) {  // with reservations and watermarks
    const auto result = run(seed, {.seed = seed, .reserves = true, .deadlines = false});
    CAPTURE(seed);
    CHECK(first_of(result).empty());
  }
}

TEST_CASE("one program in many orders of events", "[sim]") {
  for (const std::uint64_t seed : {3U, 11U, 21U, 32U}) {
    for (std::uint64_t order = 1; order <= 250; ++order) {
      const auto result = run(seed, {.seed = order, .fault_share = 0.0});
      CAPTURE(seed, order);
      REQUIRE(first_of(result).empty());
    }
  }
}

TEST_CASE("the same seed gives the same order of events (invariant 8)", "[sim]") {
  std::size_t different = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto once = run(seed, {.seed = seed, .logs = true});
    const auto again = run(seed, {.seed = seed, .logs = true});
    CAPTURE(seed);
    REQUIRE(once.events == again.events);
    if (run(seed, {.seed = seed + 1000, .logs = true}).events != once.events) ++different;
  }
  CHECK(different > 40);  // and another seed another one
}

TEST_CASE("each occasion of each fault in turn: a clear error or success, and everything goes on", "[sim]") {
  std::size_t struck = 0;
  std::vector<std::size_t> by_kind(vtier::sim::fault_count);
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const auto sound = run(seed, {.seed = seed, .fault_share = 0.0});
    CAPTURE(seed);
    REQUIRE(first_of(sound).empty());
    for (std::size_t kind = 0; kind < vtier::sim::fault_count; ++kind) {
      const std::uint64_t occasions = (std::min)(sound.occasions[kind], std::uint64_t{20});
      for (std::uint64_t nth = 1; nth <= occasions; ++nth) {
        const auto what = static_cast<fault>(kind);
        const auto result = run(seed, {.seed = seed, .fault = what, .fault_nth = nth});
        CAPTURE(vtier::sim::name(what), nth);
        REQUIRE(first_of(result).empty());
        if (result.faults > 0) {
          ++struck;
          ++by_kind[kind];
        }
      }
    }
  }
  CHECK(struck > 1500);
  for (std::size_t kind = 0; kind < vtier::sim::fault_count; ++kind) {
    CAPTURE(vtier::sim::name(static_cast<fault>(kind)));
    CHECK(by_kind[kind] > 0);
  }
}

TEST_CASE("many faults at once", "[sim]") {
  for (const double share : {0.02, 0.1, 0.3}) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      const auto result = run(seed, {.seed = seed, .fault_share = share});
      CAPTURE(share, seed);
      REQUIRE(first_of(result).empty());
    }
  }
}
