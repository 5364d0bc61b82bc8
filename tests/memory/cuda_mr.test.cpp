// SPDX-License-Identifier: Apache-2.0
// Where CCCL is not to be had there is nothing to test: the file is then empty but for a case that says so.
#include "support/catch.hpp"

#if __has_include(<cuda/memory_resource>)
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <vtier/memory/cuda_mr.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

using namespace vtier::literals;

namespace {

using native_stream = decltype(std::declval<::cuda::stream_ref>().get());

// A device resource whose streams are CUDA's, without a device: it notes the streams that it was called with.
struct streamed {
  struct stream_ref {
    explicit stream_ref(native_stream s) : handle{s} {}
    native_stream handle;
  };
  static constexpr vtier::memory_kind kind = vtier::memory_kind::device;
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    return memory.allocate(size_bytes, alignment_bytes);
  }
  void deallocate(void* p, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    memory.deallocate(p, size_bytes, alignment_bytes);
  }
  [[nodiscard]] void* allocate(stream_ref s, std::size_t size_bytes, std::size_t alignment_bytes) const {
    seen->push_back(s.handle);
    return memory.allocate(size_bytes, alignment_bytes);
  }
  void deallocate(stream_ref s, void* p, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    seen->push_back(s.handle);
    memory.deallocate(p, size_bytes, alignment_bytes);
  }
  [[nodiscard]] vtier::slab make_slab() const { return memory.make_slab(); }
  [[nodiscard]] std::string name() const { return memory.name(); }
  [[nodiscard]] std::size_t free_bytes() const { return memory.free_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }
  friend bool operator==(const streamed& a, const streamed& b) noexcept { return a.memory == b.memory; }
  vtier::pool<vtier::numa> memory;
  std::vector<native_stream>* seen = nullptr;
};

// Notes the alignment that it was asked for.
struct asks {
  static constexpr vtier::memory_kind kind = vtier::memory_kind::host;
  [[nodiscard]] void* allocate(std::size_t, std::size_t alignment_bytes) const {
    *asked = alignment_bytes;
    return nullptr;
  }
  void deallocate(void*, std::size_t, std::size_t alignment_bytes) const noexcept { *asked = alignment_bytes; }
  [[nodiscard]] vtier::slab make_slab() const { return {{}, nullptr}; }
  [[nodiscard]] std::string name() const { return "asks"; }
  [[nodiscard]] std::size_t free_bytes() const { return 0; }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }
  bool operator==(const asks&) const = default;
  std::size_t* asked = nullptr;
};

namespace mr = ::cuda::mr;
using plain = vtier::cuda_mr<vtier::pool<vtier::numa>>;
using in_streams = vtier::cuda_mr<vtier::limited<streamed>>;

static_assert(::cuda::has_property<plain, mr::host_accessible> && !::cuda::has_property<plain, mr::device_accessible>);
static_assert(::cuda::has_property<in_streams, mr::device_accessible> &&
              !::cuda::has_property<in_streams, mr::host_accessible>);
#if CCCL_VERSION >= 3001000
static_assert(mr::synchronous_resource<plain> && !mr::resource<plain>);
static_assert(mr::synchronous_resource_with<plain, mr::host_accessible>);
static_assert(mr::resource<in_streams> && mr::resource_with<in_streams, mr::device_accessible>);
#else
static_assert(mr::resource<plain> && !mr::async_resource<plain>);
static_assert(mr::resource_with<plain, mr::host_accessible>);
static_assert(mr::async_resource<in_streams> && mr::async_resource_with<in_streams, mr::device_accessible>);
#endif
static_assert(noexcept(std::declval<plain&>().deallocate_sync(nullptr, 1)));

}  // namespace

TEST_CASE("a resource serves as a cuda::mr", "[memory][cuda_mr]") {
  const vtier::pool below{vtier::numa{{.budget = 1_MiB, .name = "dram"}}};
  plain memory{below};
  CHECK(memory == plain{below});
  CHECK(memory != plain{vtier::pool{vtier::numa{{.budget = 1_MiB}}}});
  CHECK(memory.from() == below);
  void* const p = memory.allocate_sync(1'000);
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
  CHECK(below.used_bytes() == 1_KiB);
  memory.deallocate_sync(p, 1'000);
  CHECK(memory.allocate_sync(0) == nullptr);
  memory.deallocate_sync(nullptr, 0);
  CHECK(below.used_bytes() == 0);
  CHECK_THROWS_AS(memory.allocate_sync(2_MiB), std::bad_alloc);
  CHECK_THROWS_AS(memory.allocate_sync(1, 3), vtier::usage_error);
}

TEST_CASE("where nobody says an alignment, 256 is asked", "[memory][cuda_mr]") {
  std::size_t asked = 0;
  vtier::cuda_mr<asks> memory{asks{&asked}};
  static_cast<void>(memory.allocate_sync(8));
  CHECK(std::exchange(asked, 0) == 256);
  memory.deallocate_sync(nullptr, 8);
  CHECK(std::exchange(asked, 0) == 256);
#if CCCL_VERSION < 3001000
  static_cast<void>(memory.allocate(8));
  CHECK(std::exchange(asked, 0) == 256);
  memory.deallocate(nullptr, 8);
  CHECK(std::exchange(asked, 0) == 256);
#endif
}

TEST_CASE("streams of CUDA's reach the resource", "[memory][cuda_mr]") {
  std::vector<native_stream> seen;
  const vtier::limited below{streamed{vtier::pool{vtier::numa{{.budget = 1_MiB}}}, &seen}, {.budget = 64_KiB}};
  in_streams memory{below};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a handle is only a number here
  const auto handle = reinterpret_cast<native_stream>(std::uintptr_t{0x40});
  const ::cuda::stream_ref stream{handle};
#if CCCL_VERSION >= 3001000
  void* const p = memory.allocate(stream, 1'000, 256);
  CHECK(below.used_bytes() == 1'000);
  memory.deallocate(stream, p, 1'000, 256);
#else
  void* const p = memory.allocate_async(1'000, 256, stream);
  CHECK(below.used_bytes() == 1'000);
  memory.deallocate_async(p, 1'000, 256, stream);
#endif
  CHECK(below.used_bytes() == 0);
  CHECK(seen == std::vector<native_stream>{handle, handle});
}

TEST_CASE("CCCL's own reference takes a resource", "[memory][cuda_mr]") {
  const vtier::pool below{vtier::numa{{.budget = 1_MiB}}};
  plain memory{below};
#if CCCL_VERSION >= 3001000
  mr::synchronous_resource_ref<mr::host_accessible> reference{memory};
  void* const p = reference.allocate_sync(100, 256);
  CHECK(below.used_bytes() == 256);
  reference.deallocate_sync(p, 100, 256);
#else
  mr::resource_ref<mr::host_accessible> reference{memory};
  void* const p = reference.allocate(100, 256);
  CHECK(below.used_bytes() == 256);
  reference.deallocate(p, 100, 256);
#endif
  CHECK(below.used_bytes() == 0);
}

#else
TEST_CASE("CCCL is not here: cuda_mr is not tested", "[memory][cuda_mr]") { SUCCEED(); }
#endif
