// SPDX-License-Identifier: Apache-2.0
// The stand-in itself: the parts of the CUDA contract that bite, and that it reports who breaks them.

#include <dlfcn.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "cuda_runtime/control.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

namespace {

using vtier::test::standin;
using vtier::test::standin_gpu;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
cudaStream_t legacy_stream() { return cudaStreamLegacy; }
#pragma GCC diagnostic pop

bool stands_in(std::uint64_t seed = 1, std::vector<standin_gpu> gpus = {standin_gpu{}}) {
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

#define OK(call) REQUIRE((call) == cudaSuccess)

void add_stub(float*, float, int) {}
void add_body(dim3 grid, dim3 block, float* p, float amount, int count) {
  standin()->reads(p, static_cast<std::size_t>(count) * sizeof(float));
  standin()->writes(p, static_cast<std::size_t>(count) * sizeof(float));
  const int threads = static_cast<int>(grid.x * block.x);
  for (int i = 0; i < count && i < threads; ++i) p[i] += amount;
}

}  // namespace

TEST_CASE("it is the stand-in that answers, or the real runtime and no stand-in", "[cuda_runtime]") {
  Dl_info about{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&cudaMalloc), &about) != 0);
  Dl_info own{};
  const bool found = standin() != nullptr;
  if (found) {
    REQUIRE(dladdr(dlsym(RTLD_DEFAULT, "vtier_standin"), &own) != 0);
    CHECK(std::string{about.dli_fname} == own.dli_fname);
  }
  INFO(about.dli_fname);
  CHECK(std::string{about.dli_fname}.find("libcudart") != std::string::npos);
}

TEST_CASE("pageable memory is read at the call, page-locked memory when the copy runs", "[cuda_runtime]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    if (!stands_in(seed)) return;
    cudaStream_t s = nullptr;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    void* device = nullptr;
    OK(cudaMalloc(&device, 4096));
    std::vector<char> pageable(4096, 'a');
    OK(cudaMemcpyAsync(device, pageable.data(), 4096, cudaMemcpyHostToDevice, s));
    std::fill(pageable.begin(), pageable.end(), 'b');  // staged: no race
    standin()->writes(pageable.data(), 4096);
    std::vector<char> back(4096);
    OK(cudaMemcpyAsync(back.data(), device, 4096, cudaMemcpyDeviceToHost, s));  // blocks
    CHECK(back == std::vector<char>(4096, 'a'));
    CHECK(violations() == "");
    void* pinned = nullptr;
    OK(cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault));
    OK(cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyHostToDevice, s));
    standin()->writes(pinned, 4096);  // nobody has waited
    OK(cudaStreamSynchronize(s));
    CHECK(violations().find("a race") != std::string::npos);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(device));
    OK(cudaStreamDestroy(s));
  }
}

TEST_CASE("the legacy default stream is ordered with blocking streams and with no others", "[cuda_runtime]") {
  std::size_t races = 0;
  for (const bool blocking : {true, false}) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      if (!stands_in(seed)) return;
      cudaStream_t s = nullptr;
      OK(cudaStreamCreateWithFlags(&s, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
      void* p = nullptr;
      OK(cudaMalloc(&p, 1024));
      OK(cudaMemsetAsync(p, 1, 1024, s));
      OK(cudaMemsetAsync(p, 2, 1024, legacy_stream()));
      OK(cudaMemsetAsync(p, 3, 1024, s));
      OK(cudaDeviceSynchronize());
      const bool raced = violations().find("a race") != std::string::npos;
      CHECK(raced == !blocking);
      races += raced ? 1U : 0U;
      OK(cudaFree(p));
      OK(cudaStreamDestroy(s));
    }
  }
  CHECK(races == 50);
}

TEST_CASE("an event holds the recording that it had when it was waited for", "[cuda_runtime]") {
  if (!stands_in()) return;
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaEvent_t e = nullptr;
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  OK(cudaEventCreate(&e));
  OK(cudaEventQuery(e));  // never recorded: passed
  OK(cudaEventSynchronize(e));
  OK(cudaStreamWaitEvent(b, e, 0));
  void* p = nullptr;
  OK(cudaMalloc(&p, 1024));
  OK(cudaMemsetAsync(p, 1, 1024, a));
  OK(cudaEventRecord(e, a));
  OK(cudaStreamWaitEvent(b, e, 0));
  OK(cudaMemsetAsync(p, 2, 1024, b));
  OK(cudaEventRecord(e, b));  // another recording: a does not know of b's work by the first
  OK(cudaStreamWaitEvent(a, e, 0));
  OK(cudaMemsetAsync(p, 3, 1024, a));
  OK(cudaDeviceSynchronize());
  CHECK(violations() == "");
  OK(cudaFree(p));
  OK(cudaEventDestroy(e));
  CHECK(cudaEventQuery(e) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaSuccess);
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  CHECK(violations(true) == "");
}

TEST_CASE("a device that has failed stays so", "[cuda_runtime]") {
  if (!stands_in()) return;
  cudaStream_t s = nullptr;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  standin()->break_device(0, cudaErrorIllegalAddress);
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  }
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 16) == cudaErrorIllegalAddress);
}

TEST_CASE("host functions may not call the runtime, and reach no device memory", "[cuda_runtime]") {
  if (!stands_in()) return;
  cudaStream_t s = nullptr;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  cudaError_t inside = cudaSuccess;
  OK(cudaLaunchHostFunc(
      s, [](void* result) { *static_cast<cudaError_t*>(result) = cudaDeviceSynchronize(); }, &inside));
  OK(cudaStreamSynchronize(s));
  CHECK(inside == cudaErrorNotPermitted);
  CHECK(violations().find("called from a host function") != std::string::npos);
  int* p = nullptr;
  OK(cudaMalloc(reinterpret_cast<void**>(&p), 64));
  CHECK(vtier::test::in_child([&] { return *static_cast<volatile int*>(p) == 0; }).signal == SIGSEGV);
  const auto from_host_function = vtier::test::in_child([&] {
    static_cast<void>(cudaLaunchHostFunc(
        s, [](void* q) { *static_cast<volatile int*>(q) = 1; }, p));
    static_cast<void>(cudaStreamSynchronize(s));
  });
  CHECK(from_host_function.signal == SIGSEGV);
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
}

TEST_CASE("kernels run on the host, in stream order, with the arguments of their launch", "[cuda_runtime]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    if (!stands_in(seed)) return;
    vtier::test::bind_kernel(&add_stub, &add_body);
    cudaStream_t s = nullptr;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    float* p = nullptr;
    OK(cudaMalloc(reinterpret_cast<void**>(&p), 1000 * sizeof(float)));
    OK(cudaMemsetAsync(p, 0, 1000 * sizeof(float), s));
    float sum = 0;
    for (int i = 1; i <= 5; ++i) {
      const auto amount = static_cast<float>(i);
      OK(vtier::test::launch_kernel(&add_stub, dim3{4}, dim3{256}, s, p, amount, 1000));
      sum += amount;
    }
    std::vector<float> back(1000);
    OK(cudaMemcpyAsync(back.data(), p, 1000 * sizeof(float), cudaMemcpyDeviceToHost, s));
    CHECK(back == std::vector<float>(1000, sum));
    CHECK(vtier::test::launch_kernel(&add_stub, dim3{4}, dim3{2048}, s, p, 1.0F, 1000) ==
          cudaErrorInvalidConfiguration);
    OK(cudaFree(p));
    OK(cudaStreamDestroy(s));
    CHECK(violations(true) == "");
  }
}

TEST_CASE("a handle is used again at once, and means another stream (VO-D04)", "[cuda_runtime]") {
  if (!stands_in()) return;
  cudaStream_t first = nullptr;
  OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  void* p = nullptr;
  OK(cudaMalloc(&p, 1024));
  OK(cudaMemsetAsync(p, 1, 1024, first));
  OK(cudaStreamDestroy(first));
  cudaStream_t second = nullptr;
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(second == first);
  OK(cudaMemsetAsync(p, 2, 1024, second));  // not ordered behind the first stream's work
  OK(cudaStreamSynchronize(second));
  for (int i = 0; i < 1000; ++i) static_cast<void>(cudaStreamQuery(second));
  CHECK(violations().find("a race") != std::string::npos);
  OK(cudaStreamDestroy(second));
}

TEST_CASE("memory of a pool is used again in stream order", "[cuda_runtime]") {
  if (!stands_in(3, {standin_gpu{4096, "tiny", "0000:01:00.0"}})) return;
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  void* p = nullptr;
  OK(cudaMallocAsync(&p, 4096, a));
  OK(cudaMemsetAsync(p, 1, 4096, a));
  void* q = nullptr;
  CHECK(cudaMallocAsync(&q, 4096, b) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  OK(cudaFreeAsync(p, a));
  OK(cudaMallocAsync(&q, 4096, b));
  OK(cudaMemsetAsync(q, 2, 4096, b));
  OK(cudaFreeAsync(q, b));
  OK(cudaDeviceSynchronize());
  CHECK(violations() == "");
  OK(cudaMalloc(&p, 1024));
  CHECK(violations() == "");
  CHECK(violations(true).find("leaked: 1024 bytes") != std::string::npos);
}

TEST_CASE("a call fails when it was told to, once", "[cuda_runtime]") {
  if (!stands_in()) return;
  void* p = nullptr;
  standin()->fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  OK(cudaMalloc(&p, 16));
  void* q = nullptr;
  CHECK(cudaMalloc(&q, 16) == cudaErrorMemoryAllocation);
  OK(cudaMalloc(&q, 16));
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(standin()->calls("cudaMalloc", 0) == 3);
  CHECK(standin()->calls("cudaMalloc", 1) == 0);
}
