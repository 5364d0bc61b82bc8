// SPDX-License-Identifier: Apache-2.0
// Threads that the system refuses to start, each of them in turn, and threads that a forked child has not. This
// program's pthread_create and pthread_join stand before the system's, which they call.

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"
#include "support/traffic.hpp"

// A sanitizer that is linked into the program defines the function there itself; as a library it can be stood before.
#if defined(__clang__) && defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define VTIER_TEST_NO_STAND_IN 1
#endif
#endif

namespace {

std::atomic<int> starts_until_refused{-1};  // negative: none is refused
std::atomic<int> refused_count{0};
std::atomic<int> join_count{0};

}  // namespace

#ifndef VTIER_TEST_NO_STAND_IN
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                              void* argument) noexcept {
  if (starts_until_refused >= 0 && starts_until_refused-- == 0) {
    ++refused_count;
    return EAGAIN;
  }
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, function, argument);
}

extern "C" int pthread_join(pthread_t thread, void** result) {
  ++join_count;
  static const auto real = reinterpret_cast<decltype(&pthread_join)>(::dlsym(RTLD_NEXT, "pthread_join"));
  return real(thread, result);
}
#endif

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

std::size_t entries(const char* directory) {
  using iterator = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(iterator{directory}, iterator{}));
}

/// How many threads there are, once those that were joined are no longer listed: they are for a moment.
std::size_t settled_threads() {
  std::size_t count = entries("/proc/self/task");
  for (int same = 0; same < 100; ++same) {
    ::usleep(1000);
    if (const std::size_t now = entries("/proc/self/task"); now != count) {
      count = now;
      same = 0;
    }
  }
  return count;
}

/// Runs `act` with its first, second, third ... thread refused, until none is; gives how often one was. `act` throws
/// nothing but vtier::error, which names threads, and gives everything back.
template <class Act>
int with_each_thread_refused(const Act& act) {
  std::thread{[] {}}.join();  // a sanitizer starts one of its own beside the first
  std::size_t threads = settled_threads();
  int refusals = 0;
  for (int at = 0;; ++at) {
    CAPTURE(at);
    const std::size_t files = entries("/proc/self/fd");
    refused_count = 0;
    starts_until_refused = at;
    try {
      act();
      CHECK(refused_count == 0);
    } catch (const vtier::error& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(refused_count == 1);
      CHECK(text.find("thread") != std::string::npos);
      CHECK(text.find("limit") != std::string::npos);
    }
    starts_until_refused = -1;
    // Those of earlier tests may have left the list since.
    for (int i = 0; i < 10'000 && entries("/proc/self/task") > threads; ++i) ::usleep(1000);
    CHECK(entries("/proc/self/task") <= threads);
    threads = (std::min)(threads, entries("/proc/self/task"));
    CHECK(entries("/proc/self/fd") == files);
    if (refused_count == 0) return refusals;
    ++refusals;
    REQUIRE(refusals < 100);
  }
}

}  // namespace

TEST_CASE("each thread that does not start is an error that says so, and everything is given back", "[cases]") {
#ifdef VTIER_TEST_NO_STAND_IN
  WARN("skipped: the sanitizer of this program starts its threads");
#else
  const vtier::test::scratch_directory directory;
  const vtier::host::device gpu{{.memory_bytes = 8_MiB, .name = "toy"}};
  const vtier::hbm first{gpu, {.budget = 1_MiB}};
  const vtier::pinned second{{.budget = 1_MiB}};
  const vtier::mapped_file third{directory.path().string(),
                                 {.budget = 8_MiB, .engine = vtier::io::engine_kind::threads}};
  int made = 0;
  int worked = 0;
  const int refusals = with_each_thread_refused([&] {
    // All was given back the time before.
    CHECK(first.free_bytes() == 1_MiB);
    CHECK(second.free_bytes() == 1_MiB);
    CHECK(third.free_bytes() == 8_MiB);
    CHECK(gpu.memory().free_bytes == 8_MiB);
    vtier::hierarchy mem{first, second, third};
    ++made;
    const auto s = gpu.make_stream();
    auto a = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
    auto b = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
    auto c = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
    fill(gpu, s, a, 1);
    fill(gpu, s, b, 2);
    fill(gpu, s, c, 3);
    CHECK(differences(gpu, s, a, 1) == 0);
    ++worked;
  });
  CHECK(refusals >= 5);  // two streams, the workers of the file engine, the progress thread, a stream of the caller's
  CHECK(worked == 1);
  CHECK(made == 2);  // the last refusal was the caller's stream
  CHECK(first.free_bytes() == 1_MiB);
  CHECK(directory.empty());
#endif
}

TEST_CASE("without a progress thread no hierarchy needs more than its device's streams", "[cases]") {
#ifdef VTIER_TEST_NO_STAND_IN
  WARN("skipped: the sanitizer of this program starts its threads");
#else
  const vtier::host::device gpu;
  const int refusals = with_each_thread_refused([&] {
    vtier::options limits;
    limits.progress_thread = false;
    const vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}}, limits};
    CHECK(mem.count().errors.empty());
  });
  CHECK(refusals == 2);
#endif
}

TEST_CASE("a forked child joins none of the threads that it does not have (VO-C07)", "[cases]") {
#ifdef VTIER_TEST_NO_STAND_IN
  WARN("skipped: the sanitizer of this program starts its threads");
#else
  const vtier::test::scratch_directory directory;
  auto busy = std::make_unique<vtier::test::traffic>(directory.path(), 1, vtier::io::engine_kind::threads);
  CHECK(busy->steps(20) == 0);
  const auto end = vtier::test::in_child([&] {
    ::alarm(60);
    const int before = join_count;
    busy.reset();
    return join_count == before;
  });
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  const int before = join_count;
  busy.reset();
  CHECK(join_count >= before + 4);  // the stand-in works
#endif
}
