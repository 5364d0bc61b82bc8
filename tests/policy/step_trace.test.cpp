// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <vtier/policy/step_trace.hpp>

#include "support/catch.hpp"

namespace {

// One tensor written, then read twice at once.
vtier::step_trace small() {
  vtier::step_trace t;
  t.tensors = {{100, vtier::role::activation, true}};
  t.leases = {{0, vtier::access::write, 0, 1}, {0, vtier::access::read, 2, 4}, {0, vtier::access::read, 3, 5}};
  t.moment_ns = {0, 10, 10, 10, 30, 40};
  t.duration_ns = 50;
  return t;
}

}  // namespace

TEST_CASE("a step without fault has none, an empty one neither", "[policy]") {
  CHECK(small().fault().empty());
  CHECK(vtier::step_trace{}.fault().empty());
}

TEST_CASE("what is wrong with a step is said in words", "[policy]") {
  const auto said = [](auto&& change) {
    vtier::step_trace t = small();
    change(t);
    return t.fault();
  };
  CHECK(said([](auto& t) { t.moment_ns.pop_back(); }).find("one moment") != std::string::npos);
  CHECK(said([](auto& t) { t.leases[1].tensor = 7; }).find("names a tensor") != std::string::npos);
  CHECK(said([](auto& t) { t.leases[1].end = 2; }).find("does not end") != std::string::npos);
  CHECK(said([](auto& t) { t.leases[2].end = 6; }).find("does not end") != std::string::npos);
  CHECK(said([](auto& t) { std::swap(t.leases[1], t.leases[2]); }).find("out of order") != std::string::npos);
  CHECK(said([](auto& t) { t.leases[2].end = 4; }).find("shares a moment") != std::string::npos);
  CHECK(said([](auto& t) { t.leases[2].mode = vtier::access::write; }).find("writes beside") != std::string::npos);
  CHECK(said([](auto& t) { t.leases[0].mode = vtier::access::read; }).find("before it was written") !=
        std::string::npos);
  CHECK(said([](auto& t) { t.moment_ns[3] = 5; }).find("backwards") != std::string::npos);
  CHECK(said([](auto& t) { t.duration_ns = 39; }).find("before its last moment") != std::string::npos);
  CHECK(said([](auto& t) {
          t.tensors.push_back({std::numeric_limits<std::size_t>::max(), {}, false});
        }).find("64 bits") != std::string::npos);
}

TEST_CASE("limits that cannot work are told, a link without bandwidth among them", "[policy]") {
  CHECK(vtier::step_limits{{10, 20}, {{1.0, 1.0}}}.fault().empty());
  CHECK_FALSE(vtier::step_limits{{10}, {}}.fault().empty());
  CHECK_FALSE(vtier::step_limits{{10, 20}, {}}.fault().empty());
  CHECK(vtier::step_limits{{10, 20}, {{0.0, 1.0}}}.fault().find("bandwidth of zero") != std::string::npos);
  CHECK_FALSE(vtier::step_limits{{10, 20}, {{1.0, std::numeric_limits<double>::quiet_NaN()}}}.fault().empty());
}
