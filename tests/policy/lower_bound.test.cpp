// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>

#include <vtier/core/error.hpp>
#include <vtier/policy/lower_bound.hpp>

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
