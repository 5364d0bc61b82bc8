// SPDX-License-Identifier: Apache-2.0
// The stand-in's driver: the functions of virtual memory, as far as the runtime hands them out.
//
// Physical memory only counts against its device; what is in it belongs to the addresses. That serves whoever maps each
// piece once. Addresses are of the device that was current when they were reserved.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include <cuda.h>

#include "runtime.hpp"

namespace standin {
namespace {

std::byte* place_of(CUdeviceptr at) { return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at)); }

// As `call`, but the driver leaves the thread's last error alone.
template <class Body>
CUresult drive(const char* name, Body&& body) {
  runtime& r = the();
  const std::scoped_lock hold{r.lock};
  if (const auto code = enter(r, name, needs::a_sound_device)) return static_cast<CUresult>(*code);
  return body(r);
}

// The range that holds all of [first, first + size).
auto range_of(runtime& r, const std::byte* first, std::size_t size_bytes) {
  auto at = r.ranges.upper_bound(const_cast<std::byte*>(first));
  if (at == r.ranges.begin()) return r.ranges.end();
  --at;
  return first + size_bytes <= at->first + at->second.size_bytes ? at : r.ranges.end();
}

// The mappings that make up all of [first, first + size) and no more; empty where there is a gap or a part of one.
std::vector<std::byte*> mappings_of(runtime& r, std::byte* first, std::size_t size_bytes) {
  std::vector<std::byte*> found;
  std::byte* const end = first + size_bytes;
  while (first < end) {
    const auto at = r.mappings.find(first);
    if (at == r.mappings.end()) return {};
    found.push_back(first);
    first += at->second.size_bytes;
  }
  return first == end ? found : std::vector<std::byte*>{};
}

// What copies and kernels may reach: each run of neighbours that are accessible is one block.
void find_blocks(runtime& r, std::byte* base, const address_range& range) {
  gpu& g = at(r, range.device);
  std::map<std::byte*, std::size_t> runs;
  auto open = runs.end();
  for (auto m = r.mappings.lower_bound(base); m != r.mappings.end() && m->first < base + range.size_bytes; ++m) {
    if (!m->second.accessible) continue;
    if (open == runs.end() || open->first + open->second != m->first) open = runs.emplace(m->first, 0).first;
    open->second += m->second.size_bytes;
  }
  for (auto b = r.device_blocks.lower_bound(base); b != r.device_blocks.end() && b->first < base + range.size_bytes;) {
    const auto same = runs.find(b->first);
    if (same != runs.end() && same->second == b->second.size_bytes) {
      runs.erase(same);
      ++b;
      continue;
    }
    r.world->freed(b->first, b->second.size_bytes);
    g.bytes.allow(b->first, 0);
    b = r.device_blocks.erase(b);
  }
  for (const auto& [first, size] : runs) {
    r.world->allocated(first, size, "mapped memory of gpu " + std::to_string(g.ordinal));
    g.bytes.allow(first, size);
    r.device_blocks[first] = {size, g.ordinal, false, true};
  }
}

void drop_if_unused(runtime& r, std::map<CUmemGenericAllocationHandle, physical_memory>::iterator piece) {
  if (!piece->second.released || piece->second.mappings > 0) return;
  at(r, piece->second.device).bytes.discharge(piece->second.size_bytes);
  r.physical.erase(piece);
}

// ---- the functions

CUresult device_get(CUdevice* device, int ordinal) {
  return drive("cuDeviceGet", [&](runtime& r) {
    if (!exists(r, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult device_get_attribute(int* value, CUdevice_attribute what, CUdevice device) {
  return drive("cuDeviceGetAttribute", [&](runtime& r) {
    if (!exists(r, device)) return CUDA_ERROR_INVALID_DEVICE;
    const bool virtual_memory = what == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
                                what == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    *value = virtual_memory && at(r, device).about.granule_bytes != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

bool is_device_memory(const runtime& r, const CUmemAllocationProp* wanted) {
  return wanted->type == CU_MEM_ALLOCATION_TYPE_PINNED && wanted->requestedHandleTypes == 0 &&
         wanted->win32HandleMetaData == nullptr && wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         exists(r, wanted->location.id);
}

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* wanted, CUmemAllocationGranularity_flags) {
  return drive("cuMemGetAllocationGranularity", [&](runtime& r) {
    if (!is_device_memory(r, wanted)) return CUDA_ERROR_INVALID_VALUE;
    *bytes = at(r, wanted->location.id).about.granule_bytes;
    return *bytes == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  });
}

CUresult address_reserve(CUdeviceptr* first, std::size_t size_bytes, std::size_t alignment, CUdeviceptr,
                         unsigned long long flags) {
  return drive("cuMemAddressReserve", [&](runtime& r) {
    gpu& g = here(r);
    if (g.about.granule_bytes == 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (size_bytes == 0 || size_bytes % 4096 != 0 || (alignment & (alignment - 1)) != 0 || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (size_bytes > (std::size_t{1} << 44U)) return CUDA_ERROR_OUT_OF_MEMORY;
    std::byte* const base = g.bytes.reserve(size_bytes, g.about.granule_bytes);
    r.world->only_allocated(base, size_bytes);
    r.ranges[base] = {size_bytes, g.ordinal};
    *first = reinterpret_cast<std::uintptr_t>(base);
    return CUDA_SUCCESS;
  });
}

CUresult address_free(CUdeviceptr first, std::size_t size_bytes) {
  return drive("cuMemAddressFree", [&](runtime& r) {
    const auto found = r.ranges.find(place_of(first));
    if (found == r.ranges.end() || found->second.size_bytes != size_bytes) return CUDA_ERROR_INVALID_VALUE;
    const auto mapped = r.mappings.lower_bound(found->first);
    if (mapped != r.mappings.end() && mapped->first < found->first + size_bytes) return CUDA_ERROR_INVALID_VALUE;
    r.world->any_use(found->first);
    r.ranges.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size_bytes, const CUmemAllocationProp* wanted,
                unsigned long long flags) {
  return drive("cuMemCreate", [&](runtime& r) {
    if (!is_device_memory(r, wanted) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    gpu& g = at(r, wanted->location.id);
    if (g.about.granule_bytes == 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (size_bytes == 0 || size_bytes % g.about.granule_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!g.bytes.charge(size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++r.physical_last;
    r.physical[*handle] = {size_bytes, g.ordinal, 0, false};
    return CUDA_SUCCESS;
  });
}

CUresult release(CUmemGenericAllocationHandle handle) {
  return drive("cuMemRelease", [&](runtime& r) {
    const auto found = r.physical.find(handle);
    if (found == r.physical.end() || found->second.released) {
      r.world->violation("cuMemRelease got what is no handle, or not any more");  // the real one promises nothing
      return CUDA_ERROR_INVALID_VALUE;
    }
    found->second.released = true;
    drop_if_unused(r, found);
    return CUDA_SUCCESS;
  });
}

CUresult map(CUdeviceptr to, std::size_t size_bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  return drive("cuMemMap", [&](runtime& r) {
    const auto piece = r.physical.find(handle);
    if (piece == r.physical.end() || piece->second.released) return CUDA_ERROR_INVALID_VALUE;
    std::byte* const first = place_of(to);
    const auto range = range_of(r, first, size_bytes);
    const std::size_t granule = at(r, piece->second.device).about.granule_bytes;
    if (range == r.ranges.end() || range->second.device != piece->second.device || offset != 0 || flags != 0 ||
        size_bytes != piece->second.size_bytes || to % granule != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (piece->second.mappings > 0) {
      r.world->violation("the stand-in maps a piece of memory once only");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    const auto next = r.mappings.lower_bound(first);
    if (next != r.mappings.end() && next->first < first + size_bytes) return CUDA_ERROR_INVALID_VALUE;
    if (next != r.mappings.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second.size_bytes > first) return CUDA_ERROR_INVALID_VALUE;
    }
    r.mappings[first] = {size_bytes, handle, false};
    ++piece->second.mappings;
    return CUDA_SUCCESS;
  });
}

CUresult set_access(CUdeviceptr from, std::size_t size_bytes, const CUmemAccessDesc* wanted, std::size_t count) {
  return drive("cuMemSetAccess", [&](runtime& r) {
    std::byte* const first = place_of(from);
    const auto range = range_of(r, first, size_bytes);
    const auto all = mappings_of(r, first, size_bytes);
    if (range == r.ranges.end() || all.empty() || count != 1 || wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (wanted->location.id != range->second.device) return CUDA_ERROR_NOT_SUPPORTED;  // peers
    gpu& g = at(r, range->second.device);
    for (std::byte* const one : all) {
      auto& m = r.mappings[one];
      const bool before = std::exchange(m.accessible, wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      if (before || !m.accessible) continue;
      r.world->forget(one, m.size_bytes);
      g.bytes.spoil(one, m.size_bytes, 0xCD);
    }
    find_blocks(r, range->first, range->second);
    return CUDA_SUCCESS;
  });
}

// It waits for nothing: who still uses the memory has lost.
CUresult unmap(CUdeviceptr from, std::size_t size_bytes) {
  return drive("cuMemUnmap", [&](runtime& r) {
    std::byte* const first = place_of(from);
    const auto all = mappings_of(r, first, size_bytes);
    if (all.empty()) return CUDA_ERROR_INVALID_VALUE;
    const auto range = range_of(r, first, size_bytes);
    for (std::byte* const one : all) {
      const auto m = r.mappings.find(one);
      if (m->second.accessible) {
        r.world->touch(one, m->second.size_bytes, sim::access_kind::write);
        at(r, range->second.device).bytes.spoil(one, m->second.size_bytes, 0xDB);
      }
      const auto piece = r.physical.find(m->second.handle);
      r.mappings.erase(m);
      --piece->second.mappings;
      drop_if_unused(r, piece);
    }
    find_blocks(r, range->first, range->second);
    return CUDA_SUCCESS;
  });
}

struct entry {
  const char* name;
  unsigned version;  // since when
  void* function;
};

cudaError_t find(runtime& r, const char* symbol, void** function, unsigned version,
                 cudaDriverEntryPointQueryResult* result) {
  static const entry entries[] = {
      {"cuDeviceGet", 2000, reinterpret_cast<void*>(&device_get)},
      {"cuDeviceGetAttribute", 2000, reinterpret_cast<void*>(&device_get_attribute)},
      {"cuMemGetAllocationGranularity", 10020, reinterpret_cast<void*>(&granularity)},
      {"cuMemAddressReserve", 10020, reinterpret_cast<void*>(&address_reserve)},
      {"cuMemAddressFree", 10020, reinterpret_cast<void*>(&address_free)},
      {"cuMemCreate", 10020, reinterpret_cast<void*>(&create)},
      {"cuMemRelease", 10020, reinterpret_cast<void*>(&release)},
      {"cuMemMap", 10020, reinterpret_cast<void*>(&map)},
      {"cuMemUnmap", 10020, reinterpret_cast<void*>(&unmap)},
      {"cuMemSetAccess", 10020, reinterpret_cast<void*>(&set_access)},
  };
  static_assert(std::is_same_v<decltype(&device_get), decltype(&::cuDeviceGet)> &&
                std::is_same_v<decltype(&device_get_attribute), decltype(&::cuDeviceGetAttribute)> &&
                std::is_same_v<decltype(&granularity), decltype(&::cuMemGetAllocationGranularity)> &&
                std::is_same_v<decltype(&address_reserve), decltype(&::cuMemAddressReserve)> &&
                std::is_same_v<decltype(&address_free), decltype(&::cuMemAddressFree)> &&
                std::is_same_v<decltype(&create), decltype(&::cuMemCreate)> &&
                std::is_same_v<decltype(&release), decltype(&::cuMemRelease)> &&
                std::is_same_v<decltype(&map), decltype(&::cuMemMap)> &&
                std::is_same_v<decltype(&unmap), decltype(&::cuMemUnmap)> &&
                std::is_same_v<decltype(&set_access), decltype(&::cuMemSetAccess)>);
  *function = nullptr;
  if (version > CUDART_VERSION) return cudaErrorInvalidValue;
  auto found = cudaDriverEntryPointSymbolNotFound;
  for (const entry& e : entries) {
    if (std::strcmp(e.name, symbol) != 0 || r.missing_driver_functions.count(symbol) != 0) continue;
    found = version >= e.version ? cudaDriverEntryPointSuccess : cudaDriverEntryPointVersionNotSufficent;
    if (found == cudaDriverEntryPointSuccess) *function = e.function;
  }
  if (result != nullptr) *result = found;
  return cudaSuccess;
}

}  // namespace

void forget_virtual_memory(runtime& r) {
  r.ranges.clear();
  r.physical.clear();
  r.mappings.clear();
  r.missing_driver_functions.clear();
}

void tell_leaked_virtual_memory(runtime& r) {
  std::size_t handles = 0;
  for (const auto& [handle, piece] : r.physical) handles += piece.released ? 0U : 1U;
  if (handles > 0) r.world->violation("leaked: " + std::to_string(handles) + " handles of physical memory");
  if (!r.mappings.empty()) r.world->violation("leaked: " + std::to_string(r.mappings.size()) + " mappings");
  if (!r.ranges.empty()) r.world->violation("leaked: " + std::to_string(r.ranges.size()) + " address ranges");
}

}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return call("cudaGetDriverEntryPointByVersion",
              [&](runtime& r) { return find(r, symbol, function, version, result); });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  return call("cudaGetDriverEntryPoint", [&](runtime& r) { return find(r, symbol, function, CUDART_VERSION, result); });
}

}  // extern "C"
