// SPDX-License-Identifier: Apache-2.0
#include <vtier/policy/placement.hpp>

#include <cstddef>
#include <vector>

#include <vtier/core/bytes.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;
using tiers = std::vector<std::size_t>;

namespace {

static_assert(vtier::placement_rule{}.allows(0) && vtier::placement_rule{}.allows(31));
static_assert(!vtier::placement_rule{}.allows(32));  // and not bit 32 % 32
static_assert(!vtier::placement_rule{.allowed_tiers = 0b101}.allows(1));
static_assert(vtier::placement_rule{.allowed_tiers = 0b101}.allows(2));
static_assert(!vtier::placement_rule{.allowed_tiers = 0}.allows(0));

}  // namespace

TEST_CASE("each role has a rule of its own, everywhere by default", "[policy][placement]") {
  vtier::placement place;
  for (const vtier::role what : vtier::all_roles) CHECK(place.of(what).allowed_tiers == ~0U);
  place.by_role[static_cast<std::size_t>(vtier::role::optimizer)].allowed_tiers = 0b110;
  CHECK_FALSE(place.of(vtier::role::optimizer).allows(0));
  CHECK(place.of(vtier::role::parameter).allows(0));
  CHECK(place.of(vtier::role::workspace).allows(0));
}

TEST_CASE("a tensor moves to tiers below that are allowed and large enough, nearest first", "[policy][placement]") {
  const std::vector<std::size_t> capacities{1_GiB, 4_GiB, 2_GiB, 8_TiB};
  CHECK(vtier::tiers_below(0, 1_GiB, {}, capacities) == tiers{1, 2, 3});
  CHECK(vtier::tiers_below(0, 4_GiB, {}, capacities) == tiers{1, 3});  // exactly full is possible
  CHECK(vtier::tiers_below(0, 4_GiB + 1, {}, capacities) == tiers{3});
  CHECK(vtier::tiers_below(1, 1_GiB, {}, capacities) == tiers{2, 3});
  CHECK(vtier::tiers_below(3, 1, {}, capacities).empty());
  CHECK(vtier::tiers_below(0, 9_TiB, {}, capacities).empty());
  CHECK(vtier::tiers_below(0, 1, {.allowed_tiers = 0b1001}, capacities) == tiers{3});
  CHECK(vtier::tiers_below(0, 1, {.allowed_tiers = 0b0001}, capacities).empty());
}
