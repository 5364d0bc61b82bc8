// SPDX-License-Identifier: Apache-2.0
// The stand-in's events.

#include "runtime.hpp"

namespace standin {
namespace {

cudaError_t create(runtime& r, cudaEvent_t* made, unsigned flags) {
  event e;
  e.device = mine().device;
  e.timed = (flags & cudaEventDisableTiming) == 0;
  *made = reinterpret_cast<cudaEvent_t>(r.events.take(std::move(e)));
  return cudaSuccess;
}

cudaError_t record(runtime& r, cudaEvent_t handle, cudaStream_t where) {
  auto* const e = reinterpret_cast<event*>(handle);
  const auto s = stream_of(r, where);
  if (!r.events.holds(e) || s == nullptr || e->device != s->device) return cudaErrorInvalidResourceHandle;
  sim::work w;
  w.done = r.world->make_mark(0);
  e->recorded = w.done;  // another mark than before: who waits for the recording before goes on waiting for that
  e->time_ns = std::make_shared<std::int64_t>(-1);
  w.run = [world = r.world.get(), time_ns = e->time_ns] { *time_ns = world->now_ns(); };
  submit(r, *s, std::move(w), "record");
  return cudaSuccess;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&](runtime& r) { return create(r, made, flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t* made) {
  return call("cudaEventCreate", [&](runtime& r) { return create(r, made, cudaEventDefault); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call("cudaEventDestroy", [&](runtime& r) {
    return r.events.give(reinterpret_cast<event*>(handle)) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t where) {
  return call("cudaEventRecord", [&](runtime& r) { return record(r, handle, where); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t where, unsigned) {
  return call("cudaEventRecordWithFlags", [&](runtime& r) { return record(r, handle, where); });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call("cudaEventQuery", [&](runtime& r) {
    auto* const e = reinterpret_cast<event*>(handle);
    if (!r.events.holds(e)) return cudaErrorInvalidResourceHandle;
    if (e->recorded == nullptr) return cudaSuccess;
    if (!e->recorded->passed) return cudaErrorNotReady;
    r.world->learn(*e->recorded);
    return state_of(at(r, e->device));
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call("cudaEventSynchronize", [&](runtime& r) {
    auto* const e = reinterpret_cast<event*>(handle);
    if (!r.events.holds(e)) return cudaErrorInvalidResourceHandle;
    await(r, e->recorded);
    return r.events.holds(e) ? state_of(at(r, e->device)) : cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return call("cudaEventElapsedTime", [&](runtime& r) {
    auto* const a = reinterpret_cast<event*>(from);
    auto* const b = reinterpret_cast<event*>(to);
    if (!r.events.holds(a) || !r.events.holds(b) || !a->timed || !b->timed || a->device != b->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (a->recorded == nullptr || b->recorded == nullptr) return cudaErrorInvalidResourceHandle;
    if (!a->recorded->passed || !b->recorded->passed) return cudaErrorNotReady;
    *ms = static_cast<float>(*b->time_ns - *a->time_ns) / 1e6F;
    return cudaSuccess;
  });
}

}  // extern "C"
