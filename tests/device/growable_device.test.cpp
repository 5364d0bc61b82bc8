// SPDX-License-Identifier: Apache-2.0
// Memory that grows where it stands: the concepts, the contract on devices of the host, and what each refuses.

#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "contract/device_range.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/faulty_device.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/detail/range_steps.hpp>
#include <vtier/device/growable_device.hpp>
#include <vtier/device/host.hpp>
#include <vtier/device/sim.hpp>

namespace {

using namespace vtier::literals;

enum class lacks { nothing, noexcept_shrink, end };

template <lacks Variant>
struct range_of {
  std::byte* base() const;
  std::size_t size_bytes() const;
  std::size_t granule_bytes() const;
  std::size_t end_bytes() const requires(Variant != lacks::end);
  void grow(std::size_t);
  void shrink(std::size_t) noexcept(Variant != lacks::noexcept_shrink);
};

struct growing_device : vtier::host::device {
  using range = range_of<lacks::nothing>;
  std::optional<range> make_range(std::size_t, std::size_t) const;
};
struct growing_always : vtier::host::device {
  using range = range_of<lacks::nothing>;
  range make_range(std::size_t, std::size_t) const;
};

vtier::sim::device_options little() {
  vtier::sim::device_options o;
  o.memory_bytes = 16_KiB;
  return o;
}

static_assert(vtier::device_range<range_of<lacks::nothing>>);
static_assert(!vtier::device_range<range_of<lacks::noexcept_shrink>>);
static_assert(!vtier::device_range<range_of<lacks::end>>);
static_assert(vtier::growable_device<growing_device>);
static_assert(!vtier::growable_device<growing_always>);
static_assert(!vtier::growable_device<vtier::test::faulty_device>);
static_assert(vtier::device<vtier::test::faulty_device>);

}  // namespace

TEST_CASE("growable device: the contract on the host", "[device]") {
  const vtier::host::device on{{.memory_bytes = 8_MiB, .name = "little host"}};
  contract::device_range_contract(on);
  CHECK(on.memory().free_bytes == 8_MiB);
}

TEST_CASE("growable device: the contract on the simulated device, with no rule broken", "[device]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto machine = std::make_shared<vtier::sim::world>(seed);
    {
      const vtier::sim::device on{machine, little()};
      contract::device_range_contract(on);
    }
    machine->finish();
    CAPTURE(seed);
    CHECK(machine->violations().empty());
  }
}

TEST_CASE("growable device: steps are powers of two, the last one is shorter", "[device]") {
  using steps = vtier::detail::range_steps;
  const auto some = steps::of(10'000, 3000, 256);
  REQUIRE(some);
  CHECK(some->size_bytes == 10'240);
  CHECK(some->granule_bytes == 4096);
  CHECK(some->end_at(0) == 0);
  CHECK(some->end_at(1) == 4096);
  CHECK(some->end_at(4096) == 4096);
  CHECK(some->end_at(8193) == 10'240);
  CHECK(some->end_at(10'240) == 10'240);
  CHECK(steps::of(1, 0, 4096)->granule_bytes == 4096);
  CHECK(steps::of(5000, ~std::size_t{0}, 4096)->granule_bytes == 8192);
  CHECK_FALSE(steps::of(~std::size_t{0}, 0, 4096));
  CHECK_FALSE(steps::of((~std::size_t{0} >> 1U) + 1, 0, 4096));
  CHECK(vtier::test::in_child([&] { static_cast<void>(some->end_at(10'241)); }).asserted("shorter than that"));
  CHECK(vtier::test::in_child([&] { static_cast<void>(steps::of(0, 0, 256)); }).asserted("no bytes"));
}

TEST_CASE("growable device: on the host, bytes that do not exist fault, and new ones are zero", "[device]") {
  const vtier::host::device on{{.memory_bytes = 8_MiB, .name = "host"}};
  auto r = on.make_range(4_MiB, 64_KiB);
  REQUIRE(r);
  r->grow(128_KiB);
  auto* const p = reinterpret_cast<volatile unsigned char*>(r->base());
  p[128_KiB - 1] = 7;
  CHECK(vtier::test::in_child([&] { p[128_KiB] = 1; }).signal == SIGSEGV);
  r->shrink(64_KiB);
  CHECK(vtier::test::in_child([&] { p[128_KiB - 1] = 1; }).signal == SIGSEGV);
  CHECK(vtier::test::in_child([&] { p[64_KiB - 1] = 1; }).exit_status == 0);
  r->grow(128_KiB);
  CHECK(p[128_KiB - 1] == 0);
  CHECK_THROWS_AS(on.make_range(std::size_t{1} << 62U), vtier::out_of_memory);
  CHECK_THROWS_AS(on.make_range(~std::size_t{0}), vtier::out_of_memory);
}

TEST_CASE("growable device: a forked child neither changes a range nor gives it back", "[device]") {
  const vtier::host::device on{{.memory_bytes = 8_MiB, .name = "host"}};
  auto r = on.make_range(1_MiB, 64_KiB);
  REQUIRE(r);
  r->grow(128_KiB);
  *r->base() = std::byte{9};
  const auto end = vtier::test::in_child([&] {
    bool refused = false;
    try {
      r->grow(1_MiB);
    } catch (const vtier::usage_error&) {
      refused = true;
    }
    r->shrink(0);
    std::byte* const base = r->base();
    r.reset();
    return refused && *base == std::byte{9};
  });
  CHECK(end.exit_status == 0);
  CHECK(r->end_bytes() == 128_KiB);
}

TEST_CASE("growable device: the simulation tells of bytes behind the end and of work that is not over", "[device]") {
  const auto violations = [](auto&& act) {
    const auto machine = std::make_shared<vtier::sim::world>(3);
    const vtier::sim::device on{machine, little()};
    const auto s = on.make_stream();
    auto r = on.make_range(16_KiB, 4_KiB);
    r->grow(8_KiB);
    act(on, s, *r);
    on.synchronize(s);
    std::string all;
    for (const auto& v : machine->violations()) all += v + "\n";
    return all;
  };
  using range = vtier::sim::device::range;
  const auto fill = [](const auto& on, const auto& s, std::byte* at, std::size_t n) {
    on.fill(s, at, std::byte{1}, n);
  };
  CHECK(violations([&](const auto& on, const auto& s, range& r) { fill(on, s, r.base(), 8_KiB); }).empty());
  CHECK(violations([&](const auto& on, const auto& s, range& r) {
          fill(on, s, r.base(), 8_KiB + 1);
        }).find("beyond the end") != std::string::npos);
  CHECK(violations([&](const auto& on, const auto& s, range& r) {
          fill(on, s, r.base() + 8_KiB, 256);
        }).find("not allocated") != std::string::npos);
  const auto early = violations([&](const auto& on, const auto& s, range& r) {
    fill(on, s, r.base() + 4_KiB, 256);
    r.shrink(4_KiB);
  });
  CAPTURE(early);
  const bool told = early.find("a race") != std::string::npos || early.find("not allocated") != std::string::npos;
  CHECK(told);
}

TEST_CASE("growable device: memory that the simulation refuses is refused whole", "[device]") {
  const auto machine = std::make_shared<vtier::sim::world>(1);
  const vtier::sim::device on{machine, little()};
  auto r = on.make_range(8_KiB, 4_KiB);
  r->grow(4_KiB);
  machine->fail_at(vtier::sim::fault::device_memory, 1);
  CHECK_THROWS_AS(r->grow(8_KiB), vtier::out_of_memory);
  CHECK(r->end_bytes() == 4_KiB);
  r->grow(8_KiB);
  CHECK(on.memory().free_bytes == 8_KiB);
  CHECK_THROWS_AS(on.allocate(12_KiB), vtier::out_of_memory);  // the range has it, though no block does
}
