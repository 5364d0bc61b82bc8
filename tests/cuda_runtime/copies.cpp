// SPDX-License-Identifier: Apache-2.0
// The stand-in's copies and fills.

#include <cstring>
#include <iterator>

#include "runtime.hpp"

namespace standin {
namespace {

// Whether a range lies in one live block of its device.
bool is_allocated(const runtime& r, const void* first, std::size_t size_bytes) {
  auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(first));
  auto found = r.device_blocks.upper_bound(from);
  if (found == r.device_blocks.begin()) return false;
  --found;
  return from + size_bytes <= found->first + found->second.size_bytes;
}

enum class caller { goes_on, waits };  // a call with Async in its name, or without

/// What a copy is: which way it goes, and what the call does with host memory that is not page-locked.
struct plan {
  cudaMemcpyKind kind = cudaMemcpyDefault;
  const void* locked = nullptr;  // host memory that must stay page-locked until the copy has run
  bool staged = false;           // the source is read at the call
  bool blocks = false;           // the call is over when the copy is
};

cudaError_t examine(runtime& r, plan& p, const void* target, const void* source, std::size_t size_bytes,
                    cudaMemcpyKind kind, caller how) {
  const gpu* const to = device_at(r, target);
  const gpu* const from = device_at(r, source);
  p.kind = to != nullptr ? (from != nullptr ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                         : (from != nullptr ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (kind != cudaMemcpyDefault && kind != p.kind) return cudaErrorInvalidValue;
  if (to != nullptr && !is_allocated(r, target, size_bytes)) return cudaErrorInvalidValue;
  if (from != nullptr && !is_allocated(r, source, size_bytes)) return cudaErrorInvalidValue;
  if (p.kind == cudaMemcpyHostToHost) {
    p.blocks = true;
    return cudaSuccess;
  }
  if (p.kind == cudaMemcpyDeviceToDevice) return cudaSuccess;  // the host is not waited with, even without Async
  const void* const host = p.kind == cudaMemcpyHostToDevice ? source : target;
  switch (locked_share(r, host, size_bytes)) {
    case share::part: return cudaErrorInvalidValue;  // two kinds of memory in one copy
    case share::all:
      p.locked = host;
      p.blocks = how == caller::waits;
      break;
    case share::none:
      p.staged = p.kind == cudaMemcpyHostToDevice;
      p.blocks = p.kind == cudaMemcpyDeviceToHost;
      break;
  }
  return cudaSuccess;
}

cudaError_t copy(runtime& r, cudaStream_t handle, void* target, const void* source, std::size_t size_bytes,
                 cudaMemcpyKind kind, caller how) {
  const auto s = stream_of(r, handle);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (size_bytes == 0) return cudaSuccess;
  plan p;
  if (const auto code = examine(r, p, target, source, size_bytes, kind, how); code != cudaSuccess) return code;
  gpu& g = at(r, s->device);
  sim::work w;
  w.duration_ns = r.world->stretched(2000.0 + static_cast<double>(size_bytes) / 16.0);
  w.link = p.kind == cudaMemcpyHostToDevice ? g.up_link : p.kind == cudaMemcpyDeviceToHost ? g.down_link : 0;
  std::shared_ptr<std::vector<std::byte>> staged;
  if (p.staged) {
    r.world->reads(source, size_bytes);
    const auto* const first = static_cast<const std::byte*>(source);
    staged = std::make_shared<std::vector<std::byte>>(first, first + size_bytes);
  }
  w.run = on_device(r, g, [&r, target, source, size_bytes, staged, locked = p.locked] {
    if (locked != nullptr && locked_share(r, locked, size_bytes) != share::all) {
      r.world->violation("host memory was unregistered or freed before a copy that uses it has run");
    }
    if (staged == nullptr) r.world->reads(source, size_bytes);
    r.world->writes(target, size_bytes);
    std::memmove(reach(r, target), staged != nullptr ? staged->data() : reach(r, source), size_bytes);
  });
  static constexpr const char* words[] = {"copy within the host", "copy up", "copy down", "copy within the device"};
  const auto done = submit(r, *s, std::move(w), words[static_cast<std::size_t>(p.kind)]);
  if (!p.blocks) return cudaSuccess;
  await(r, done);
  return state_of(g);
}

cudaError_t set(runtime& r, cudaStream_t handle, void* target, int value, std::size_t size_bytes) {
  const auto s = stream_of(r, handle);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (size_bytes == 0) return cudaSuccess;
  if (device_at(r, target) != nullptr ? !is_allocated(r, target, size_bytes)
                                      : locked_share(r, target, size_bytes) != share::all) {
    return cudaErrorInvalidValue;
  }
  sim::work w;
  w.duration_ns = r.world->stretched(2000.0);
  w.run = on_device(r, at(r, s->device), [&r, target, value, size_bytes] {
    r.world->writes(target, size_bytes);
    std::memset(reach(r, target), value, size_bytes);
  });
  submit(r, *s, std::move(w), "fill");
  return cudaSuccess;
}

cudaError_t copy_between(runtime& r, cudaStream_t handle, void* target, int to, const void* source, int from,
                         std::size_t size_bytes, caller how) {
  if (!exists(r, to) || !exists(r, from)) return cudaErrorInvalidDevice;
  if (device_at(r, target) != &at(r, to) || device_at(r, source) != &at(r, from)) return cudaErrorInvalidValue;
  return copy(r, handle, target, source, size_bytes, cudaMemcpyDeviceToDevice, how);
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return call("cudaMemcpyAsync",
              [&](runtime& r) { return copy(r, handle, target, source, size_bytes, kind, caller::goes_on); });
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t size_bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy",
              [&](runtime& r) { return copy(r, nullptr, target, source, size_bytes, kind, caller::waits); });
}

cudaError_t cudaMemcpyPeerAsync(void* target, int to, const void* source, int from, std::size_t size_bytes,
                                cudaStream_t handle) {
  return call("cudaMemcpyPeerAsync", [&](runtime& r) {
    return copy_between(r, handle, target, to, source, from, size_bytes, caller::goes_on);
  });
}

cudaError_t cudaMemcpyPeer(void* target, int to, const void* source, int from, std::size_t size_bytes) {
  return call("cudaMemcpyPeer", [&](runtime& r) {
    return copy_between(r, nullptr, target, to, source, from, size_bytes, caller::waits);
  });
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t size_bytes, cudaStream_t handle) {
  return call("cudaMemsetAsync", [&](runtime& r) { return set(r, handle, target, value, size_bytes); });
}

// As the real one, it does not wait for device memory.
cudaError_t cudaMemset(void* target, int value, std::size_t size_bytes) {
  return call("cudaMemset", [&](runtime& r) { return set(r, nullptr, target, value, size_bytes); });
}

}  // extern "C"
