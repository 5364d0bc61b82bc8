// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the CUDA runtime is called: with the right device current, the caller's own given back, and errors taken off.
//
// A file of its own because a device's handles and its address ranges both call it.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include <vtier/core/config.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/device/detail/cuda_words.hpp>
#include <vtier/device/detail/idle_handles.hpp>
#include <vtier/device/detail/launch_failure.hpp>

#if CUDART_VERSION < 12000
#error "vtier needs CUDA 12 or newer; without it, use vtier::host::device"
#else

namespace vtier::cuda::detail {

/// Takes an error off the thread's last error, so that the user's next check does not meet it; another one stays.
inline cudaError_t forget(cudaError_t code) noexcept {
  if (code != cudaSuccess && ::cudaPeekAtLastError() == code) ::cudaGetLastError();
  return code;
}

/// Throws what the runtime has answered, unless that is success.
inline void check(int ordinal, const char* call, cudaError_t code) {
  if (code == cudaSuccess) return;
  throw vtier::detail::cuda_failure(ordinal, call, static_cast<int>(code), ::cudaGetErrorName(code),
                                    ::cudaGetErrorString(code));
}

/// What the handles of a device share; it outlives them as long as an event is held.
struct shared {
  explicit shared(int number) : ordinal{number} {}
  ~shared() {  // at exit the runtime may be gone and refuse: then the events are gone with it
    while (const auto e = mark.here() ? idle.take() : std::nullopt) ask([&] { return ::cudaEventDestroy(*e); });
  }

  /// Calls the runtime with the device as the thread's current one, gives the caller's back, and forgets an error. A
  /// forked child, where CUDA answers nothing, does not call it at all.
  template <class Call>
  cudaError_t ask(Call call) const noexcept {
    if (!mark.here()) return cudaErrorInitializationError;
    int before = ordinal;
    cudaError_t code = forget(::cudaGetDevice(&before));
    if (code != cudaSuccess || before == ordinal) return code == cudaSuccess ? forget(call()) : code;
    if (code = forget(::cudaSetDevice(ordinal)); code != cudaSuccess) return code;
    code = forget(call());
    forget(::cudaSetDevice(before));
    return code;
  }

  /// The same for calls that may throw: there that is a usage_error.
  template <class Call>
  cudaError_t answer(Call call) const {
    mark.check(name.c_str());
    return ask(call);
  }

  const process_mark mark;
  int ordinal;
  bool has_pools = false;
  std::string name;
  std::string bus_id;
  const std::shared_ptr<vtier::detail::launch_failures> failures = std::make_shared<vtier::detail::launch_failures>();
  vtier::detail::idle_handles<cudaEvent_t> idle;
};

/// Whether an event keeps its time.
enum class timing { off, on };

/// One recording's CUDA event, of the idle ones while there are any; a timed one is made for it.
class recording {
 public:
  explicit recording(std::shared_ptr<shared> owner, timing time = timing::off)
      : owner_{std::move(owner)}, timed_{time == timing::on} {
    owner_->mark.check(owner_->name.c_str());
    if (!timed_) handle_ = owner_->idle.take().value_or(nullptr);
    const unsigned flags = timed_ ? cudaEventDefault : cudaEventDisableTiming;
    const auto make = [&] { return ::cudaEventCreateWithFlags(&handle_, flags); };
    if (handle_ == nullptr) check(owner_->ordinal, "cudaEventCreateWithFlags", owner_->ask(make));
  }
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  /// Passed or not, it may be reused: a wait has read the recording that it waits for when it was submitted.
  ~recording() {
    if (!owner_->mark.here() || (!timed_ && owner_->idle.give(handle_))) return;
    owner_->ask([this] { return ::cudaEventDestroy(handle_); });
  }

  [[nodiscard]] cudaEvent_t handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<shared> owner_;
  cudaEvent_t handle_ = nullptr;
  bool timed_;
};

}  // namespace vtier::cuda::detail
#endif  // CUDART_VERSION
