// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/resource_ref.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/allocator.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;
using vtier::host_resource_ref;

// Kinds stay apart.
static_assert(std::is_constructible_v<host_resource_ref, vtier::numa>);
static_assert(!std::is_convertible_v<vtier::numa, host_resource_ref>);
static_assert(!std::is_constructible_v<host_resource_ref, vtier::hbm<device>>);
static_assert(!std::is_constructible_v<host_resource_ref, vtier::mapped_file>);
static_assert(!std::is_constructible_v<host_resource_ref, vtier::device_resource_ref>);
static_assert(!std::is_constructible_v<host_resource_ref, int>);
static_assert(std::is_nothrow_copy_constructible_v<host_resource_ref>);
static_assert(sizeof(host_resource_ref) == 2 * sizeof(void*));
static_assert(!vtier::stream_ordered_resource<vtier::device_resource_ref>);
static_assert(vtier::resource<vtier::limited<host_resource_ref>>);

// Two types without a difference but their names: whoever compares them as one type finds them equal.
template <int>
struct stateless {
  static constexpr vtier::memory_kind kind = vtier::memory_kind::host;
  [[nodiscard]] void* allocate(std::size_t, std::size_t) const { return nullptr; }
  void deallocate(void*, std::size_t, std::size_t) const noexcept {}
  [[nodiscard]] vtier::slab make_slab() const { return {{}, nullptr}; }
  [[nodiscard]] std::string name() const { return "stateless"; }
  [[nodiscard]] std::size_t free_bytes() const { return 0; }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }
  friend bool operator==(const stateless&, const stateless&) { return true; }
};

std::size_t edge(const host_resource_ref& memory) { return memory.free_bytes(); }

}  // namespace

TEST_CASE("a resource whose type is forgotten is a resource", "[memory][resource_ref]") {
  SECTION("host") {
    const auto make = [](std::size_t budget) { return host_resource_ref{vtier::numa{{.budget = budget}}}; };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
  }
  SECTION("file") {
    const vtier::test::scratch_directory directory;
    const auto make = [&](std::size_t budget) {
      return vtier::resource_ref{vtier::mapped_file{directory.path(), {.budget = budget}}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  }
  SECTION("device, under an adaptor") {
    const device on;
    const auto make = [&](std::size_t budget) {
      return vtier::limited{vtier::resource_ref{vtier::hbm<device>{on, {.budget = budget}}}, {.budget = budget}};
    };
    vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 1);
  }
}

TEST_CASE("references compare as what is behind them", "[memory][resource_ref]") {
  const vtier::numa memory{{.budget = 1_MiB, .name = "dram"}};
  const host_resource_ref first{memory};
  const host_resource_ref second{memory};
  CHECK(first == second);
  CHECK(first != host_resource_ref{vtier::numa{{.budget = 1_MiB}}});
  CHECK(first != host_resource_ref{vtier::pinned{{.budget = 1_MiB}}});
  CHECK(host_resource_ref{stateless<1>{}} == host_resource_ref{stateless<1>{}});
  CHECK(host_resource_ref{stateless<1>{}} != host_resource_ref{stateless<2>{}});
  CHECK(edge(host_resource_ref{memory}) == 1_MiB);
  void* const p = first.allocate(4096, 16);
  second.deallocate(p, 4096, 16);
  auto moved = first;
  const host_resource_ref target = std::move(moved);
  CHECK(moved == target);  // NOLINT: a handle that was moved from is still one
  CHECK(first.name() == "dram");
}

TEST_CASE("a reference keeps its resource alive", "[memory][resource_ref]") {
  std::optional<host_resource_ref> memory;
  {
    const vtier::pool pool{vtier::numa{{.budget = 1_MiB}}};
    memory.emplace(pool);
  }
  std::vector<int, vtier::allocator<int, host_resource_ref>> v(1'000, 3, *memory);
  memory.reset();
  v.resize(2'000, 4);
  CHECK((v.front() == 3 && v.back() == 4));
}
