// SPDX-License-Identifier: Apache-2.0
#pragma once

// A CUDA GPU as a device.
//
// The only header, with its details, that includes CUDA and looks at its version. It links no driver function, so that
// one binary runs with any driver, or with a stand-in for libcudart.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include <vtier/core/clock.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/detail/cuda_calls.hpp>
#include <vtier/device/detail/cuda_range.hpp>
#include <vtier/device/detail/cuda_words.hpp>
#include <vtier/device/detail/launch_failure.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/growable_device.hpp>
#include <vtier/device/timed_device.hpp>

#if CUDART_VERSION >= 12000  // else cuda_calls.hpp has said what is missing

namespace vtier::cuda {

class device;

/// A mark in a stream that passes once everything submitted before it has run; copies are the same mark.
///
/// Gives   a default-made one that has always passed. The last copy gives its CUDA event back to the device for reuse
/// Threads any
class event {
 public:
  event() = default;

 private:
  friend class device;
  explicit event(std::shared_ptr<const detail::recording> state) : state_{std::move(state)} {}
  std::shared_ptr<const detail::recording> state_;
};

/// A CUDA stream that somebody else owns; made from a cudaStream_t and turned into one without a word.
///
/// Needs   a stream that lives as long as work is given to it. The legacy default stream may be meant
///         (null, cudaStreamLegacy); what vtier does on streams of its own does not wait for it by itself
/// Errors  usage_error for the per-thread default stream: it names another stream in every thread. Under
///         --default-stream per-thread, null means that one
/// Threads any
class stream_ref {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): so that a trainer's stream can be given as it is
  stream_ref(cudaStream_t handle) : handle_{handle} {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    const bool is_per_thread = handle == nullptr || handle == per_thread();
#else
    const bool is_per_thread = handle == per_thread();
#endif
    if (is_per_thread) throw vtier::detail::cuda_per_thread_stream();
  }

  // NOLINTNEXTLINE(google-explicit-constructor): so that it can be given to CUDA and to a kernel launch as it is
  operator cudaStream_t() const noexcept { return handle_; }
  friend bool operator==(const stream_ref& a, const stream_ref& b) noexcept { return a.handle_ == b.handle_; }

 private:
  friend class stream;
  struct own {};
  stream_ref(cudaStream_t handle, own) noexcept : handle_{handle} {}

  [[nodiscard]] static cudaStream_t per_thread() noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
    return cudaStreamPerThread;
#pragma GCC diagnostic pop
  }

  cudaStream_t handle_;
};

/// A stream of its own, without ties to the legacy default stream.
///
/// Gives   destroying it does not block: what was submitted still runs
/// Threads any; moving and destroying it one at a time
class stream {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): as std::string to std::string_view
  operator stream_ref() const {
    // Null would be the legacy default stream: work would run, in the wrong order.
    if (handle_ == nullptr) throw usage_error("this CUDA stream was moved from; use the one that it moved to");
    return stream_ref{handle_.get(), stream_ref::own{}};
  }
  [[nodiscard]] cudaStream_t get() const noexcept { return handle_.get(); }

 private:
  friend class device;
  struct destroy {
    std::shared_ptr<const detail::shared> owner;
    // cudaErrorCudartUnloading at exit: the runtime is gone, and the stream with it.
    void operator()(cudaStream_t handle) const noexcept {
      owner->ask([&] { return ::cudaStreamDestroy(handle); });
    }
  };
  stream(cudaStream_t handle, std::shared_ptr<const detail::shared> owner) noexcept
      : handle_{handle, destroy{std::move(owner)}} {}
  std::unique_ptr<CUstream_st, destroy> handle_;
};

/// One CUDA GPU, by its number in this process.
///
/// Needs   a caller whose own device is another one has used it before: each call makes this device current, gives the
///         caller's back, and since CUDA 12 that makes a context on it. Threads that only use this device say
///         cudaSetDevice(ordinal) once, and nothing is switched at all
/// Gives   a handle; two of one number are equal
/// Errors  device_error with the cudaError_t, out_of_memory; the thread's last error is cleared of both. The first
///         exception of a launched function is kept and thrown as device_error by the next synchronize() on the device.
///         usage_error in a forked child, where CUDA is not called, not even by destructors
/// Threads any
/// Cost    as the runtime's call; copies with host memory that is not registered can block
/// Source  CUDA Runtime API, sections Stream, Event, Memory and Stream Ordered Memory Allocator
class device {
 public:
  using event = cuda::event;
  using stream = cuda::stream;
  using stream_ref = cuda::stream_ref;
  using range = detail::range;

  /// How many GPUs this process can use; 0 where there is no driver, no error.
  [[nodiscard]] static int count() noexcept {
    int found = 0;
    return detail::forget(::cudaGetDeviceCount(&found)) == cudaSuccess ? found : 0;
  }

  /// Errors  device_error that says what is missing: a driver (35), a real one instead of the toolkit's stub (34), a
  ///         GPU (100), or a GPU of this number (101)
  explicit device(int ordinal = 0) : state_{present(ordinal)} {
    int has = 0;
    constexpr auto pools = cudaDevAttrMemoryPoolsSupported;
    run("cudaDeviceGetAttribute", [&] { return ::cudaDeviceGetAttribute(&has, pools, ordinal); });
    state_->has_pools = has != 0;
    cudaDeviceProp properties;
    run("cudaGetDeviceProperties", [&] { return ::cudaGetDeviceProperties(&properties, ordinal); });
    state_->name = "cuda:" + std::to_string(ordinal) + " " + static_cast<const char*>(properties.name);
    char bus_id[32] = {};
    run("cudaDeviceGetPCIBusId",
        [&] { return ::cudaDeviceGetPCIBusId(static_cast<char*>(bus_id), static_cast<int>(sizeof bus_id), ordinal); });
    state_->bus_id = static_cast<const char*>(bus_id);
  }

  [[nodiscard]] int ordinal() const noexcept { return state_->ordinal; }

  [[nodiscard]] stream make_stream() const {
    cudaStream_t made = nullptr;
    run("cudaStreamCreateWithFlags", [&] { return ::cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); });
    return stream{made, state_};
  }

  /// Marks this point of the stream.
  [[nodiscard]] event record(stream_ref s) const { return mark_in(s, detail::timing::off); }

  /// The same, timed.
  ///
  /// Cost    a CUDA event of its own: they are not kept for reuse
  [[nodiscard]] event record_timed(stream_ref s) const { return mark_in(s, detail::timing::on); }

  /// The resolution is half a microsecond.
  [[nodiscard]] std::int64_t elapsed_ns(const event& from, const event& to) const {
    VTIER_ASSERT(from.state_ != nullptr && to.state_ != nullptr, "the time between events that were never recorded");
    float ms = 0.0F;
    run("cudaEventElapsedTime",
        [&] { return ::cudaEventElapsedTime(&ms, from.state_->handle(), to.state_->handle()); });
    return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
  }

  void wait(stream_ref s, const event& e) const {
    if (e.state_ == nullptr) return;
    run("cudaStreamWaitEvent", [&] { return ::cudaStreamWaitEvent(s, e.state_->handle(), 0); });
  }

  /// Errors  device_error where earlier work has failed
  [[nodiscard]] bool passed(const event& e) const {
    if (e.state_ == nullptr) return true;
    const cudaError_t code = state_->answer([&] { return ::cudaEventQuery(e.state_->handle()); });
    if (code == cudaErrorNotReady) return false;
    detail::check(ordinal(), "cudaEventQuery", code);
    return true;
  }

  void synchronize(const event& e) const {
    if (e.state_ == nullptr) return;
    run("cudaEventSynchronize", [&] { return ::cudaEventSynchronize(e.state_->handle()); });
    state_->failures->tell(name());
  }

  void synchronize(stream_ref s) const {
    run("cudaStreamSynchronize", [&] { return ::cudaStreamSynchronize(s); });
    state_->failures->tell(name());
  }

  /// Copies in stream order.
  ///
  /// Cost    host to host runs as a launched function, because the runtime's own copy would block the caller
  void copy(stream_ref s, void* target, const void* source, std::size_t size_bytes, copy_direction direction) const {
    if (size_bytes == 0) return;
    cudaMemcpyKind kind = cudaMemcpyHostToDevice;
    switch (direction) {
      case copy_direction::host_to_device: break;
      case copy_direction::device_to_host: kind = cudaMemcpyDeviceToHost; break;
      case copy_direction::device_to_device: kind = cudaMemcpyDeviceToDevice; break;
      case copy_direction::host_to_host:
        return launch(s, [target, source, size_bytes] { std::memcpy(target, source, size_bytes); });
    }
    run("cudaMemcpyAsync", [&] { return ::cudaMemcpyAsync(target, source, size_bytes, kind, s); });
  }

  void fill(stream_ref s, void* target, std::byte value, std::size_t size_bytes) const {
    if (size_bytes == 0) return;
    run("cudaMemsetAsync", [&] { return ::cudaMemsetAsync(target, std::to_integer<int>(value), size_bytes, s); });
  }

  /// Runs a function in stream order, on a thread of the runtime; work after it runs even if it throws. After an error
  /// of the device it does not run, and is not destroyed either.
  void launch(stream_ref s, std::function<void()> function) const {
    using vtier::detail::launched_function;
    if (function == nullptr) throw usage_error(name() + ": launch needs a function, this one is empty");
    auto call = std::make_unique<launched_function>(launched_function{std::move(function), state_->failures});
    run("cudaLaunchHostFunc", [&] { return ::cudaLaunchHostFunc(s, &launched_function::run, call.get()); });
    static_cast<void>(call.release());  // it destroys itself, perhaps it has by now
  }

  [[nodiscard]] void* allocate(std::size_t size_bytes) const {
    void* block = nullptr;
    if (size_bytes != 0) take(size_bytes, "cudaMalloc", [&] { return ::cudaMalloc(&block, size_bytes); });
    return block;
  }
  void deallocate(void* block, std::size_t) const noexcept {
    if (block != nullptr) state_->ask([&] { return ::cudaFree(block); });
  }

  /// Gives device memory for work of the stream from now on; blocks on a device without memory pools.
  [[nodiscard]] void* allocate(stream_ref s, std::size_t size_bytes) const {
    if (!state_->has_pools || size_bytes == 0) return allocate(size_bytes);
    void* block = nullptr;
    take(size_bytes, "cudaMallocAsync", [&] { return ::cudaMallocAsync(&block, size_bytes, s); });
    return block;
  }

  /// Takes device memory back once the stream has come here; blocks on a device without memory pools, and for memory
  /// that was not allocated in a stream.
  void deallocate(stream_ref s, void* block, std::size_t size_bytes) const noexcept {
    if (block == nullptr) return;
    if (state_->has_pools && state_->ask([&] { return ::cudaFreeAsync(block, s); }) == cudaSuccess) return;
    state_->ask([&] { return ::cudaStreamSynchronize(s); });
    deallocate(block, size_bytes);
  }

  /// Reserves addresses whose memory comes and goes piece by piece; empty where the device or its driver has no virtual
  /// memory. Only this device reaches it: kernels and copies of another one (peers) and other processes (IPC) do not.
  [[nodiscard]] std::optional<range> make_range(std::size_t size_bytes, std::size_t granule_bytes = 0) const {
    return range::make(state_, size_bytes, granule_bytes);
  }

  /// Page-locks host memory and makes it known to every device; false where the runtime refuses, as for memory that is
  /// registered already, for some mappings of files and beyond the locked-memory limit.
  [[nodiscard]] bool register_host(void* block, std::size_t size_bytes) const noexcept {
    constexpr unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    return state_->ask([&] { return ::cudaHostRegister(block, size_bytes, flags); }) == cudaSuccess;
  }
  void unregister_host(void* block) const noexcept {
    state_->ask([&] { return ::cudaHostUnregister(block); });
  }

  /// Gives page-locked host memory that every device can copy from; takes milliseconds.
  [[nodiscard]] void* allocate_host(std::size_t size_bytes) const {
    void* block = nullptr;
    if (size_bytes == 0) return block;
    const cudaError_t code = state_->answer([&] { return ::cudaHostAlloc(&block, size_bytes, cudaHostAllocPortable); });
    if (code == cudaErrorMemoryAllocation) throw vtier::detail::cuda_no_host_room(name(), size_bytes);
    detail::check(ordinal(), "cudaHostAlloc", code);
    return block;
  }
  void deallocate_host(void* block, std::size_t) const noexcept {
    if (block != nullptr) state_->ask([&] { return ::cudaFreeHost(block); });
  }

  /// What the GPU has free, other processes counted.
  [[nodiscard]] device_memory memory() const {
    device_memory now;
    run("cudaMemGetInfo", [&] { return ::cudaMemGetInfo(&now.free_bytes, &now.total_bytes); });
    return now;
  }

  /// Number and model: "cuda:0 NVIDIA H200".
  [[nodiscard]] std::string name() const { return state_->name; }
  /// As cudaDeviceGetPCIBusId writes it: "0000:3B:00.0".
  [[nodiscard]] std::string bus_id() const { return state_->bus_id; }
  [[nodiscard]] std::int64_t now_ns() const noexcept { return vtier::steady_clock{}.now_ns(); }
  void pause(std::int64_t ns) const { vtier::sleep_for_ns(ns); }

  friend bool operator==(const device& a, const device& b) noexcept { return a.ordinal() == b.ordinal(); }

 private:
  [[nodiscard]] event mark_in(stream_ref s, detail::timing time) const {
    auto made = std::make_shared<const detail::recording>(state_, time);
    run("cudaEventRecord", [&] { return ::cudaEventRecord(made->handle(), s); });
    return event{std::move(made)};
  }

  template <class Call>
  void run(const char* name, Call call) const {
    detail::check(ordinal(), name, state_->answer(call));
  }

  template <class Call>
  void take(std::size_t size_bytes, const char* name, Call call) const {
    const cudaError_t code = state_->answer(call);
    if (code != cudaErrorMemoryAllocation) return detail::check(ordinal(), name, code);
    device_memory now;
    state_->ask([&] { return ::cudaMemGetInfo(&now.free_bytes, &now.total_bytes); });
    throw vtier::detail::cuda_no_room(state_->name, name, size_bytes, now);
  }

  static std::shared_ptr<detail::shared> present(int ordinal) {
    vtier::detail::cuda_answer answer;
    const cudaError_t code = detail::forget(::cudaGetDeviceCount(&answer.device_count));
    answer.code = static_cast<int>(code);
    answer.runtime_version = CUDART_VERSION;
    answer.name = ::cudaGetErrorName(code);
    vtier::detail::check_cuda_present(ordinal, answer);
    return std::make_shared<detail::shared>(ordinal);
  }

  std::shared_ptr<detail::shared> state_;
};

static_assert(vtier::growable_device<cuda::device>);
static_assert(vtier::timed_device<cuda::device>);

}  // namespace vtier::cuda
#endif  // CUDART_VERSION
