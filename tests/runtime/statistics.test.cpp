// SPDX-License-Identifier: Apache-2.0
#include <vtier/runtime/statistics.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

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
  CHECK((s.blocked_reserve_ns == 0 && s.blocked_flush_ns == 0 && s.blocked_events_ns == 0));
  CHECK((s.prefetched_bytes == 0 && s.prefetch_unused_bytes == 0 && s.schedules.empty()));
  const vtier::tier_statistics t;
  for (const std::size_t bytes : t.role_bytes) CHECK(bytes == 0);
  for (const std::size_t bytes : t.role_peak_bytes) CHECK(bytes == 0);
}

namespace {

// Statistics in which each number is another one.
vtier::statistics numbered(std::uint64_t factor) {
  std::uint64_t last = 0;
  const auto next = [&] { return ++last * factor; };
  const auto next_ns = [&] { return static_cast<std::int64_t>(next()); };
  vtier::statistics s;
  for (const std::size_t from : {1U, 2U}) {
    vtier::link_statistics l;
    l.name = "link";
    l.from = from;
    l.moved_bytes = next();
    l.transfer_count = next();
    for (auto& bytes : l.role_moved_bytes) bytes = next();
    l.swapped_bytes = next();
    for (auto& bytes : l.role_swapped_bytes) bytes = next();
    l.swapped_step_count = next();
    l.busy_ns = next_ns();
    l.limit_bytes_per_ns = 2.5;
    s.links.push_back(l);
  }
  for (const char* name : {"train", "evaluate"}) {
    vtier::schedule_statistics one;
    one.name = name;
    one.step_count = next();
    one.deviation_count = next();
    one.last_step_ns = one.bound_ns = 7;
    s.schedules.push_back(one);
  }
  s.step_count = next();
  s.step_ns = next_ns();
  s.lease_count = next();
  s.hit_count = next();
  s.prefetch_hit_count = next();
  s.prefetch_dropped_count = next();
  s.prefetched_bytes = next();
  s.prefetch_unused_bytes = next();
  s.clean_drop_count = next();
  s.evicted_ahead_bytes = next();
  s.reservation_count = next();
  s.blocked_ns = next_ns();
  s.blocked_fetch_ns = next_ns();
  s.blocked_room_ns = next_ns();
  s.blocked_reserve_ns = next_ns();
  s.blocked_flush_ns = next_ns();
  s.blocked_events_ns = next_ns();
  return s;
}

// The numbers that numbered() makes, in its order.
std::vector<std::int64_t> numbers(const vtier::statistics& s) {
  std::vector<std::int64_t> result;
  const auto add = [&](auto number) { result.push_back(static_cast<std::int64_t>(number)); };
  for (const auto& l : s.links) {
    add(l.moved_bytes);
    add(l.transfer_count);
    for (const auto bytes : l.role_moved_bytes) add(bytes);
    add(l.swapped_bytes);
    for (const auto bytes : l.role_swapped_bytes) add(bytes);
    add(l.swapped_step_count);
    add(l.busy_ns);
  }
  for (const auto& one : s.schedules) {
    add(one.step_count);
    add(one.deviation_count);
  }
  for (const std::uint64_t count : {s.step_count, static_cast<std::uint64_t>(s.step_ns), s.lease_count, s.hit_count,
                                    s.prefetch_hit_count, s.prefetch_dropped_count}) {
    add(count);
  }
  add(s.prefetched_bytes);
  add(s.prefetch_unused_bytes);
  add(s.clean_drop_count);
  add(s.evicted_ahead_bytes);
  add(s.reservation_count);
  for (const std::int64_t ns : {s.blocked_ns, s.blocked_fetch_ns, s.blocked_room_ns, s.blocked_reserve_ns,
                                s.blocked_flush_ns, s.blocked_events_ns}) {
    add(ns);
  }
  return result;
}

}  // namespace

TEST_CASE("between two moments, every counter is a difference", "[runtime][statistics]") {
  const auto since = vtier::counted_since(numbered(2), numbered(5));
  CHECK(numbers(since) == numbers(numbered(3)));
  CHECK(since.links[1].limit_bytes_per_ns == 2.5);
  CHECK(since.schedules[0].last_step_ns == 7);
  CHECK(numbers(vtier::counted_since({}, numbered(5))) == numbers(numbered(5)));
  // Of another hierarchy: nothing wraps.
  for (const auto number : numbers(vtier::counted_since(numbered(5), numbered(2)))) CHECK(number == 0);
}

TEST_CASE("between two moments, what describes a moment is as it is now", "[runtime][statistics]") {
  vtier::statistics before;
  before.errors = {"first"};
  before.tensor_bytes = 10;
  before.notes = {"a note"};
  vtier::statistics now = before;
  now.errors = {"first", "second", "third"};
  now.tiers.resize(2);
  now.tiers[0].used_bytes = 7;
  now.leased.resize(1);
  now.tensor_bytes = 12;
  now.tensor_peak_bytes = 20;
  const auto since = vtier::counted_since(before, now);
  CHECK(since.errors == std::vector<std::string>{"second", "third"});
  CHECK(since.notes == std::vector<std::string>{"a note"});
  CHECK((since.tiers.size() == 2 && since.tiers[0].used_bytes == 7));
  CHECK((since.leased.size() == 1 && since.tensor_bytes == 12 && since.tensor_peak_bytes == 20));
  CHECK(vtier::counted_since(now, before).errors.empty());
}
