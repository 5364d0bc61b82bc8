// SPDX-License-Identifier: Apache-2.0
#include <vtier/policy/fit.hpp>

#include <cstddef>
#include <string>

#include <vtier/core/error.hpp>

#include "support/catch.hpp"

namespace {

using vtier::access;
using vtier::role;

// Two tensors under lease at once, a third of the step's own beside them, and one alone.
vtier::step_trace small() {
  vtier::step_trace t;
  t.tensors = {{100, role::parameter, false}, {50, role::optimizer, false}, {30, role::activation, true}};
  t.leases = {{0, access::read, 0, 4}, {2, access::write, 1, 3}, {2, access::read, 2, 5}, {1, access::read, 6, 7}};
  t.moment_ns = {0, 1, 2, 3, 4, 5, 6, 7};
  t.duration_ns = 8;
  return t;
}

}  // namespace

TEST_CASE("what a step needs is counted once for each tensor", "[fit]") {
  const auto trace = [] {
    auto t = small();
    t.leases[2].begin = 3;  // the write ends first
    t.leases[1].end = 2;
    return t;
  }();
  const auto fit = vtier::fit_of(trace, {130, 1000});
  CHECK(fit.fits());
  CHECK(fit.leased_peak_bytes == 130);
  CHECK(fit.leased_peak_moment == 1);
  CHECK(fit.tensor_peak_bytes == 180);
  CHECK(fit.text.find("the step fits") == 0);
}

TEST_CASE("what is short is said in bytes and words", "[fit]") {
  auto trace = small();
  trace.leases[2].begin = 3;
  trace.leases[1].end = 2;
  const auto narrow = vtier::fit_of(trace, {129, 1000});
  CHECK_FALSE(narrow.fits());
  CHECK(narrow.first_short_bytes == 1);
  CHECK(narrow.total_short_bytes == 0);
  CHECK(narrow.text.find("leases 130 B at once, 1 B more than the first tier's 129 B") != std::string::npos);
  CHECK(narrow.text.find("smaller batch") != std::string::npos);
  const auto small_machine = vtier::fit_of(trace, {130, 40});
  CHECK(small_machine.first_short_bytes == 0);
  CHECK(small_machine.total_short_bytes == 10);
  CHECK(small_machine.text.find("180 B, 10 B more than all tiers hold") != std::string::npos);
  const auto neither = vtier::fit_of(trace, {60, 40});
  CHECK(neither.first_short_bytes == 70);
  CHECK(neither.total_short_bytes == 80);
}

TEST_CASE("a step without leases fits everywhere, one with a fault nowhere", "[fit]") {
  CHECK(vtier::fit_of(vtier::step_trace{}, {0}).fits());
  CHECK_THROWS_AS(vtier::fit_of(small(), {}), vtier::usage_error);
  auto wrong = small();
  wrong.leases[0].tensor = 9;
  CHECK_THROWS_AS(vtier::fit_of(wrong, {1000}), vtier::usage_error);
}
