// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/resource.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pool.hpp>

#include "support/catch.hpp"

namespace {

using device_memory = vtier::hbm<vtier::host::device>;

static_assert(vtier::resource<device_memory> && !vtier::host_resource<device_memory>);
static_assert(vtier::host_resource<vtier::pinned>);
static_assert(vtier::host_resource<vtier::numa>);
static_assert(vtier::host_resource<vtier::mapped_file>);
static_assert(vtier::host_resource<vtier::pool<vtier::pinned>>);
static_assert(vtier::resource<vtier::pool<device_memory>> && !vtier::host_resource<vtier::pool<device_memory>>);

// The least that is a resource, and what is not one by a single difference each.
struct least {
  static constexpr vtier::memory_kind kind = vtier::memory_kind::host;
  [[nodiscard]] void* allocate(std::size_t, std::size_t) const { return nullptr; }
  void deallocate(void*, std::size_t, std::size_t) const noexcept {}
  [[nodiscard]] vtier::slab make_slab() const { return {{}, nullptr}; }
  [[nodiscard]] std::string name() const { return "least"; }
  [[nodiscard]] std::size_t free_bytes() const { return 0; }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }
  friend bool operator==(const least&, const least&) = default;
};
static_assert(vtier::host_resource<least>);

struct throws_on_deallocate : least {
  void deallocate(void*, std::size_t, std::size_t) const {}
};
struct cannot_be_copied : least {
  cannot_be_copied(const cannot_be_copied&) = delete;
  cannot_be_copied& operator=(const cannot_be_copied&) = delete;
};
struct gives_no_slab : least {
  void make_slab() const {}
};
struct without_notes : least {
  void notes() const {}
};
struct needs_to_be_changed : least {
  void* allocate(std::size_t, std::size_t) { return nullptr; }
};
static_assert(!vtier::resource<throws_on_deallocate>);
static_assert(!vtier::resource<cannot_be_copied>);
static_assert(!vtier::resource<gives_no_slab>);
static_assert(!vtier::resource<without_notes>);
static_assert(!vtier::resource<needs_to_be_changed>);
static_assert(!vtier::resource<int>);

}  // namespace

TEST_CASE("the models of a resource are told apart by the compiler", "[memory][resource]") {
  CHECK(least{} == least{});  // what else can fail here failed above, at compile time
}
