// SPDX-License-Identifier: Apache-2.0
// A CUDA GPU as a device: the contract where there is one, and what is said where there is none.

#include <string>
#include <utility>

#include "support/catch.hpp"

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/detail/cuda_words.hpp>

#if VTIER_HAS_CUDA

#include <optional>

#include <cuda_runtime_api.h>

#include "contract/device.hpp"
#include "contract/device_range.hpp"

#include <vtier/device/cuda.hpp>

namespace {

bool has_gpu() {
  if (vtier::cuda::device::count() > 0) return true;
  WARN("skipped: this machine has no CUDA device");
  return false;
}

// The toolkit's macros are C casts.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
cudaStream_t legacy_stream() { return cudaStreamLegacy; }
cudaStream_t per_thread_stream() { return cudaStreamPerThread; }
#pragma GCC diagnostic pop

// Dies after main, and after the runtime on some systems.
std::optional<vtier::cuda::stream> left_behind;
std::optional<vtier::cuda::event> left_event;

}  // namespace

TEST_CASE("cuda device: without a GPU, constructing says what is missing and what to use") {
  if (vtier::cuda::device::count() > 0) {
    WARN("skipped: this machine has a CUDA device");
    return;
  }
  try {
    const vtier::cuda::device gpu;
    FAIL("a device was made where there is none");
  } catch (const vtier::device_error& e) {
    CAPTURE(e.what());
    const bool known = e.native_code() == 34 || e.native_code() == 35 || e.native_code() == 100;
    CHECK(known);
    CHECK(std::string{e.what()}.find("vtier::host::device") != std::string::npos);
  }
}

TEST_CASE("cuda device: the contract") {
  if (has_gpu()) contract::device_contract(vtier::cuda::device{0});
}

TEST_CASE("cuda device: memory that grows where it stands") {
  if (!has_gpu()) return;
  const vtier::cuda::device on;
  if (!on.make_range(1)) {
    WARN("skipped: this GPU or its driver has no virtual memory");
    return;
  }
  constexpr std::size_t large = std::size_t{32} << 20U;  // a whole GPU in few steps
  const bool small = on.memory().total_bytes < 16 * large;
  contract::device_range_contract(on, {.granule_bytes = small ? 0 : large, .exact = false});
}

TEST_CASE("cuda device: one number is one device, with a PCI address") {
  if (!has_gpu()) return;
  const vtier::cuda::device a{0};
  const vtier::cuda::device b;
  CHECK(a == b);
  CHECK(a.ordinal() == 0);
  CHECK(a.bus_id().find(':') != std::string::npos);
  CHECK(a.name().rfind("cuda:0 ", 0) == 0);
}

TEST_CASE("cuda device: a number that is not there") {
  if (!has_gpu()) return;
  for (const int ordinal : {-1, vtier::cuda::device::count()}) {
    try {
      const vtier::cuda::device gpu{ordinal};
      FAIL("a device was made where there is none");
    } catch (const vtier::device_error& e) {
      CHECK(e.native_code() == cudaErrorInvalidDevice);
    }
  }
}

TEST_CASE("cuda device: the per-thread default stream is refused, the legacy one works") {
  CHECK_THROWS_AS(vtier::cuda::stream_ref{per_thread_stream()}, vtier::usage_error);
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
  CHECK_THROWS_AS(vtier::cuda::stream_ref{nullptr}, vtier::usage_error);
#endif
  if (!has_gpu()) return;
  const vtier::cuda::device on;
  int ran = 0;
#if !defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
  on.launch(nullptr, [&ran] { ++ran; });
  on.synchronize(vtier::cuda::stream_ref{nullptr});
  CHECK(ran == 1);
#endif
  on.launch(legacy_stream(), [&ran] { ran = 2; });
  on.synchronize(vtier::cuda::stream_ref{legacy_stream()});
  CHECK(ran == 2);
}

TEST_CASE("cuda device: streams of the user, given as they are") {
  if (!has_gpu()) return;
  const vtier::cuda::device on;
  cudaStream_t raw = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking) == cudaSuccess);
  int ran = 0;
  on.launch(raw, [&ran] { ++ran; });
  on.synchronize(on.record(raw));
  CHECK(ran == 1);
  const vtier::cuda::stream_ref name = raw;
  const cudaStream_t back = name;
  CHECK(back == raw);
  CHECK(cudaStreamDestroy(raw) == cudaSuccess);
}

TEST_CASE("cuda device: a stream that was moved from is refused, not taken for the default stream") {
  if (!has_gpu()) return;
  const vtier::cuda::device on;
  auto a = on.make_stream();
  const auto b = std::move(a);
  CHECK_THROWS_AS(on.record(a), vtier::usage_error);  // NOLINT: that is the point
  on.synchronize(b);
}

TEST_CASE("cuda device: an error is reported once and the user's own is left alone") {
  if (!has_gpu()) return;
  const vtier::cuda::device on;
  CHECK_THROWS_AS(on.allocate(on.memory().total_bytes * 2), vtier::out_of_memory);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  on.unregister_host(&left_behind);  // never registered
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaSetDevice(-1) != cudaSuccess);  // the user's
  const cudaError_t theirs = cudaPeekAtLastError();
  CHECK(theirs != cudaSuccess);
  CHECK_THROWS_AS(on.allocate(on.memory().total_bytes * 2), vtier::out_of_memory);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("cuda device: the caller's device stays current") {
  if (!has_gpu()) return;
  const int last = vtier::cuda::device::count() - 1;
  if (last == 0) WARN("one GPU only: this shows less than with two");
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const vtier::cuda::device on{last};
  const auto s = on.make_stream();
  void* const block = on.allocate(s, 4096);
  on.fill(s, block, std::byte{1}, 4096);
  on.deallocate(s, block, 4096);
  on.synchronize(s);
  int now = -1;
  CHECK(cudaGetDevice(&now) == cudaSuccess);
  CHECK(now == 0);
}

TEST_CASE("cuda device: what dies after main") {
  if (!has_gpu()) return;
  const vtier::cuda::device on;
  left_behind.emplace(on.make_stream());
  left_event.emplace(on.record(*left_behind));
}

#else

TEST_CASE("cuda device: not built here") { WARN("skipped: built without the CUDA toolkit (VTIER_HAS_CUDA is 0)"); }

#endif

TEST_CASE("cuda device: what is said where it is missing names the cause and the way out") {
  using vtier::detail::check_cuda_present;
  using vtier::detail::cuda_answer;
  const auto said = [](int ordinal, const cuda_answer& answer) -> std::pair<int, std::string> {
    try {
      check_cuda_present(ordinal, answer);
    } catch (const vtier::device_error& e) {
      return {e.native_code(), e.what()};
    }
    return {0, ""};
  };
  const auto has = [](const std::string& text, const char* word) { return text.find(word) != std::string::npos; };

  CHECK(said(0, {0, 1, 13000, "cudaSuccess"}).first == 0);
  CHECK(said(1, {0, 2, 13000, "cudaSuccess"}).first == 0);
  for (const int code : {3, 34, 35, 100, 999}) {
    CAPTURE(code);
    const auto [number, text] = said(0, {code, 0, 13000, "cudaErrorUnknown"});
    CHECK(number == code);
    CHECK(has(text, "vtier::host::device"));
  }
  CHECK(has(said(0, {3, 0, 13000, ""}).second, "fork before the first use"));
  CHECK(has(said(0, {34, 0, 13000, ""}).second, "stub"));
  CHECK(has(said(0, {35, 0, 13000, ""}).second, "13000"));
  CHECK(has(said(0, {100, 0, 13000, ""}).second, "CUDA_VISIBLE_DEVICES"));
  CHECK(has(said(0, {999, 0, 13000, "cudaErrorUnknown"}).second, "cudaErrorUnknown"));
  CHECK(said(0, {0, 0, 13000, "cudaSuccess"}).first == 100);
  CHECK(said(2, {0, 2, 13000, "cudaSuccess"}).first == 101);
  CHECK(said(-1, {0, 2, 13000, "cudaSuccess"}).first == 101);
  CHECK(has(said(2, {0, 2, 13000, "cudaSuccess"}).second, "device 2"));
}
