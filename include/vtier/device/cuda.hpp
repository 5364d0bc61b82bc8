// SPDX-License-Identifier: Apache-2.0
#pragma once

// A CUDA GPU as a device.
//
// The only header that includes the CUDA runtime, and the only place that looks at its version. It uses the runtime's
// own functions and no driver function, so that one binary runs with any driver, or with a stand-in for libcudart.

#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/detail/cuda_absence.hpp>
#include <vtier/device/detail/launch_failure.hpp>
#include <vtier/device/device.hpp>

#if CUDART_VERSION < 12000
#error "vtier needs CUDA 12 or newer; without it, use vtier::host::device"
#else

namespace vtier::cuda {

namespace detail {

using vtier::detail::launch_failures;

/// Takes an error that has been reported off the thread's last error, so that the user's next check does not meet it;
/// an error of the user's own stays.
inline void forget(cudaError_t code) noexcept {
  if (::cudaPeekAtLastError() == code) ::cudaGetLastError();
}

/// Throws what a runtime function has answered, unless that is success.
inline void check(cudaError_t code, const char* call, int ordinal) {
  if (code == cudaSuccess) return;
  forget(code);
  throw device_error(static_cast<int>(code), "CUDA device " + std::to_string(ordinal) + ": " + call + " answered " +
                                                 ::cudaGetErrorName(code) + " (" +
                                                 std::to_string(static_cast<int>(code)) + "): " +
                                                 ::cudaGetErrorString(code));
}

/// Makes a device the thread's current one, and gives the caller's back.
class current {
 public:
  explicit current(int ordinal) noexcept {
    code_ = ::cudaGetDevice(&before_);
    if (code_ != cudaSuccess || before_ == ordinal) return;
    code_ = ::cudaSetDevice(ordinal);
    changed_ = code_ == cudaSuccess;
  }
  current(const current&) = delete;
  current& operator=(const current&) = delete;
  ~current() {
    if (changed_) forget(::cudaSetDevice(before_));
  }

  [[nodiscard]] cudaError_t code() const noexcept { return code_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t code_ = cudaSuccess;
};

/// The same where a failure is to be thrown.
class entered : public current {
 public:
  explicit entered(int ordinal) : current{ordinal} { check(code(), "cudaSetDevice", ordinal); }
};

/// What the handles of a device share; it outlives them as long as an event is held.
class shared {
 public:
  explicit shared(int ordinal) : ordinal_{ordinal} {}
  shared(const shared&) = delete;
  shared& operator=(const shared&) = delete;
  ~shared() {
    const current here{ordinal_};
    for (const cudaEvent_t e : idle_) forget(::cudaEventDestroy(e));  // at exit the runtime may be gone: nothing to do
  }

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }

  /// Needs   the device is current
  [[nodiscard]] cudaEvent_t take_event() {
    {
      const std::scoped_lock hold{lock_};
      if (!idle_.empty()) {
        const cudaEvent_t e = idle_.back();
        idle_.pop_back();
        return e;
      }
    }
    cudaEvent_t e = nullptr;
    check(::cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags", ordinal_);
    return e;
  }

  /// Takes an event for reuse, passed or not: a wait has read the recording that it waits for when it was submitted.
  void give_event(cudaEvent_t e) noexcept {
    try {
      const std::scoped_lock hold{lock_};
      if (idle_.size() < idle_events_max) {
        idle_.push_back(e);
        return;
      }
    } catch (...) {  // no memory to keep it
    }
    const current here{ordinal_};
    forget(::cudaEventDestroy(e));
  }

  bool has_pools = false;
  std::string name;
  std::string bus_id;
  // Apart: a host function of CUDA holds it, and must not be the one that lets go of anything of CUDA's.
  const std::shared_ptr<launch_failures> failed = std::make_shared<launch_failures>();

 private:
  static constexpr std::size_t idle_events_max = 4096;

  int ordinal_;
  std::mutex lock_;
  std::vector<cudaEvent_t> idle_;
};

/// One recording.
class recording {
 public:
  /// Needs   the device is current
  explicit recording(std::shared_ptr<shared> owner) : owner_{std::move(owner)}, handle_{owner_->take_event()} {}
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  ~recording() { owner_->give_event(handle_); }

  [[nodiscard]] cudaEvent_t handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<shared> owner_;
  cudaEvent_t handle_;
};

/// A function on its way through a stream.
struct launched {
  std::function<void()> function;
  std::shared_ptr<launch_failures> failed;

  static void CUDART_CB run(void* self) noexcept {
    const std::unique_ptr<launched> owned{static_cast<launched*>(self)};
    try {
      owned->function();
    } catch (...) {
      owned->failed->keep(std::current_exception());
    }
  }
};

}  // namespace detail

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
    if (is_per_thread) {
      throw usage_error(
          "the per-thread default stream (cudaStreamPerThread) means another stream in every thread, and vtier's "
          "threads would wait for their own; make a stream by cudaStreamCreateWithFlags or device::make_stream");
    }
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
  stream(stream&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)}, ordinal_{other.ordinal_} {}
  stream& operator=(stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(ordinal_, other.ordinal_);
    return *this;
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() {
    if (handle_ == nullptr) return;
    const detail::current here{ordinal_};
    detail::forget(::cudaStreamDestroy(handle_));  // at exit the runtime may be gone, and the stream with it
  }

  // NOLINTNEXTLINE(google-explicit-constructor): as std::string to std::string_view
  operator stream_ref() const {
    // Null would be the legacy default stream: work would run, in the wrong order.
    if (handle_ == nullptr) throw usage_error("this CUDA stream was moved from; use the one that it moved to");
    return stream_ref{handle_, stream_ref::own{}};
  }
  [[nodiscard]] cudaStream_t get() const noexcept { return handle_; }

 private:
  friend class device;
  stream(cudaStream_t handle, int ordinal) noexcept : handle_{handle}, ordinal_{ordinal} {}
  cudaStream_t handle_;
  int ordinal_;
};

/// One CUDA GPU, by its number in this process.
///
/// Needs   a caller whose own device is another one has used it before: each call makes this device current, gives the
///         caller's back, and since CUDA 12 that makes a context on it. Threads that only use this device say
///         cudaSetDevice(ordinal) once, and nothing is switched at all
/// Gives   a handle; two of one number are equal
/// Errors  device_error with the cudaError_t, out_of_memory (the thread's last error is cleared of both). What a launched
///         function throws is kept, the first of them, and thrown as device_error by the next synchronize() on the device
/// Threads any
/// Cost    one runtime call for each member but where it says more; the host blocks as the runtime documents, so copies
///         with host memory that is not registered can block
/// Source  CUDA Runtime API, sections Stream, Event, Memory and Stream Ordered Memory Allocator
class device {
 public:
  using event = cuda::event;
  using stream = cuda::stream;
  using stream_ref = cuda::stream_ref;

  /// How many GPUs this process can use; 0 where there is no driver.
  ///
  /// Errors  none
  [[nodiscard]] static int count() noexcept {
    int found = 0;
    const cudaError_t code = ::cudaGetDeviceCount(&found);
    if (code == cudaSuccess) return found;
    detail::forget(code);
    return 0;
  }

  /// Errors  device_error that says what is missing: a driver (35), a real one instead of the toolkit's stub (34), a GPU
  ///         (100), or a GPU of this number (101)
  explicit device(int ordinal = 0) : state_{std::make_shared<detail::shared>(ordinal)} {
    check_present(ordinal);
    const detail::entered here{ordinal};
    int has_pools = 0;
    check(::cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, ordinal), "cudaDeviceGetAttribute");
    state_->has_pools = has_pools != 0;
    cudaDeviceProp properties;
    check(::cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    state_->name = "cuda:" + std::to_string(ordinal) + " " + static_cast<const char*>(properties.name);
    char bus_id[32] = {};
    check(::cudaDeviceGetPCIBusId(bus_id, static_cast<int>(sizeof bus_id), ordinal), "cudaDeviceGetPCIBusId");
    state_->bus_id = static_cast<const char*>(bus_id);
  }

  [[nodiscard]] int ordinal() const noexcept { return state_->ordinal(); }

  [[nodiscard]] stream make_stream() const {
    const detail::entered here{ordinal()};
    cudaStream_t made = nullptr;
    check(::cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream{made, ordinal()};
  }

  /// Marks this point of the stream, with a CUDA event that was used before where one is idle.
  [[nodiscard]] event record(stream_ref s) const {
    const detail::entered here{ordinal()};
    const auto made = std::make_shared<const detail::recording>(state_);
    check(::cudaEventRecord(made->handle(), s), "cudaEventRecord");
    return event{made};
  }

  void wait(stream_ref s, const event& e) const {
    if (e.state_ == nullptr) return;
    const detail::entered here{ordinal()};
    check(::cudaStreamWaitEvent(s, e.state_->handle(), 0), "cudaStreamWaitEvent");
  }

  /// Errors  device_error where earlier work has failed
  [[nodiscard]] bool passed(const event& e) const {
    if (e.state_ == nullptr) return true;
    const detail::entered here{ordinal()};
    const cudaError_t code = ::cudaEventQuery(e.state_->handle());
    if (code == cudaErrorNotReady) {
      detail::forget(code);  // an answer, not an error
      return false;
    }
    check(code, "cudaEventQuery");
    return true;
  }

  void synchronize(const event& e) const {
    if (e.state_ == nullptr) return;
    const detail::entered here{ordinal()};
    check(::cudaEventSynchronize(e.state_->handle()), "cudaEventSynchronize");
    state_->failed->tell(name());
  }

  void synchronize(stream_ref s) const {
    const detail::entered here{ordinal()};
    check(::cudaStreamSynchronize(s), "cudaStreamSynchronize");
    state_->failed->tell(name());
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
        launch(s, [target, source, size_bytes] { std::memcpy(target, source, size_bytes); });
        return;
    }
    const detail::entered here{ordinal()};
    check(::cudaMemcpyAsync(target, source, size_bytes, kind, s), "cudaMemcpyAsync");
  }

  void fill(stream_ref s, void* target, std::byte value, std::size_t size_bytes) const {
    if (size_bytes == 0) return;
    const detail::entered here{ordinal()};
    check(::cudaMemsetAsync(target, std::to_integer<int>(value), size_bytes, s), "cudaMemsetAsync");
  }

  /// Runs a function in stream order, on a thread of the runtime; work after it runs even if it throws. After an error
  /// of the device it does not run, and is not destroyed either.
  void launch(stream_ref s, std::function<void()> function) const {
    if (function == nullptr) throw usage_error(name() + ": launch needs a function, this one is empty");
    const detail::entered here{ordinal()};
    auto call = std::make_unique<detail::launched>(detail::launched{std::move(function), state_->failed});
    check(::cudaLaunchHostFunc(s, &detail::launched::run, call.get()), "cudaLaunchHostFunc");
    static_cast<void>(call.release());  // the function is its own from here on
  }

  [[nodiscard]] void* allocate(std::size_t size_bytes) const {
    if (size_bytes == 0) return nullptr;
    const detail::entered here{ordinal()};
    void* block = nullptr;
    check_room(::cudaMalloc(&block, size_bytes), "cudaMalloc", size_bytes);
    return block;
  }

  void deallocate(void* block, std::size_t) const noexcept {
    if (block == nullptr) return;
    const detail::current here{ordinal()};
    detail::forget(::cudaFree(block));
  }

  /// Gives device memory for work of the stream from now on; blocks on a device without memory pools.
  [[nodiscard]] void* allocate(stream_ref s, std::size_t size_bytes) const {
    if (!state_->has_pools || size_bytes == 0) return allocate(size_bytes);
    const detail::entered here{ordinal()};
    void* block = nullptr;
    check_room(::cudaMallocAsync(&block, size_bytes, s), "cudaMallocAsync", size_bytes);
    return block;
  }

  /// Takes device memory back once the stream has come here; blocks on a device without memory pools, and for memory
  /// that was not allocated in a stream.
  void deallocate(stream_ref s, void* block, std::size_t size_bytes) const noexcept {
    if (block == nullptr) return;
    const detail::current here{ordinal()};
    if (state_->has_pools) {
      const cudaError_t code = ::cudaFreeAsync(block, s);
      if (code == cudaSuccess) return;
      detail::forget(code);
    }
    detail::forget(::cudaStreamSynchronize(s));
    deallocate(block, size_bytes);
  }

  /// Page-locks host memory and makes it known to every device; false where the runtime refuses, as for memory that is
  /// registered already, for some mappings of files and beyond the locked-memory limit.
  [[nodiscard]] bool register_host(void* block, std::size_t size_bytes) const {
    const detail::entered here{ordinal()};
    const cudaError_t code = ::cudaHostRegister(block, size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    detail::forget(code);
    return code == cudaSuccess;
  }

  void unregister_host(void* block) const noexcept {
    const detail::current here{ordinal()};
    detail::forget(::cudaHostUnregister(block));
  }

  /// Gives page-locked host memory that every device can copy from; takes milliseconds.
  [[nodiscard]] void* allocate_host(std::size_t size_bytes) const {
    if (size_bytes == 0) return nullptr;
    const detail::entered here{ordinal()};
    void* block = nullptr;
    const cudaError_t code = ::cudaHostAlloc(&block, size_bytes, cudaHostAllocPortable);
    if (code == cudaErrorMemoryAllocation) {
      detail::forget(code);
      throw out_of_memory(name() + " host memory", size_bytes, 0,
                          name() + ": cudaHostAlloc gives no " + format_bytes(size_bytes) +
                              " of page-locked memory; ask for less, or lock fewer pages elsewhere");
    }
    check(code, "cudaHostAlloc");
    return block;
  }

  void deallocate_host(void* block, std::size_t) const noexcept {
    if (block == nullptr) return;
    const detail::current here{ordinal()};
    detail::forget(::cudaFreeHost(block));
  }

  /// What the GPU has free, other processes counted.
  [[nodiscard]] device_memory memory() const {
    const detail::entered here{ordinal()};
    device_memory now;
    check(::cudaMemGetInfo(&now.free_bytes, &now.total_bytes), "cudaMemGetInfo");
    return now;
  }

  /// Number and model: "cuda:0 NVIDIA H200".
  [[nodiscard]] std::string name() const { return state_->name; }

  /// As cudaDeviceGetPCIBusId writes it: "00000000:3B:00.0" or "0000:3B:00.0".
  [[nodiscard]] std::string bus_id() const { return state_->bus_id; }

  friend bool operator==(const device& a, const device& b) noexcept { return a.ordinal() == b.ordinal(); }

 private:
  void check(cudaError_t code, const char* call) const { detail::check(code, call, ordinal()); }

  void check_room(cudaError_t code, const char* call, std::size_t size_bytes) const {
    if (code != cudaErrorMemoryAllocation) return check(code, call);
    detail::forget(code);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    detail::forget(::cudaMemGetInfo(&free_bytes, &total_bytes));
    throw out_of_memory(name(), size_bytes, free_bytes,
                        name() + ": " + call + " gives no " + format_bytes(size_bytes) + ", free " +
                            format_bytes(free_bytes) + " of " + format_bytes(total_bytes) +
                            "; lower the budget of the tier, or free what else uses this GPU");
  }

  static void check_present(int ordinal) {
    vtier::detail::cuda_answer answer;
    const cudaError_t code = ::cudaGetDeviceCount(&answer.device_count);
    detail::forget(code);
    answer.code = static_cast<int>(code);
    answer.runtime_version = CUDART_VERSION;
    answer.name = ::cudaGetErrorName(code);
    vtier::detail::check_cuda_present(ordinal, answer);
  }

  std::shared_ptr<detail::shared> state_;
};

static_assert(vtier::device<cuda::device>);

}  // namespace vtier::cuda

#endif  // CUDART_VERSION
