// SPDX-License-Identifier: Apache-2.0
// Orders of events in which memory could be reused too early, bytes lost, or a call never return. Each was a defect
// once.

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>
#include <vtier/train/activation_stack.hpp>

#include "support/catch.hpp"
#include "support/faulty_device.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

vtier::options limits(bool with_thread) {
  vtier::options o;
  o.progress_thread = with_thread;
  o.chunk_bytes_max = 64_KiB;
  o.clean_share = 0.0;
  return o;
}

}  // namespace

TEST_CASE("an evict hint does not fight a lease that writes") {
  const bool with_thread = GENERATE(false, true);
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 8_MiB}}, vtier::mapped_file{directory.path(), {.budget = 32_MiB}},
                       limits(with_thread)};
  auto stream = gpu.make_stream();
  auto t = mem.make_tensor<std::uint8_t>({6'000'000}, role::activation);
  fill(gpu, stream, t, 1);
  mem.evict(t);
  { auto lease = t.read_write(stream); }
  CHECK(differences(gpu, stream, t, 1) == 0);
  vtier::activation_stack stack{mem, {.keep = 0, .ahead = 1}};
  stack.push(std::move(t));
  t = stack.pop<std::uint8_t>();
  { auto lease = t.read_write(stream); }
  CHECK(differences(gpu, stream, t, 1) == 0);
}

TEST_CASE("the memory of a hierarchy stays until kernels that use it have passed") {
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  std::promise<void> go;
  std::atomic<bool> ran{false};
  std::optional<vtier::hierarchy<vtier::host::device>> mem;
  mem.emplace(vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}}, limits(true));
  {
    auto t = mem->make_tensor<std::uint8_t>({500'000}, role::parameter);
    auto lease = t.write(stream);
    gpu.launch(stream, [waits = go.get_future().share(), &ran, p = lease.data(), n = lease.size()] {
      waits.wait();
      std::memset(p, 1, n);  // the sanitizer is the judge
      ran = true;
    });
  }
  std::thread ends{[&] {
    std::this_thread::yield();
    go.set_value();
  }};
  mem.reset();
  CHECK(ran);
  ends.join();
}

TEST_CASE("a reader and a writer that both wait get a lease or an error, never an abort") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 4_MiB}}, vtier::mapped_file{directory.path(), {.budget = 32_MiB}},
                       limits(true)};
  auto stream = gpu.make_stream();
  auto second = gpu.make_stream();
  auto t = mem.make_tensor<std::uint8_t>({2'000'000}, role::parameter);
  auto other = mem.make_tensor<std::uint8_t>({3'900'000}, role::parameter);
  for (int i = 0; i < 20; ++i) {
    fill(gpu, stream, t, 1);
    fill(gpu, stream, other, 2);  // t is in the file now
    std::thread reader{[&] {
      try {
        auto lease = t.read(second);
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      } catch (const vtier::usage_error&) {
      }
    }};
    try {
      auto lease = t.write(stream);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    } catch (const vtier::usage_error&) {
    }
    reader.join();
  }
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("a lease of the host that cannot settle changes nothing") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::hierarchy mem{gpu, vtier::pinned{{.budget = 3_MiB}}, vtier::mapped_file{directory.path(), {.budget = 32_MiB}},
                       limits(false)};
  auto stream = gpu.make_stream();
  auto a = mem.make_tensor<std::uint8_t>({1'700'000}, role::parameter);
  auto b = mem.make_tensor<std::uint8_t>({1'700'000}, role::parameter);
  fill(gpu, stream, a, 1);
  fill(gpu, stream, b, 2);  // a is in the file now
  gpu.synchronize(stream);
  mem.flush(b);
  std::promise<void> go;
  {
    auto lease = b.read(stream);
    gpu.launch(stream, [waits = go.get_future().share()] {
      waits.wait();
      throw std::runtime_error("kernel");
    });
  }
  std::thread ends{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});  // the lease is waiting by then, as a rule
    go.set_value();
  }};
  bool refused = false;
  try {
    auto lease = a.write(vtier::on_host);  // in the place of b, whose kernel fails
  } catch (const vtier::device_error&) {
    refused = true;
  }
  ends.join();
  if (!refused) {
    WARN("skipped: the kernel was over before the lease could wait for it");
    return;
  }
  CHECK(differences(gpu, stream, a, 1) == 0);  // the old content is still the newest
}

TEST_CASE("a lease whose end cannot be marked does not give its place away early") {
  vtier::test::faulty_device gpu;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 4_MiB}}, limits(false)};
  auto stream = gpu.make_stream();
  auto second = gpu.make_stream();
  std::promise<void> go;
  std::atomic<bool> ran{false};
  std::thread ends;
  {
    auto t = mem.make_tensor<std::uint8_t>({900'000}, role::workspace);
    auto lease = t.write(stream);
    gpu.launch(stream, [waits = go.get_future().share(), &ran] {
      waits.wait();
      ran = true;
    });
    gpu.broken->record = true;
    ends = std::thread{[&] {
      // The host waits for the whole stream instead, for which the device must answer again.
      while (mem.count().errors.empty()) std::this_thread::yield();
      gpu.broken->record = false;
      go.set_value();
    }};
    lease.end();
  }
  ends.join();
  auto u = mem.make_tensor<std::uint8_t>({900'000}, role::workspace);
  bool first_had_run = false;
  {
    auto lease = u.write(second);
    gpu.launch(second, [&] { first_had_run = ran; });
  }
  gpu.synchronize(second);
  CHECK(first_had_run);
  CHECK(mem.count().errors.front().find("record refused") != std::string::npos);
}

TEST_CASE("the end of a lease survives a device that does not answer") {
  vtier::test::faulty_device gpu;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 4_MiB}}, limits(false)};
  auto stream = gpu.make_stream();
  auto t = mem.make_tensor<std::uint8_t>({1000}, role::workspace);
  { auto lease = t.write(stream); }
  std::promise<void> go;
  gpu.launch(stream, [waits = go.get_future().share()] { waits.wait(); });
  for (int i = 0; i < 20; ++i) {
    auto lease = t.read(stream);
    if (i == 19) gpu.broken->passed = true;
  }
  gpu.broken->passed = false;
  go.set_value();
  { auto lease = t.read(stream); }
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("a flush that waits lets others through") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 2_MiB}}, vtier::pinned{{.budget = 2_MiB}},
                       vtier::mapped_file{directory.path(), {.budget = 64_MiB}}, limits(true)};
  auto stream = gpu.make_stream();
  auto second = gpu.make_stream();
  auto a = mem.make_tensor<std::uint8_t>({1'400'000}, role::parameter);
  auto b = mem.make_tensor<std::uint8_t>({1'400'000}, role::parameter, vtier::placement_rule{.allowed_tiers = 3});
  std::promise<void> go;
  {
    auto lease = a.write(stream);
    gpu.launch(stream, [waits = go.get_future().share()] { waits.wait(); });
  }
  { auto lease = b.write(second); }  // a goes down to pinned, behind the kernel
  std::thread other{[&] {
    for (int i = 0; i < 1000; ++i) static_cast<void>(mem.count());  // hung here once: the flush held the lock
    go.set_value();
  }};
  mem.flush(b);
  other.join();
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("a tensor of another hierarchy is refused") {
  vtier::host::device gpu;
  vtier::hierarchy one{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 4_MiB}}, limits(false)};
  vtier::hierarchy two{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 4_MiB}}, limits(false)};
  auto stream = gpu.make_stream();
  auto t = one.make_tensor<std::uint8_t>({500'000}, role::parameter);
  fill(gpu, stream, t, 1);
  CHECK_THROWS_AS(two.flush(t), vtier::usage_error);
  CHECK_THROWS_AS(two.prefetch(t), vtier::usage_error);
  CHECK_THROWS_AS(two.evict(t), vtier::usage_error);
  CHECK(differences(gpu, stream, t, 1) == 0);
}

TEST_CASE("tensors that may not live everywhere are counted against where they may") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 2_MiB}},
                       vtier::mapped_file{directory.path(), {.budget = 64_MiB}}, limits(false)};
  std::vector<decltype(mem)::tensor<std::uint8_t>> bound;
  while (auto t =
             mem.try_make_tensor<std::uint8_t>({700'000}, role::parameter, vtier::placement_rule{.allowed_tiers = 3})) {
    bound.push_back(std::move(*t));
    REQUIRE(bound.size() < 10);
  }
  REQUIRE(bound.size() >= 2);
  for (std::size_t i = 0; i < bound.size(); ++i) fill(gpu, stream, bound[i], i);
  for (int lap = 0; lap < 3; ++lap) {
    for (std::size_t i = 0; i < bound.size(); ++i) CHECK(differences(gpu, stream, bound[i], i) == 0);
  }
  CHECK(mem.try_make_tensor<std::uint8_t>({700'000}, role::parameter).has_value());  // others go to the file
  bound.pop_back();
  CHECK(mem.try_make_tensor<std::uint8_t>({700'000}, role::parameter, vtier::placement_rule{.allowed_tiers = 3})
            .has_value());

  // Two tiers that are full to the brim could never exchange anything.
  vtier::hierarchy pair{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}}, limits(false)};
  auto a = pair.make_tensor<std::uint8_t>({1'000'000}, role::parameter);
  CHECK_THROWS_AS(pair.make_tensor<std::uint8_t>({1'000'000}, role::parameter), vtier::out_of_memory);
}

TEST_CASE("a hierarchy may die while its tensors are in use elsewhere") {
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  for (int i = 0; i < 20; ++i) {
    std::optional<vtier::hierarchy<vtier::host::device>> mem;
    mem.emplace(vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 4_MiB}}, limits(true));
    auto t = mem->make_tensor<std::uint8_t>({1000}, role::parameter);
    { auto lease = t.write(stream); }
    std::thread user{[&] {
      for (int k = 0; k < 200; ++k) auto lease = t.read(stream);
    }};
    mem.reset();
    user.join();
  }
  CHECK(true);  // ThreadSanitizer is the judge
}
