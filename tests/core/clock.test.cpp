// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/clock.hpp>

#include <cstdint>

#include "support/catch.hpp"

namespace {

struct stopped_clock {
  [[nodiscard]] std::int64_t now_ns() const { return 7; }
};
struct no_clock {};
struct clock_of_doubles {
  [[nodiscard]] double now_ns() const { return 0.0; }
};
struct clock_that_changes {
  std::int64_t now_ns() { return ++now; }
  std::int64_t now = 0;
};

static_assert(vtier::clock_source<vtier::steady_clock>);
static_assert(vtier::clock_source<stopped_clock>);
static_assert(!vtier::clock_source<no_clock>);
static_assert(!vtier::clock_source<clock_of_doubles>);
static_assert(!vtier::clock_source<clock_that_changes>);
static_assert(!vtier::clock_source<int>);

}  // namespace

TEST_CASE("the steady clock never goes back and moves on", "[core][clock]") {
  const vtier::steady_clock clock;
  const std::int64_t first = clock.now_ns();
  std::int64_t last = first;
  while (last == first) {
    const std::int64_t now = clock.now_ns();
    REQUIRE(now >= last);
    last = now;
  }
  CHECK(last > first);
}

TEST_CASE("a sleep lasts at least so long, and none for nothing", "[core]") {
  const vtier::steady_clock clock;
  const std::int64_t before = clock.now_ns();
  vtier::sleep_for_ns(2'000'000);
  CHECK(clock.now_ns() - before >= 2'000'000);
  vtier::sleep_for_ns(0);
  vtier::sleep_for_ns(-1);
}
