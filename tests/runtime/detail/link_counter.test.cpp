// SPDX-License-Identifier: Apache-2.0
#include <vtier/runtime/detail/link_counter.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/numbered_event.hpp"

namespace {

using vtier::role;
using vtier::detail::link_counter;
using block = vtier::block<vtier::test::numbered_event>;

// A block of 100 bytes whose newest content, version 1, is in tier 1.
block written(role what = role::parameter) {
  block b{1, what, 100, 3};
  b.in(1).place(0, 256, {});
  b.begin_lease(1, vtier::access::write, 1);
  b.end_lease(1, vtier::access::write, std::nullopt);
  return b;
}

}  // namespace

TEST_CASE("bytes are counted in all and by role", "[runtime][link_counter]") {
  link_counter link;
  link.start(written(), 1, 0, 0);
  link.start(written(role::activation), 1, 0, 0);
  link.start(written(role::activation), 1, 0, 0);
  const auto sums = link.at(0);
  CHECK(sums.moved_bytes == 300);
  CHECK(sums.transfer_count == 3);
  CHECK(sums.role_moved_bytes[static_cast<std::size_t>(role::parameter)] == 100);
  CHECK(sums.role_moved_bytes[static_cast<std::size_t>(role::activation)] == 200);
  CHECK(sums.swapped_bytes == 0);  // tier 0 never had them
  CHECK(sums.swapped_step_count == 0);
}

TEST_CASE("bytes come back where the tier let the same content go, in this step or the one before",
          "[runtime][link_counter]") {
  const auto swapped = [](const block& b, std::size_t from, std::size_t to, std::uint64_t step) {
    link_counter link;
    link.start(b, from, to, step);
    return link.at(0).swapped_bytes;
  };
  block b = written(role::optimizer);
  b.in(0).leave(1, 7);
  CHECK(swapped(b, 1, 0, 7) == 100);
  CHECK(swapped(b, 1, 0, 8) == 100);
  CHECK(swapped(b, 1, 0, 9) == 0);  // too long ago
  b.in(0).leave(2, 7);
  CHECK(swapped(b, 1, 0, 7) == 0);  // written since
  b.in(2).leave(1, 7);
  CHECK(swapped(b, 1, 2, 7) == 0);  // down is no way back
}

TEST_CASE("steps in which bytes come back are counted once each", "[runtime][link_counter]") {
  link_counter link;
  block b = written(role::optimizer);
  for (const std::uint64_t step : {0U, 0U, 1U, 4U, 4U}) {
    b.in(0).leave(1, step);
    link.start(b, 1, 0, step);
  }
  const auto sums = link.at(0);
  CHECK(sums.swapped_bytes == 500);
  CHECK(sums.role_swapped_bytes[static_cast<std::size_t>(role::optimizer)] == 500);
  CHECK(sums.swapped_step_count == 3);
}

TEST_CASE("a link is busy from the first transfer to the last, what is in flight included", "[runtime][link_counter]") {
  link_counter link;
  CHECK(link.at(1000).busy_ns == 0);
  link.begin(100);
  CHECK(link.at(130).busy_ns == 30);
  link.begin(150);
  link.end(200);
  CHECK(link.at(210).busy_ns == 110);
  link.end(300);
  CHECK(link.at(900).busy_ns == 200);
  link.begin(1000);
  link.end(1005);
  CHECK(link.at(2000).busy_ns == 205);
  link.begin(3000);
  CHECK(link.at(2990).busy_ns == 205);  // a clock that is not of this world takes nothing away
  link.end(2990);
  CHECK(link.at(4000).busy_ns == 205);
}

TEST_CASE("an end without a begin is a programmer's error", "[runtime][link_counter]") {
  CHECK(vtier::test::in_child([] { link_counter{}.end(1); }).asserted("none in flight"));
}
