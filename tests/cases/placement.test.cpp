// SPDX-License-Identifier: Apache-2.0
// Where tensors may be and where they find room: rules of their own, tiers in pieces, promises.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/host_hierarchy.hpp"
#include "support/tensors.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/runtime/hierarchy.hpp>

namespace {

using namespace vtier::literals;
using vtier::placement_rule;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

vtier::options quiet() {
  vtier::options o;
  o.progress_thread = false;
  return o;
}

template <class Hierarchy>
std::size_t used(const Hierarchy& mem, std::size_t tier) {
  const auto counted = mem.count();
  return counted.tiers[tier].used_bytes;
}

}  // namespace

TEST_CASE("leases are where the rule allows, and the refusal says so", "[cases]") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::numa{{.budget = 64_KiB, .name = "dram"}}, quiet()};
  auto t = mem.make_tensor<std::uint8_t>({1000}, role::optimizer, placement_rule{0b10});
  try {
    static_cast<void>(t.write(s));
    FAIL("nothing was thrown");
  } catch (const vtier::usage_error& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(text.find("may not live in hbm") != std::string::npos);
    CHECK(text.find("on_host") != std::string::npos);
  }
  {
    auto lease = t.write(vtier::on_host);
    for (auto& b : lease.span()) b = 7;
  }
  mem.prefetch(t, 0);  // a hint against the rule does nothing
  static_cast<void>(mem.poll());
  CHECK(used(mem, 0) == 0);
  auto fast = mem.make_tensor<std::uint8_t>({1000}, role::optimizer, placement_rule{0b01});
  CHECK_THROWS_AS(fast.write(vtier::on_host), vtier::usage_error);
  auto nothing = mem.make_tensor<std::uint8_t>({0}, role::optimizer, placement_rule{0b01});
  CHECK(nothing.write(vtier::on_host).size() == 0);
}

TEST_CASE("the host reads where the bytes are already", "[cases]") {
  const vtier::host::device on;
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::numa{{.budget = 64_KiB, .name = "near"}},
                       vtier::numa{{.budget = 64_KiB, .name = "far"}}, quiet()};
  auto t = mem.make_tensor<std::uint8_t>({1000}, role::parameter);
  { t.write(vtier::on_host).span()[5] = 9; }
  CHECK(used(mem, 1) > 0);
  mem.flush(t);
  mem.evict(t, 1);
  static_cast<void>(mem.poll());
  REQUIRE(used(mem, 1) == 0);
  CHECK(t.read(vtier::on_host).span()[5] == 9);
  CHECK(used(mem, 1) == 0);  // nothing has moved
}

TEST_CASE("what can live in one tier only has its place from the beginning", "[cases]") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::numa{{.budget = 256_KiB, .name = "dram"}}, quiet()};
  auto visitor = mem.make_tensor<std::uint8_t>({40_KiB}, role::parameter);
  fill(on, s, visitor, 1);
  auto resident = mem.make_tensor<std::uint8_t>({20_KiB}, role::workspace, placement_rule{0b01});
  CHECK(used(mem, 0) == 60_KiB);
  mem.evict(resident);
  static_cast<void>(mem.poll());
  CHECK(used(mem, 0) == 60_KiB);
  fill(on, s, resident, 2);
  mem.evict(resident);
  static_cast<void>(mem.poll());
  CHECK(differences(on, s, resident, 2) == 0);
  CHECK(differences(on, s, visitor, 1) == 0);
  // Another one leaves no room for the visitor: whoever asks for that says so.
  const auto more = mem.make_tensor<std::uint8_t>({8_KiB}, role::workspace, placement_rule{0b01});
  try {
    static_cast<void>(visitor.read(s));
    FAIL("nothing was thrown");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(text.find("hbm") != std::string::npos);
    CHECK(text.find("28 KiB are tensors that may live nowhere else") != std::string::npos);
  }
}

TEST_CASE("a host tier in pieces moves its blocks together before it refuses", "[cases]") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  // Two tiers with room for six of 16 KiB between them, and one more to exchange.
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 32_KiB}}, vtier::numa{{.budget = 96_KiB, .name = "dram"}}, quiet()};
  using tensor = decltype(mem)::tensor<std::uint8_t>;
  std::vector<std::optional<tensor>> small;
  for (std::uint64_t i = 0; i < 12; ++i) {
    small.emplace_back(mem.make_tensor<std::uint8_t>({8_KiB}, role::parameter));
    fill(on, s, *small.back(), i);
  }
  for (std::size_t i = 1; i < 12; i += 2) small[i].reset();  // holes everywhere
  auto large = mem.make_tensor<std::uint8_t>({24_KiB}, role::parameter);
  auto other = mem.make_tensor<std::uint8_t>({24_KiB}, role::parameter);
  for (std::uint64_t round = 0; round < 4; ++round) {
    fill(on, s, large, 100 + round);
    fill(on, s, other, 200 + round);
    CHECK(differences(on, s, large, 100 + round) == 0);
    CHECK(differences(on, s, other, 200 + round) == 0);
    for (std::uint64_t i = 0; i < 12; i += 2) CHECK(differences(on, s, *small[i], i) == 0);
  }
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("what stays in the device's tier makes way for what comes and goes", "[cases]") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::numa{{.budget = 256_KiB, .name = "dram"}}, quiet()};
  auto above = mem.make_tensor<std::uint8_t>({24_KiB}, role::workspace, placement_rule{0b01});
  auto stays = mem.make_tensor<std::uint8_t>({12_KiB}, role::workspace, placement_rule{0b01});
  fill(on, s, stays, 3);
  { auto gone = std::move(above); }  // what stays is now in the midst of the tier
  auto large = mem.make_tensor<std::uint8_t>({50_KiB}, role::parameter);
  fill(on, s, large, 4);
  CHECK(differences(on, s, stays, 3) == 0);
  CHECK(differences(on, s, large, 4) == 0);
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("without a thread, things move when they are polled", "[cases]") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::numa{{.budget = 64_KiB, .name = "dram"}}, quiet()};
  auto t = mem.make_tensor<std::uint8_t>({1000}, role::parameter);
  fill(on, s, t, 1);
  CHECK_FALSE(mem.poll());  // nothing to do
  mem.evict(t);
  static_cast<void>(mem.poll());
  CHECK(used(mem, 0) == 0);
  CHECK(used(mem, 1) > 0);
  CHECK(differences(on, s, t, 1) == 0);
}
