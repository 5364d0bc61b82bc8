// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the CUDA device says when something is wrong.
//
// A file of its own, without CUDA: on most machines that run this, these words are all of CUDA that they see, and they
// are tested there.

#include <cstddef>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>

namespace vtier::detail {

/// A runtime call has failed.
[[nodiscard]] inline device_error cuda_failure(int ordinal, const std::string& call, int code, const std::string& name,
                                               const std::string& meaning) {
  return {code, "CUDA device " + std::to_string(ordinal) + ": " + call + " answered " + name + " (" +
                    std::to_string(code) + "): " + meaning};
}

/// The GPU has no room.
[[nodiscard]] inline out_of_memory cuda_no_room(const std::string& device, const std::string& call,
                                                std::size_t size_bytes, const device_memory& now) {
  return {device, size_bytes, now.free_bytes,
          device + ": " + call + " gives no " + format_bytes(size_bytes) + ", free " + format_bytes(now.free_bytes) +
              " of " + format_bytes(now.total_bytes) +
              "; lower the budget of the tier, or free what else uses this GPU"};
}

/// The system has no more memory to lock for a GPU.
[[nodiscard]] inline out_of_memory cuda_no_host_room(const std::string& device, std::size_t size_bytes) {
  return {"host memory of " + device, size_bytes, 0,
          device + ": cudaHostAlloc gives no " + format_bytes(size_bytes) +
              " of page-locked host memory; ask for less, or lock fewer pages elsewhere"};
}

/// A stream was given that is another one in every thread.
[[nodiscard]] inline usage_error cuda_per_thread_stream() {
  return usage_error{
      "the per-thread default stream (cudaStreamPerThread) means another stream in every thread, and vtier's threads "
      "would wait for their own; make a stream by cudaStreamCreateWithFlags or device::make_stream"};
}

/// What cudaGetDeviceCount has answered.
struct cuda_answer {
  int code = 0;             // cudaError_t
  int device_count = 0;     // as far as code is 0
  int runtime_version = 0;  // CUDART_VERSION
  std::string name;         // of the code
};

/// Whether a device is there: an error that says what is missing and what to do, unless it is.
///
/// Errors  device_error with the answer's code; 100 and 101 also where the count says so
/// Source  CUDA Runtime API, enumeration cudaError
inline void check_cuda_present(int ordinal, const cuda_answer& answer) {
  constexpr int invalid_device = 101;
  constexpr int no_device = 100;
  constexpr int insufficient_driver = 35;
  constexpr int stub_library = 34;
  constexpr int not_initialised = 3;
  if (answer.code == 0 && ordinal >= 0 && ordinal < answer.device_count) return;
  if (answer.code == 0 && answer.device_count > 0) {
    throw device_error(invalid_device, "no CUDA device " + std::to_string(ordinal) + ": this process sees " +
                                           std::to_string(answer.device_count) +
                                           ", numbered from 0 (CUDA_VISIBLE_DEVICES chooses which)");
  }
  const int code = answer.code == 0 ? no_device : answer.code;
  std::string text;
  if (code == insufficient_driver) {
    text = "no usable CUDA driver: none is installed, or it is older than this CUDA runtime (" +
           std::to_string(answer.runtime_version) + "); install or update it";
  } else if (code == stub_library) {
    text =
        "no usable CUDA driver: the libcuda that was found is the toolkit's stub, made for linking only; take its "
        "folder (stubs) off the library path";
  } else if (code == no_device) {
    text =
        "no CUDA device: the driver works and shows no GPU; look at CUDA_VISIBLE_DEVICES and at the container's "
        "devices";
  } else if (code == not_initialised) {
    text =
        "CUDA cannot start in this process: perhaps it was forked from one that had used CUDA; fork before the first "
        "use, or let the child exec";
  } else {
    text = "no CUDA device can be had: cudaGetDeviceCount answered " + answer.name + " (" + std::to_string(code) + ")";
  }
  throw device_error(code, text + "; to run without a GPU, use vtier::host::device");
}

}  // namespace vtier::detail
