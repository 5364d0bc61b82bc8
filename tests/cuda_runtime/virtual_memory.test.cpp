// SPDX-License-Identifier: Apache-2.0
// GPU memory that grows where it stands: the driver's rules as the stand-in has them, ranges and slabs on it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "contract/device_range.hpp"
#include "contract/resource.hpp"
#include "cuda_runtime/control.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/cuda.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pool.hpp>
#include <vtier/runtime/hierarchy.hpp>

namespace {

using namespace vtier::literals;
using vtier::test::standin;
using vtier::test::standin_gpu;
using hbm = vtier::hbm<vtier::cuda::device>;

constexpr std::size_t granule = 64_KiB;

bool stands_in(std::vector<standin_gpu> gpus = {{1_MiB, "one", "0000:3B:00.0", granule}}) {
  if (standin() == nullptr) {
    WARN("skipped: the real CUDA runtime answers");
    return false;
  }
  standin()->reset(1, gpus, false);
  return true;
}

std::string violations(bool at_end = false) {
  std::string all;
  for (const auto& v : standin()->violations(at_end)) all += v + "\n";
  return all;
}

bool has(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

// The driver's functions, as a program gets them.
template <class Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  REQUIRE(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result) == cudaSuccess);
  REQUIRE(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function>(found);
}
#define DRIVER(name) driver<decltype(&::name)>(#name)

CUmemAllocationProp of_device(int ordinal) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = ordinal;
  return p;
}

void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p)); }

CUmemAccessDesc all_rights() {
  CUmemAccessDesc access{};
  access.location = of_device(0).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

void touch_stub(char*) {}
void touch_body(dim3, dim3, char* p) { *static_cast<volatile char*>(p) = 1; }

}  // namespace

TEST_CASE("virtual memory on the stand-in: the driver's own rules", "[cuda_runtime]") {
  if (!stands_in()) return;
  const auto reserve = DRIVER(cuMemAddressReserve);
  const auto unreserve = DRIVER(cuMemAddressFree);
  const auto create = DRIVER(cuMemCreate);
  const auto release = DRIVER(cuMemRelease);
  const auto map = DRIVER(cuMemMap);
  const auto unmap = DRIVER(cuMemUnmap);
  const auto set_access = DRIVER(cuMemSetAccess);
  const auto granularity = DRIVER(cuMemGetAllocationGranularity);
  const CUmemAllocationProp one = of_device(0);
  const CUmemAccessDesc access = all_rights();
  std::size_t step = 0;
  REQUIRE(granularity(&step, &one, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
  CHECK(step == granule);
  CUdeviceptr base = 0;
  REQUIRE(reserve(&base, 8 * granule, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(base % granule == 0);
  std::vector<char> host(2 * granule, 'x');

  SECTION("memory is reached between the right to it and its end, and counts while it exists") {
    CUmemGenericAllocationHandle a = 0;
    CUmemGenericAllocationHandle b = 0;
    CHECK(create(&a, granule + 1, &one, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(create(&a, 2_MiB, &one, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(create(&a, granule, &one, 0) == CUDA_SUCCESS);
    REQUIRE(create(&b, granule, &one, 0) == CUDA_SUCCESS);
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    REQUIRE(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess);
    CHECK(free_bytes == 1_MiB - 2 * granule);
    CHECK(map(base + 1, granule, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(map(base + 8 * granule, granule, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(map(base, 2 * granule, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(map(base, granule, 0, a, 0) == CUDA_SUCCESS);
    CHECK(map(base, granule, 0, b, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaMemcpy(pointer(base), host.data(), 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);  // no right yet
    static_cast<void>(cudaGetLastError());
    vtier::test::bind_kernel(&touch_stub, &touch_body);
    const auto kernel = [&](CUdeviceptr p) {
      return vtier::test::in_child([&] {
               auto* const place = static_cast<char*>(pointer(p));
               static_cast<void>(vtier::test::launch_kernel(&touch_stub, dim3{1}, dim3{1}, nullptr, place));
               static_cast<void>(cudaDeviceSynchronize());
             })
          .signal;
    };
    CHECK(kernel(base) == SIGSEGV);
    CHECK(set_access(base, 2 * granule, &access, 1) == CUDA_ERROR_INVALID_VALUE);  // not all of it is mapped
    REQUIRE(set_access(base, granule, &access, 1) == CUDA_SUCCESS);
    CHECK(kernel(base) == 0);
    CHECK(kernel(base + granule) == SIGSEGV);
    REQUIRE(map(base + granule, granule, 0, b, 0) == CUDA_SUCCESS);
    REQUIRE(set_access(base + granule, granule, &access, 1) == CUDA_SUCCESS);
    REQUIRE(cudaMemcpy(pointer(base), host.data(), 2 * granule, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaFree(pointer(base)) == cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
    REQUIRE(release(a) == CUDA_SUCCESS);
    REQUIRE(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess);
    CHECK(free_bytes == 1_MiB - 2 * granule);  // it is mapped
    CHECK(unmap(base, granule / 2) == CUDA_ERROR_INVALID_VALUE);
    CHECK(unreserve(base, 8 * granule) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(unmap(base, 2 * granule) == CUDA_SUCCESS);
    REQUIRE(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess);
    CHECK(free_bytes == 1_MiB - granule);  // b has its handle
    CHECK(map(base, granule, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(release(b) == CUDA_SUCCESS);
    CHECK(unreserve(base, granule) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(unreserve(base, 8 * granule) == CUDA_SUCCESS);
    CHECK(violations(true) == "");
  }
  SECTION("what is left is told") {
    CUmemGenericAllocationHandle a = 0;
    REQUIRE(create(&a, granule, &one, 0) == CUDA_SUCCESS);
    REQUIRE(map(base, granule, 0, a, 0) == CUDA_SUCCESS);
    const std::string all = violations(true);
    CAPTURE(all);
    CHECK(has(all, "leaked: 1 handles of physical memory"));
    CHECK(has(all, "leaked: 1 mappings"));
    CHECK(has(all, "leaked: 1 address ranges"));
  }
  SECTION("memory that is unmapped under work is told of") {
    CUmemGenericAllocationHandle a = 0;
    REQUIRE(create(&a, granule, &one, 0) == CUDA_SUCCESS);
    REQUIRE(map(base, granule, 0, a, 0) == CUDA_SUCCESS);
    REQUIRE(release(a) == CUDA_SUCCESS);
    REQUIRE(set_access(base, granule, &access, 1) == CUDA_SUCCESS);
    cudaStream_t s = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(pointer(base), 1, granule, s) == cudaSuccess);
    REQUIRE(unmap(base, granule) == CUDA_SUCCESS);
    REQUIRE(cudaStreamSynchronize(s) == cudaSuccess);
    const std::string all = violations();
    CAPTURE(all);
    const bool told = has(all, "a race") || has(all, "freed memory");
    CHECK(told);
    REQUIRE(cudaStreamDestroy(s) == cudaSuccess);
    REQUIRE(unreserve(base, 8 * granule) == CUDA_SUCCESS);
  }
  SECTION("a name that is none, a version before its time, and one after the driver's") {
    void* found = &host;
    cudaDriverEntryPointQueryResult result{};
    const auto ask = [&](const char* name, unsigned version) {
      return cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    };
    CHECK(ask("cuNothing", 12000) == cudaSuccess);
    CHECK(result == cudaDriverEntryPointSymbolNotFound);
    CHECK(found == nullptr);
    CHECK(ask("cuMemMap", 9000) == cudaSuccess);
    CHECK(result == cudaDriverEntryPointVersionNotSufficent);
    CHECK(ask("cuMemMap", CUDART_VERSION + 1000) == cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
  }
}

TEST_CASE("cuda device on the stand-in: ranges, on each of two devices", "[cuda_runtime]") {
  if (!stands_in({{1_MiB, "one", "0000:3B:00.0", granule}, {32_MiB, "two", "0000:5B:00.0"}})) return;
  contract::device_range_contract(vtier::cuda::device{0});
  contract::device_range_contract(vtier::cuda::device{1});
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
  CHECK(violations(true) == "");
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("cuda device on the stand-in: a range waits for the work on what it gives back", "[cuda_runtime]") {
  if (!stands_in()) return;
  {
    const vtier::cuda::device on;
    const auto s = on.make_stream();
    auto r = on.make_range(4 * granule);
    REQUIRE(r);
    r->grow(3 * granule);
    on.fill(s, r->base(), std::byte{1}, 3 * granule);
    r->shrink(granule);
    on.fill(s, r->base(), std::byte{1}, granule);
    r.reset();
  }
  CHECK(violations(true) == "");
}

TEST_CASE("cuda device on the stand-in: no virtual memory, and a driver that lacks a function", "[cuda_runtime]") {
  if (!stands_in({{1_MiB, "old", "0000:3B:00.0", 0}})) return;
  CHECK_FALSE(vtier::cuda::device{}.make_range(granule));
  for (const char* const name :
       {"cuDeviceGet", "cuDeviceGetAttribute", "cuMemGetAllocationGranularity", "cuMemAddressReserve",
        "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess"}) {
    REQUIRE(stands_in());
    standin()->lack(name);
    CAPTURE(name);
    const vtier::cuda::device on;
    CHECK_FALSE(on.make_range(granule));
    const hbm memory{on, {.budget = 512_KiB}};
    for (int again = 0; again < 2; ++again) {
      const auto slab = memory.make_slab();
      CHECK_FALSE(slab.properties().grows);
      CHECK(on.memory().free_bytes == 512_KiB);
    }
    const auto notes = memory.notes();
    REQUIRE(notes.size() == 1);
    CHECK(has(notes[0], "at once"));
    CHECK(has(notes[0], "cuda:0 one"));
  }
  CHECK(violations(true) == "");
  for (const int code : {801, 800}) {
    REQUIRE(stands_in());
    standin()->fail("cuMemAddressReserve", 1, code);
    CHECK_FALSE(vtier::cuda::device{}.make_range(granule));
  }
}

TEST_CASE("each driver call of a growth fails in turn: nothing has changed, nothing is left", "[cuda_runtime]") {
  if (!stands_in()) return;
  const auto scene = [](const auto& act) {
    const vtier::cuda::device on;
    const contract::range_bytes<vtier::cuda::device> bytes{on, granule};
    auto r = on.make_range(6 * granule);
    REQUIRE(r);
    r->grow(2 * granule);
    bytes.write(r->base() + granule, 7);
    act(on, *r);
    CHECK(bytes.holds(r->base() + granule, 7));
    r->grow(6 * granule);
    CHECK(bytes.holds(r->base() + granule, 7));
    bytes.write(r->base() + 5 * granule, 8);
    CHECK(bytes.holds(r->base() + 5 * granule, 8));
  };
  int failures = 0;
  for (const char* const name : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cudaSetDevice", "cudaGetDevice"}) {
    for (std::uint64_t nth = 1; nth <= 4; ++nth) {
      for (const int code : {2, 719}) {
        REQUIRE(stands_in());
        CAPTURE(name, nth, code);
        scene([&](const vtier::cuda::device& on, vtier::cuda::device::range& r) {
          const std::size_t free_before = on.memory().free_bytes;
          standin()->fail(name, nth, code);
          try {
            r.grow(5 * granule);
          } catch (const vtier::out_of_memory& e) {
            CHECK(code == 2);
            CHECK(e.asked_bytes() == 3 * granule);
            CHECK(e.free_bytes() == free_before);
            CHECK(has(e.what(), name));
            CHECK(has(e.what(), "cuda:0 one"));
            ++failures;
          } catch (const vtier::device_error& e) {
            CHECK(e.native_code() == code);
            CHECK(has(e.what(), name[2] == 'M' ? name : "cudaSetDevice"));
            ++failures;
          }
          standin()->fail(name, 0, 0);
          r.shrink(2 * granule);
          CHECK(r.end_bytes() == 2 * granule);
          CHECK(on.memory().free_bytes == free_before);
        });
        CHECK(violations(true) == "");
        CHECK(cudaPeekAtLastError() == cudaSuccess);
      }
    }
  }
  CHECK(failures == 18);  // three pieces, one right, one switch of device, and one question for it; each with two codes
}

TEST_CASE("cuda device on the stand-in: the driver's errors leave the thread's last one alone", "[cuda_runtime]") {
  if (!stands_in()) return;
  const vtier::cuda::device on;
  auto r = on.make_range(4 * granule);
  REQUIRE(r);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 2_MiB) == cudaErrorMemoryAllocation);  // the user's
  standin()->fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_THROWS_AS(r->grow(granule), vtier::out_of_memory);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}

TEST_CASE("cuda device on the stand-in: a forked child leaves ranges alone", "[cuda_runtime]") {
  if (!stands_in()) return;
  const vtier::cuda::device on;
  auto r = on.make_range(4 * granule);
  REQUIRE(r);
  r->grow(granule);
  const auto end = vtier::test::in_child([&] {
    const auto before = standin()->calls("cuMemUnmap", -1) + standin()->calls("cudaGetDevice", -1);
    int refused = 0;
    const auto attempt = [&](auto&& act) {
      try {
        act();
      } catch (const vtier::usage_error&) {
        ++refused;
      }
    };
    attempt([&] { r->grow(2 * granule); });
    attempt([&] { static_cast<void>(on.make_range(granule)); });
    r->shrink(0);
    r.reset();
    return refused == 2 && standin()->calls("cuMemUnmap", -1) + standin()->calls("cudaGetDevice", -1) == before;
  });
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  r.reset();
  CHECK(violations(true) == "");
}

TEST_CASE("an hbm slab on the stand-in grows, shrinks, and stays as it is where it cannot", "[cuda_runtime]") {
  if (!stands_in()) return;
  {
    const vtier::cuda::device on;
    const hbm memory{on, {.budget = 512_KiB}};
    const vtier::test::device_bytes<vtier::cuda::device> bytes{on};
    std::vector<std::byte> content(2 * granule);
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = std::byte{vtier::test::pattern(3, i)};
    std::vector<std::byte> found(content.size());
    auto slab = memory.make_slab();
    CHECK(slab.properties().grows);
    CHECK_FALSE(slab.properties().lazy);
    CHECK(slab.size_bytes() == 512_KiB);
    CHECK(memory.free_bytes() == 0);
    CHECK(on.memory().free_bytes == 1_MiB);
    slab.commit(2 * granule);
    CHECK(on.memory().free_bytes == 1_MiB - 2 * granule);
    bytes.write(slab.base(), content.data(), content.size());
    // Somebody else takes what is left but for one piece: there is no third and fourth.
    void* const other = on.allocate(1_MiB - 3 * granule);
    try {
      slab.commit(4 * granule);
      FAIL("there was more than there is");
    } catch (const vtier::out_of_memory& e) {
      CHECK(e.free_bytes() == granule);
      CHECK(e.asked_bytes() == 2 * granule);
    }
    CHECK(on.memory().free_bytes == granule);
    bytes.read(found.data(), slab.base(), found.size());
    CHECK(found == content);
    slab.commit(3 * granule);
    on.deallocate(other, 1_MiB - 3 * granule);
    slab.shrink(2 * granule);
    CHECK(on.memory().free_bytes == 1_MiB - 2 * granule);
    CHECK(memory.free_bytes() == 0);  // the addresses are promised
    slab.commit(512_KiB);
    CHECK(on.memory().free_bytes == 512_KiB);
    bytes.read(found.data(), slab.base(), found.size());
    CHECK(found == content);
    CHECK(memory.notes().empty());
  }
  CHECK(violations(true) == "");
}

TEST_CASE("an hbm slab on the stand-in: options, odd sizes, pools", "[cuda_runtime]") {
  if (!stands_in()) return;
  {
    const vtier::cuda::device on;
    {
      const auto slab = hbm{on, {.budget = 512_KiB, .grows = false}}.make_slab();
      CHECK_FALSE(slab.properties().grows);
      CHECK(on.memory().free_bytes == 512_KiB);
    }
    {
      const auto slab = hbm{on, {.budget = granule - 256}}.make_slab();  // less than a granule
      CHECK_FALSE(slab.properties().grows);
    }
    {
      auto slab = hbm{on, {.budget = 512_KiB, .granule_bytes = 3 * granule}}.make_slab();
      slab.commit(1);
      CHECK(on.memory().free_bytes == 1_MiB - 4 * granule);
    }
    {
      auto slab = hbm{on, {.budget = granule + 256}}.make_slab();
      CHECK(slab.size_bytes() == granule + 256);
      slab.commit(slab.size_bytes());
      CHECK(on.memory().free_bytes == 1_MiB - 2 * granule);
    }
    const auto make = [&](std::size_t budget) { return hbm{on, {.budget = budget}}; };
    vtier::test::check_slab(make, vtier::test::device_bytes<vtier::cuda::device>{on});
    {
      const vtier::pool pool{hbm{on, {.budget = 8 * granule}}, {.growth_bytes = 256}};
      void* const a = pool.allocate(granule, 256);
      CHECK(on.memory().free_bytes == 1_MiB - granule);
      void* const b = pool.allocate(2 * granule, 256);
      CHECK(on.memory().free_bytes == 1_MiB - 3 * granule);
      void* const other = on.allocate(1_MiB - 4 * granule);
      CHECK_THROWS_AS(pool.allocate(2 * granule, 256), vtier::out_of_memory);
      void* const c = pool.allocate(granule, 256);
      on.deallocate(other, 1_MiB - 4 * granule);
      pool.deallocate(a, granule, 256);
      pool.deallocate(b, 2 * granule, 256);
      pool.deallocate(c, granule, 256);
    }
    {
      // Memory that does not grow comes and goes in chunks.
      const vtier::pool pool{hbm{on, {.budget = 512_KiB, .grows = false}}, {.chunk_bytes = 128_KiB}};
      CHECK(on.memory().free_bytes == 1_MiB);
      void* const a = pool.allocate(100_KiB, 256);
      CHECK(on.memory().free_bytes == 1_MiB - 128_KiB);
      void* const b = pool.allocate(200_KiB, 256);
      CHECK(on.memory().free_bytes == 1_MiB - 328_KiB);
      pool.deallocate(a, 100_KiB, 256);
      void* const c = pool.allocate(300_KiB, 256);  // the first chunk makes room
      CHECK(on.memory().free_bytes == 1_MiB - 500_KiB);
      CHECK_THROWS_AS(pool.allocate(100_KiB, 256), vtier::out_of_memory);
      pool.deallocate(b, 200_KiB, 256);
      pool.deallocate(c, 300_KiB, 256);
      CHECK(pool.trim() == 500_KiB);
      CHECK(on.memory().free_bytes == 1_MiB);
    }
    {
      // A step of growth that is not there any more, where what was asked is.
      const vtier::pool pool{hbm{on, {.budget = 8 * granule}}, {.growth_bytes = 4 * granule}};
      void* const other = on.allocate(1_MiB - 2 * granule);
      void* const a = pool.allocate(granule, 256);
      CHECK(pool.reserved_bytes() == granule);
      CHECK_THROWS_AS(pool.allocate(2 * granule, 256), vtier::out_of_memory);
      pool.deallocate(a, granule, 256);
      on.deallocate(other, 1_MiB - 2 * granule);
    }
  }
  CHECK(violations(true) == "");
}

TEST_CASE("a hierarchy on the stand-in has all of its memory from the beginning", "[cuda_runtime]") {
  if (!stands_in()) return;
  {
    const vtier::cuda::device on;
    const auto of = [&](std::size_t budget) {
      return vtier::hierarchy<vtier::cuda::device>{hbm{on, {.budget = budget}}, vtier::pinned{on, {.budget = 1_MiB}}};
    };
    CHECK_THROWS_AS(of(1_MiB + granule), vtier::out_of_memory);
    CHECK(on.memory().free_bytes == 1_MiB);
    const auto mem = of(512_KiB);
    CHECK(on.memory().free_bytes == 512_KiB);
    CHECK(standin()->calls("cudaMalloc", -1) == 0);
  }
  CHECK(violations(true) == "");
}
