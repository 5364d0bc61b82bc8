// SPDX-License-Identifier: Apache-2.0
// The CUDA device and hierarchies on it, as users run them, on the stand-in; some also on a real GPU.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "contract/device.hpp"
#include "cuda_runtime/control.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/cuda.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pool.hpp>
#include <vtier/runtime/hierarchy.hpp>

namespace {

using namespace vtier::literals;
using vtier::test::pattern;
using vtier::test::standin;
using vtier::test::standin_gpu;
using memory = vtier::hierarchy<vtier::cuda::device>;
using bytes = memory::tensor<std::uint8_t>;

bool stands_in(std::uint64_t seed, std::vector<standin_gpu> gpus = {{1_MiB, "one", "0000:3B:00.0", 16_KiB}}) {
  if (standin() == nullptr) {
    WARN("skipped: the real CUDA runtime answers");
    return false;
  }
  standin()->reset(seed, gpus, false);
  return true;
}

std::string violations(bool at_end = false) {
  std::string all;
  for (const auto& v : standin()->violations(at_end)) all += v + "\n";
  return all;
}

// Kernels: their stubs, and what runs in their place.
void fill_stub(std::uint8_t*, std::uint64_t, std::size_t) {}
void fill_body(dim3, dim3, std::uint8_t* p, std::uint64_t seed, std::size_t count) {
  standin()->writes(p, count);
  for (std::size_t i = 0; i < count; ++i) p[i] = pattern(seed, i);
}
void compare_stub(const std::uint8_t*, std::uint64_t, std::size_t, std::size_t*) {}
void compare_body(dim3, dim3, const std::uint8_t* p, std::uint64_t seed, std::size_t count, std::size_t* wrong) {
  standin()->reads(p, count);
  for (std::size_t i = 0; i < count; ++i) {
    if (p[i] != pattern(seed, i)) ++*wrong;
  }
}

void bind() {
  vtier::test::bind_kernel(&fill_stub, &fill_body);
  vtier::test::bind_kernel(&compare_stub, &compare_body);
}

void launched(cudaError_t code) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw vtier::device_error(static_cast<int>(code), "a kernel was not launched");
}

// A kernel goes to the caller's current device, which must be its stream's.
template <class... A>
void launch(const vtier::cuda::stream& s, void (*stub)(A...), A... arguments) {
  int before = 0;
  int own = 0;
  cudaError_t code = cudaGetDevice(&before);
  if (code == cudaSuccess) code = cudaStreamGetDevice(s.get(), &own);
  if (code == cudaSuccess && own != before) code = cudaSetDevice(own);
  if (code == cudaSuccess) code = vtier::test::launch_kernel(stub, dim3{1}, dim3{32}, s.get(), arguments...);
  if (own != before) static_cast<void>(cudaSetDevice(before));
  launched(code);
}

void fill(const vtier::cuda::stream& s, bytes& t, std::uint64_t seed) {
  auto lease = t.write(s);
  launch(s, &fill_stub, lease.data(), seed, lease.size());
}

void compare(const vtier::cuda::stream& s, const bytes& t, std::uint64_t seed, std::size_t& wrong) {
  auto lease = t.read(s);
  launch(s, &compare_stub, lease.data(), seed, lease.size(), &wrong);
}

vtier::options limits(bool thread) {
  vtier::options o;
  o.progress_thread = thread;
  o.staging_budget = 16_KiB;
  o.chunk_bytes_max = 8_KiB;
  return o;
}

/// Writes, moves and reads tensors that are four times as large as the first tier.
void swap(const vtier::cuda::device& on, const std::filesystem::path& place, std::uint64_t seed, bool thread) {
  memory mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::pinned{on, {.budget = 128_KiB}},
             vtier::mapped_file{place.string(), {.budget = 4_MiB}}, limits(thread)};
  const auto a = on.make_stream();
  const auto b = on.make_stream();
  std::vector<bytes> all;
  std::vector<std::uint64_t> content;
  vtier::random_source random{seed};
  for (std::uint64_t i = 0; i < 20; ++i) {
    all.push_back(mem.make_tensor<std::uint8_t>({10'000 + i * 100}, vtier::role::parameter));
    content.push_back(i);
    fill(a, all.back(), i);
  }
  std::size_t wrong = 0;
  for (int step = 0; step < 150; ++step) {
    const std::size_t i = random.below(all.size());
    const auto& s = random.below(2) == 0 ? a : b;
    switch (random.below(5)) {
      case 0:
        content[i] = random();
        fill(s, all[i], content[i]);
        break;
      case 1: mem.prefetch(all[i]); break;
      case 2: mem.evict(all[i], random.below(2)); break;
      default: compare(s, all[i], content[i], wrong); break;
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) compare(a, all[i], content[i], wrong);
  on.synchronize(a);
  on.synchronize(b);
  CHECK(wrong == 0);
  CHECK(mem.broken_rules().empty());
}

}  // namespace

TEST_CASE("cuda device on the stand-in: the contract, on each of two devices", "[cuda_runtime]") {
  if (!stands_in(1, {{16_MiB, "one", "0000:3B:00.0"}, {64_MiB, "two", "10001:8A:00.0"}})) return;
  REQUIRE(vtier::cuda::device::count() == 2);
  SECTION("0") { contract::device_contract_without_gates(vtier::cuda::device{0}); }
  SECTION("1") { contract::device_contract_without_gates(vtier::cuda::device{1}); }
  SECTION("with a stream that stands still until the test lets it go on") {
    standin()->functions_on_thread(true);
    contract::device_contract(vtier::cuda::device{0});
    contract::device_contract(vtier::cuda::device{1});
  }
  SECTION("names and addresses") {
    const vtier::cuda::device two{1};
    CHECK(two.name() == "cuda:1 two");
    CHECK(two.bus_id() == "10001:8A:00.0");
    CHECK(two.memory().total_bytes == 64_MiB);
  }
  CHECK(violations() == "");
}

TEST_CASE("a hierarchy on the stand-in: right bytes, no race, nothing left", "[cuda_runtime]") {
  const vtier::test::scratch_directory place;
  for (const bool thread : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      if (!stands_in(seed)) return;
      bind();
      {
        const vtier::cuda::device on;
        swap(on, place.path(), seed, thread);
      }
      CAPTURE(thread, seed);
      CHECK(violations(true) == "");
      CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
  }
  CHECK(place.empty());
}

TEST_CASE("each call of each CUDA function fails in turn", "[cuda_runtime]") {
  const vtier::test::scratch_directory place;
  if (!stands_in(1)) return;
  bind();
  {
    const vtier::cuda::device on;
    swap(on, place.path(), 1, false);
  }
  std::map<std::string, std::uint64_t> calls;
  for (const auto& name : standin()->functions()) calls[name] = standin()->calls(name.c_str(), -1);
  REQUIRE(calls.size() > 12);
  for (const char* const name : {"cudaGetDriverEntryPointByVersion", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                 "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}) {
    CAPTURE(name);
    REQUIRE(calls[name] > 0);
  }
  std::size_t told = 0;
  std::size_t survived = 0;
  for (const auto& [name, count] : calls) {
    for (const std::uint64_t nth : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, count / 2, count}) {
      if (nth == 0 || nth > count) continue;
      const bool allocates =
          name == "cudaMalloc" || name == "cudaHostAlloc" || name == "cudaMallocAsync" || name == "cuMemCreate";
      standin()->reset(1, {{1_MiB, "one", "0000:3B:00.0", 16_KiB}}, false);
      bind();
      standin()->fail(name.c_str(), nth, allocates ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure);
      CAPTURE(name, nth);
      {
        std::size_t wrong = 0;
        std::optional<vtier::cuda::device> on;
        std::optional<memory> mem;
        std::optional<vtier::cuda::stream> s;
        std::vector<bytes> all;
        const auto attempt = [&](auto&& act) {
          try {
            act();
            return true;
          } catch (const vtier::error& e) {
            ++told;
            CHECK(std::string{e.what()}.size() > 20);
            return false;
          }
        };
        for (int i = 0; i < 2 && !on; ++i) attempt([&] { on.emplace(); });
        REQUIRE(on);
        const auto make = [&] {
          mem.emplace(vtier::hbm{*on, {.budget = 64_KiB}}, vtier::pinned{*on, {.budget = 128_KiB}},
                      vtier::mapped_file{place.path().string(), {.budget = 4_MiB}}, limits(false));
        };
        for (int i = 0; i < 2 && !mem; ++i) attempt(make);
        REQUIRE(mem);
        for (int i = 0; i < 2 && !s; ++i) attempt([&] { s.emplace(on->make_stream()); });
        REQUIRE(s);
        for (std::uint64_t i = 0; i < 20; ++i) {
          all.push_back(mem->make_tensor<std::uint8_t>({10'000 + i * 100}, vtier::role::parameter));
          for (int again = 0; again < 2; ++again) {
            if (attempt([&] { fill(*s, all.back(), i); })) break;
          }
        }
        for (int round = 0; round < 2; ++round) {
          for (std::size_t i = 0; i < all.size(); ++i) {
            for (int again = 0; again < 3; ++again) {
              if (attempt([&] { compare(*s, all[i], i, wrong); })) break;
              REQUIRE(again < 2);  // one failure, one error
            }
          }
        }
        for (int again = 0; again < 2; ++again) {
          if (attempt([&] { on->synchronize(*s); })) break;
        }
        CHECK(wrong == 0);
        CHECK(mem->broken_rules().empty());
        ++survived;
      }
      // A destroy or an unregistration that fails leaves what it was to destroy, and so does one that cannot ask for
      // the caller's device; nothing else may be left.
      const bool leaves = name.find("Destroy") != std::string::npos || name.find("Free") != std::string::npos ||
                          name.find("Unregister") != std::string::npos || name == "cuMemRelease" ||
                          name == "cuMemUnmap" || name == "cudaGetDevice";
      if (!leaves) CHECK(violations(true) == "");
      CHECK(cudaGetLastError() == cudaSuccess);
    }
  }
  CHECK(survived > 40);
  CHECK(told > 20);
}

TEST_CASE("a program that uses device 1 touches nothing on device 0, and finds its own device current (VO-D11)",
          "[cuda_runtime]") {
  const vtier::test::scratch_directory place;
  if (!stands_in(5, {{64_KiB, "small", "0000:01:00.0"}, {1_MiB, "large", "0000:02:00.0"}})) return;
  bind();
  {
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    const vtier::cuda::device on{1};
    std::optional<memory> mem{std::in_place, vtier::hbm{on, {.budget = 64_KiB}}, vtier::pinned{on, {.budget = 128_KiB}},
                              vtier::mapped_file{place.path().string(), {.budget = 4_MiB}}, limits(true)};
    std::optional<vtier::cuda::stream> s{on.make_stream()};
    std::vector<bytes> all;
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < 12; ++i) {
      // Made with one device current, used with the other.
      REQUIRE(cudaSetDevice(static_cast<int>(i % 2)) == cudaSuccess);
      all.push_back(mem->make_tensor<std::uint8_t>({20'000}, vtier::role::parameter));
      fill(*s, all.back(), i);
      int current = -1;
      REQUIRE(cudaGetDevice(&current) == cudaSuccess);
      CHECK(current == static_cast<int>(i % 2));
    }
    for (std::uint64_t i = 0; i < 12; ++i) compare(*s, all[i], i, wrong);
    on.synchronize(*s);
    CHECK(wrong == 0);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    all.clear();
    mem.reset();
    s.reset();
    int current = -1;
    REQUIRE(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
  }
  for (const char* const name : {"cudaMalloc", "cudaMallocAsync", "cudaHostAlloc", "cudaStreamCreateWithFlags",
                                 "cudaEventCreateWithFlags", "cudaMemcpyAsync", "cudaFree", "cudaStreamDestroy"}) {
    CAPTURE(name);
    CHECK(standin()->calls(name, 0) == 0);
  }
  CHECK(standin()->calls("cudaMemcpyAsync", 1) > 0);
  CHECK(violations(true) == "");
}

TEST_CASE("two hierarchies on two devices of other sizes", "[cuda_runtime]") {
  const vtier::test::scratch_directory place;
  if (!stands_in(9, {{128_KiB, "small", "0000:01:00.0"}, {1_MiB, "large", "0000:02:00.0"}})) return;
  bind();
  {
    const vtier::cuda::device one{0};
    const vtier::cuda::device two{1};
    swap(one, place.path(), 1, true);
    memory other{vtier::hbm{two, {.budget = 512_KiB}}, vtier::pinned{two, {.budget = 512_KiB}}, limits(true)};
    const auto s = two.make_stream();
    auto t = other.make_tensor<std::uint8_t>({300'000}, vtier::role::parameter);
    fill(s, t, 7);
    swap(one, place.path(), 2, false);
    std::size_t wrong = 0;
    compare(s, t, 7, wrong);
    two.synchronize(s);
    CHECK(wrong == 0);
    CHECK_THROWS_AS(memory(vtier::hbm{one, {.budget = 512_KiB}}), vtier::out_of_memory);  // more than it has
  }
  CHECK(violations(true) == "");
}

TEST_CASE("host memory that cannot be registered is copied all the same, and said once (VO-C02)", "[cuda_runtime]") {
  for (const int code : {static_cast<int>(cudaErrorNotSupported), static_cast<int>(cudaErrorInvalidValue)}) {
    if (!stands_in(2)) return;
    bind();
    standin()->fail("cudaHostRegister", 1, code);
    {
      const vtier::cuda::device on;
      memory mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::numa{{.budget = 256_KiB, .name = "dram"}}, limits(false)};
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      const auto s = on.make_stream();
      std::vector<bytes> all;
      std::size_t wrong = 0;
      for (std::uint64_t i = 0; i < 8; ++i) {
        all.push_back(mem.make_tensor<std::uint8_t>({20'000}, vtier::role::parameter));
        fill(s, all.back(), i);
      }
      for (std::uint64_t i = 0; i < 8; ++i) compare(s, all[i], i, wrong);
      on.synchronize(s);
      CHECK(wrong == 0);
      const auto counted = mem.count();
      std::size_t said = 0;
      for (const auto& note : counted.notes) said += note.find("dram") != std::string::npos ? 1U : 0U;
      CHECK(said == 1);
    }
    CHECK(violations(true) == "");
  }
}

TEST_CASE("the legacy default stream takes leases, the per-thread one is refused (VO-D06)", "[cuda_runtime]") {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
  const cudaStream_t legacy = cudaStreamLegacy;
  const cudaStream_t per_thread = cudaStreamPerThread;
#pragma GCC diagnostic pop
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    if (!stands_in(seed)) return;
    bind();
    {
      const vtier::cuda::device on;
      memory mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::pinned{on, {.budget = 256_KiB}}, limits(true)};
      std::vector<bytes> all;
      std::size_t wrong = 0;
      for (std::uint64_t i = 0; i < 6; ++i) {
        all.push_back(mem.make_tensor<std::uint8_t>({30'000}, vtier::role::parameter));
        CHECK_THROWS_AS(all.back().write(per_thread), vtier::usage_error);
        auto lease = all.back().write(legacy);
        // Work in the legacy stream, and the lease ends in another thread.
        launched(vtier::test::launch_kernel(&fill_stub, dim3{1}, dim3{32}, legacy, lease.data(), i, lease.size()));
        std::thread{[held = std::move(lease)]() mutable { held.end(); }}.join();
      }
      const auto s = on.make_stream();
      for (std::uint64_t i = 0; i < 6; ++i) compare(s, all[i], i, wrong);
      on.synchronize(s);
      CHECK(wrong == 0);
    }
    CHECK(violations(true) == "");
  }
}

TEST_CASE("a device that fails for good is an error in every call, and nothing hangs", "[cuda_runtime]") {
  const vtier::test::scratch_directory place;
  if (!stands_in(4)) return;
  bind();
  const vtier::cuda::device on;
  {
    memory mem{vtier::hbm{on, {.budget = 64_KiB}}, vtier::pinned{on, {.budget = 128_KiB}},
               vtier::mapped_file{place.path().string(), {.budget = 4_MiB}}, limits(true)};
    const auto s = on.make_stream();
    std::vector<bytes> all;
    for (std::uint64_t i = 0; i < 20; ++i) {
      all.push_back(mem.make_tensor<std::uint8_t>({10'000}, vtier::role::parameter));
      fill(s, all.back(), i);
    }
    standin()->break_device(0, cudaErrorIllegalAddress);
    std::size_t told = 0;
    for (auto& t : all) {
      try {
        fill(s, t, 1);
      } catch (const vtier::error&) {
        ++told;
      }
    }
    CHECK(told == all.size());
    CHECK_THROWS_AS(on.synchronize(s), vtier::device_error);
  }
  CHECK(place.empty());
}

TEST_CASE("a forked child calls CUDA by no call and no destructor, and its parent goes on (VO-C07)", "[cuda_runtime]") {
  const vtier::test::scratch_directory place;
  if (!stands_in(9)) return;
  bind();
  {
    auto on = std::make_unique<vtier::cuda::device>();
    auto first = std::make_unique<vtier::hbm<vtier::cuda::device>>(*on, vtier::hbm_options{.budget = 128_KiB});
    auto second = std::make_unique<vtier::pinned>(*on, vtier::pinned_options{.budget = 256_KiB});
    void* const device_block = first->allocate(1000, 16);
    void* const host_block = second->allocate(1000, 16);
    auto mem = std::make_unique<memory>(*first, *second, vtier::mapped_file{place.path().string(), {.budget = 4_MiB}},
                                        limits(false));
    auto s = std::make_unique<vtier::cuda::stream>(on->make_stream());
    std::vector<bytes> all;
    for (std::uint64_t i = 0; i < 20; ++i) {
      all.push_back(mem->make_tensor<std::uint8_t>({10'000}, vtier::role::parameter));
      fill(*s, all.back(), i);
    }
    auto event = std::make_unique<vtier::cuda::event>(on->record(*s));
    on->synchronize(on->record(*s));  // and some are idle
    const auto end = vtier::test::in_child([&] {
      ::alarm(60);
      const auto calls = [] {
        std::uint64_t sum = 0;
        for (const std::string& name : standin()->functions()) sum += standin()->calls(name.c_str(), -1);
        return sum;
      };
      const std::uint64_t before = calls();
      int refused = 0;
      const auto attempt = [&](auto&& call) {
        try {
          call();
        } catch (const vtier::usage_error& e) {
          if (std::string{e.what()}.find("forked") != std::string::npos) ++refused;
        }
      };
      attempt([&] { static_cast<void>(on->make_stream()); });
      attempt([&] { static_cast<void>(on->record(*s)); });
      attempt([&] { on->wait(*s, *event); });
      attempt([&] { static_cast<void>(on->passed(*event)); });
      attempt([&] { on->synchronize(*event); });
      attempt([&] { on->synchronize(*s); });
      attempt([&] { static_cast<void>(on->allocate(100)); });
      attempt([&] { static_cast<void>(on->allocate(*s, 100)); });
      attempt([&] { static_cast<void>(on->allocate_host(100)); });
      attempt([&] { static_cast<void>(on->memory()); });
      attempt([&] { on->launch(*s, [] {}); });
      attempt([&] { all[0].read(*s).end(); });
      attempt([&] { mem->flush(all[0]); });
      if (on->register_host(host_block, 1000)) return false;
      on->unregister_host(host_block);
      first->deallocate(device_block, 1000, 16);
      first->deallocate(*s, device_block, 0, 16);
      second->deallocate(host_block, 1000, 16);
      all.clear();
      mem.reset();
      event.reset();
      s.reset();
      second.reset();
      first.reset();
      on.reset();
      return refused == 13 && calls() == before;
    });
    CAPTURE(end.text, end.signal);
    CHECK(end.exit_status == 0);
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < 20; ++i) compare(*s, all[i], i, wrong);
    on->synchronize(*s);
    CHECK(wrong == 0);
    first->deallocate(device_block, 1000, 16);
    second->deallocate(host_block, 1000, 16);
  }
  CHECK(violations(true) == "");
  CHECK(place.empty());
}

TEST_CASE("a pool is not deceived by a handle that means another stream by now (VO-D04)", "[cuda_runtime]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    if (!stands_in(seed)) return;
    bind();
    {
      const vtier::cuda::device on;
      const vtier::pool pool{vtier::hbm{on, {.budget = 64_KiB}}};
      cudaStream_t first = nullptr;
      REQUIRE(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking) == cudaSuccess);
      void* const p = pool.allocate(first, 32_KiB, 256);
      void* const q = pool.allocate(16_KiB, 256);
      REQUIRE(cudaMemsetAsync(p, 1, 32_KiB, first) == cudaSuccess);
      pool.deallocate(first, p, 32_KiB, 256);
      REQUIRE(cudaStreamDestroy(first) == cudaSuccess);
      cudaStream_t second = nullptr;
      REQUIRE(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) == cudaSuccess);
      REQUIRE(second == first);
      if (seed % 2 == 0) {
        // It gives back a neighbour of its own, and the two become one piece that a third stream waits for.
        REQUIRE(cudaMemsetAsync(q, 2, 16_KiB, second) == cudaSuccess);
        pool.deallocate(second, q, 16_KiB, 256);
        const auto own = on.make_stream();
        const vtier::cuda::stream_ref third = own;
        void* const all = pool.allocate(third, 64_KiB, 256);
        REQUIRE(cudaMemsetAsync(all, 3, 64_KiB, third) == cudaSuccess);
        pool.deallocate(third, all, 64_KiB, 256);
      } else {
        void* const again = pool.allocate(second, 32_KiB, 256);
        CHECK(again == p);
        REQUIRE(cudaMemsetAsync(again, 2, 32_KiB, second) == cudaSuccess);
        pool.deallocate(second, again, 32_KiB, 256);
        pool.deallocate(q, 16_KiB, 256);
      }
      REQUIRE(cudaStreamDestroy(second) == cudaSuccess);
    }
    CHECK(violations(true) == "");
  }
}
