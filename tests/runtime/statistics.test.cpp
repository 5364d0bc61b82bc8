// SPDX-License-Identifier: Apache-2.0
#include <vtier/runtime/statistics.hpp>

#include <cstddef>
#include <type_traits>

#include "support/catch.hpp"

static_assert(std::is_copy_constructible_v<vtier::statistics>);
static_assert(std::is_nothrow_move_constructible_v<vtier::statistics>);

TEST_CASE("everything counts from zero", "[runtime][statistics]") {
  const vtier::statistics s;
  CHECK((s.tiers.empty() && s.links.empty() && s.notes.empty() && s.errors.empty()));
  CHECK((s.tensor_count == 0 && s.tensor_bytes == 0 && s.tensor_peak_bytes == 0 && s.staging_bytes == 0));
  CHECK((s.step_count == 0 && s.step_ns == 0 && s.lease_count == 0 && s.hit_count == 0));
  CHECK((s.prefetch_hit_count == 0 && s.prefetch_dropped_count == 0 && s.clean_drop_count == 0));
  CHECK((s.blocked_ns == 0 && s.blocked_fetch_ns == 0 && s.blocked_room_ns == 0));
  const vtier::tier_statistics t;
  for (const std::size_t bytes : t.role_bytes) CHECK(bytes == 0);
  for (const std::size_t bytes : t.role_peak_bytes) CHECK(bytes == 0);
}
