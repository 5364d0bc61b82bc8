// SPDX-License-Identifier: Apache-2.0
#pragma once

// GPU memory that grows where it stands, by the driver's virtual memory.
//
// A file of its own because it alone calls the driver. Types and signatures are those of <cuda.h>; the functions come
// from the runtime when a range is made, so that nothing links libcuda and an older driver is found out, not crashed
// on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/detail/cuda_calls.hpp>
#include <vtier/device/detail/cuda_words.hpp>
#include <vtier/device/detail/range_steps.hpp>
#include <vtier/device/device.hpp>

#if CUDART_VERSION >= 12000  // else cuda_calls.hpp has said what is missing

namespace vtier::cuda::detail {

/// The driver's functions for virtual memory, and what it has been asked about one device.
///
/// Source  CUDA Driver API, section Virtual Memory Management; CUDA Runtime API, section Driver Entry Point Access
struct virtual_memory {
  decltype(&::cuDeviceGet) find_device = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
  decltype(&::cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) unreserve = nullptr;
  decltype(&::cuMemCreate) create = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  CUmemAllocationProp properties{};
  std::size_t granule_bytes = 0;

  /// Finds all of it; false where the driver lacks a function or the device lacks virtual memory.
  [[nodiscard]] bool find(int ordinal) noexcept {
    const bool complete = find(find_device, "cuDeviceGet") && find(attribute, "cuDeviceGetAttribute") &&
                          find(granularity, "cuMemGetAllocationGranularity") && find(reserve, "cuMemAddressReserve") &&
                          find(unreserve, "cuMemAddressFree") && find(create, "cuMemCreate") &&
                          find(release, "cuMemRelease") && find(map, "cuMemMap") && find(unmap, "cuMemUnmap") &&
                          find(set_access, "cuMemSetAccess");
    CUdevice device{};
    if (!complete || find_device(&device, ordinal) != CUDA_SUCCESS) return false;
    const auto has = [&](CUdevice_attribute what) {
      int value = 0;
      return attribute(&value, what, device) == CUDA_SUCCESS && value != 0;
    };
    if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return false;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(ordinal);
    // Network cards and drives may copy to it then, as to memory of cudaMalloc.
    properties.allocFlags.gpuDirectRDMACapable = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    return granularity(&granule_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
           is_power_of_two(granule_bytes);
  }

  [[nodiscard]] static CUmemLocation location(int ordinal) noexcept {
    CUmemLocation here{};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    here.id = ordinal;
    return here;
  }

 private:
  template <class Function>
  [[nodiscard]] static bool find(Function& function, const char* name) noexcept {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    constexpr unsigned version = 12000;  // every driver that this runtime runs on has it
    const auto code = ::cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
#else
    const auto code = ::cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    function = reinterpret_cast<Function>(found);
    return forget(code) == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr;
  }
};

/// Addresses of a GPU; see the concept `device_range`.
///
/// Gives   memory in pieces of one granule each, which the driver takes from wherever there is some. In a forked child,
///         and once the runtime is unloaded at exit, shrink() and the destructor do nothing
/// Cost    grow(): two driver calls for each granule, one more for all; shrink(): the host waits for the whole device,
///         as cudaFree does
class range {
 public:
  /// Errors  out_of_memory where there are no addresses, device_error; empty where there is no virtual memory
  static std::optional<range> make(std::shared_ptr<const shared> owner, std::size_t size_bytes,
                                   std::size_t granule_bytes) {
    virtual_memory driver;
    bool found = false;
    check(owner->ordinal, "cudaSetDevice", owner->answer([&] {
      const cudaError_t code = ::cudaSetDevice(owner->ordinal);  // makes the context, which no driver call does
      found = code == cudaSuccess && driver.find(owner->ordinal);
      return code;
    }));
    if (!found) return std::nullopt;
    const auto steps = vtier::detail::range_steps::of(size_bytes, granule_bytes, driver.granule_bytes);
    CUdeviceptr base = 0;
    CUresult code = steps ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    const cudaError_t asked = !steps ? cudaSuccess : owner->answer([&] {
      code = driver.reserve(&base, steps->size_bytes, 0, 0, 0);
      return cudaSuccess;
    });
    check(owner->ordinal, "cudaGetDevice", asked);
    if (code == CUDA_ERROR_NOT_SUPPORTED || code == CUDA_ERROR_NOT_PERMITTED) return std::nullopt;
    if (code != CUDA_SUCCESS) refuse(*owner, "cuMemAddressReserve", code, size_bytes);
    return range{std::move(owner), driver, base, *steps};
  }

  range(range&& other) noexcept
      : owner_{std::move(other.owner_)},
        driver_{other.driver_},
        base_{std::exchange(other.base_, 0)},
        steps_{other.steps_},
        end_bytes_{std::exchange(other.end_bytes_, 0)} {}
  range& operator=(range&&) = delete;
  ~range() {
    if (base_ == 0) return;
    shrink(0);
    owner_->ask([&] {
      driver_.unreserve(base_, steps_.size_bytes);
      return cudaSuccess;
    });
  }

  [[nodiscard]] std::byte* base() const noexcept {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(base_));
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return steps_.size_bytes; }
  [[nodiscard]] std::size_t granule_bytes() const noexcept { return steps_.granule_bytes; }
  [[nodiscard]] std::size_t end_bytes() const noexcept { return end_bytes_; }

  void grow(std::size_t end_bytes) {
    const std::size_t end = steps_.end_at(end_bytes);
    if (end <= end_bytes_) return;
    const char* call = "";
    CUresult code = CUDA_SUCCESS;
    check(owner_->ordinal, "cudaSetDevice", owner_->answer([&] {
      const cudaError_t current = ::cudaSetDevice(owner_->ordinal);
      if (current == cudaSuccess) code = add(end, call);
      return current;
    }));
    if (code != CUDA_SUCCESS) refuse(*owner_, call, code, end - end_bytes_);
    end_bytes_ = end;
  }

  void shrink(std::size_t end_bytes) noexcept {
    const std::size_t end = steps_.end_at(end_bytes);
    if (end >= end_bytes_) return;
    owner_->ask([&] {
      // The driver does not always wait for the work that uses what is unmapped.
      forget(::cudaDeviceSynchronize());
      end_bytes_ = remove(end, end_bytes_);
      return cudaSuccess;
    });
  }

 private:
  range(std::shared_ptr<const shared> owner, const virtual_memory& driver, CUdeviceptr base,
        const vtier::detail::range_steps& steps) noexcept
      : owner_{std::move(owner)}, driver_{driver}, base_{base}, steps_{steps} {}

  // A failure leaves the device's mappings as they were. A piece keeps no handle: it lives as long as it is mapped.
  CUresult add(std::size_t end, const char*& call) noexcept {
    CUresult code = CUDA_SUCCESS;
    std::size_t at = end_bytes_;
    while (code == CUDA_SUCCESS && at < end) {
      const std::size_t size = piece_bytes(at);
      CUmemGenericAllocationHandle piece{};
      call = "cuMemCreate";
      code = driver_.create(&piece, size, &driver_.properties, 0);
      if (code != CUDA_SUCCESS) break;
      call = "cuMemMap";
      code = driver_.map(base_ + at, size, 0, piece, 0);
      driver_.release(piece);
      if (code == CUDA_SUCCESS) at += size;
    }
    if (code == CUDA_SUCCESS) {
      CUmemAccessDesc access{};
      access.location = virtual_memory::location(owner_->ordinal);
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      call = "cuMemSetAccess";
      code = driver_.set_access(base_ + end_bytes_, end - end_bytes_, &access, 1);
    }
    if (code != CUDA_SUCCESS) remove(end_bytes_, at);
    return code;
  }

  // Takes pieces off the end of [0, from), each as it was mapped; gives the end that is left.
  std::size_t remove(std::size_t end, std::size_t from) noexcept {
    while (from > end) {
      const std::size_t at = align_down(from - 1, steps_.granule_bytes);
      if (driver_.unmap(base_ + at, piece_bytes(at)) != CUDA_SUCCESS) break;
      from = at;
    }
    return from;
  }

  [[nodiscard]] std::size_t piece_bytes(std::size_t at) const noexcept {
    return (std::min)(steps_.granule_bytes, steps_.size_bytes - at);
  }

  // The numbers of driver and runtime are the same.
  [[noreturn]] static void refuse(const shared& owner, const char* call, CUresult code, std::size_t size_bytes) {
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
      device_memory now;
      owner.ask([&] { return ::cudaMemGetInfo(&now.free_bytes, &now.total_bytes); });
      throw vtier::detail::cuda_no_room(owner.name, call, size_bytes, now);
    }
    const auto same = static_cast<cudaError_t>(code);
    throw vtier::detail::cuda_failure(owner.ordinal, call, static_cast<int>(code), ::cudaGetErrorName(same),
                                      ::cudaGetErrorString(same));
  }

  std::shared_ptr<const shared> owner_;
  virtual_memory driver_;
  CUdeviceptr base_ = 0;
  vtier::detail::range_steps steps_;
  std::size_t end_bytes_ = 0;
};

}  // namespace vtier::cuda::detail
#endif  // CUDART_VERSION
