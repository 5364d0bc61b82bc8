// SPDX-License-Identifier: Apache-2.0
// The stand-in's streams and events.

#include <limits>

#include "runtime.hpp"

namespace standin {

namespace {

std::shared_ptr<stream> new_stream(runtime& r, int device, bool blocking, const char* name) {
  auto made = std::make_shared<stream>();
  made->work = r.world->make_lane(std::string{name} + " of gpu " + std::to_string(device));
  made->device = device;
  made->blocking = blocking;
  return made;
}

}  // namespace

std::shared_ptr<stream> stream_of(runtime& r, cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    auto& legacy = r.gpus[static_cast<std::size_t>(mine().device)]->legacy;
    if (legacy == nullptr) legacy = new_stream(r, mine().device, true, "legacy stream");
    return legacy;
  }
  auto* const slot = reinterpret_cast<std::shared_ptr<stream>*>(handle);
  return r.streams.holds(slot) ? *slot : nullptr;
}

std::shared_ptr<sim::mark> submit(runtime& r, stream& s, sim::work w, const char* what) {
  const auto wait_for = [&](const std::shared_ptr<sim::mark>& before) {
    if (before == nullptr || before->passed) {
      if (before != nullptr) s.work->known.join(before->known);
      return;
    }
    sim::work wait;
    wait.after = before;
    r.world->submit(*s.work, std::move(wait), "wait of the default stream's order", {});
  };
  gpu& g = *r.gpus[static_cast<std::size_t>(s.device)];
  if (g.legacy.get() == &s) {
    for (const auto* slot : r.streams.used()) {
      if ((*slot)->device == s.device && (*slot)->blocking) wait_for((*slot)->last);
    }
  } else if (s.blocking && g.legacy != nullptr) {
    wait_for(g.legacy->last);
  }
  if (w.done == nullptr) w.done = r.world->make_mark(0);
  s.last = w.done;
  r.world->submit(*s.work, std::move(w), what, {});
  return s.last;
}

void await(runtime& r, const std::shared_ptr<sim::mark>& done) {
  if (done == nullptr) return;
  if (!r.world->run_until([&] { return done->passed; })) {
    r.world->violation("the host waits for an event that never passes");
    return;
  }
  r.world->learn(*done);
}

void await_device(runtime& r, int device) {
  gpu& g = *r.gpus[static_cast<std::size_t>(device)];
  if (g.legacy != nullptr) await(r, g.legacy->last);
  for (const auto* slot : r.streams.used()) {
    if ((*slot)->device == device) await(r, (*slot)->last);
  }
  for (const auto& [done, size] : g.frees) await(r, done);  // also in streams that are gone
  g.frees.clear();
}

}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int) {
  return call("cudaStreamCreateWithPriority", [&](runtime& r) {
    auto* const slot = r.streams.take(new_stream(r, mine().device, (flags & cudaStreamNonBlocking) == 0, "stream"));
    r.world->stream_made();
    *made = reinterpret_cast<cudaStream_t>(slot);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&](runtime& r) {
    auto* const slot = r.streams.take(new_stream(r, mine().device, (flags & cudaStreamNonBlocking) == 0, "stream"));
    r.world->stream_made();
    *made = reinterpret_cast<cudaStream_t>(slot);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* made) { return cudaStreamCreateWithFlags(made, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call("cudaStreamDestroy", [&](runtime& r) {
    auto* const slot = reinterpret_cast<std::shared_ptr<stream>*>(handle);
    if (!r.streams.holds(slot)) return cudaErrorInvalidResourceHandle;
    r.streams.give(slot);  // what was submitted still runs
    r.world->stream_gone();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    await(r, s->last);
    return static_cast<cudaError_t>(r.gpus[static_cast<std::size_t>(s->device)]->broken);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (s->last != nullptr && !s->last->passed) return cudaErrorNotReady;
    if (s->last != nullptr) r.world->learn(*s->last);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return call("cudaStreamGetFlags", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    *flags = s->blocking ? cudaStreamDefault : cudaStreamNonBlocking;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return call("cudaStreamGetDevice", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    *device = s->device;
    return cudaSuccess;
  });
}

// The recording that the event has now; one that was never recorded holds nothing up.
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t waited, unsigned) {
  return call("cudaStreamWaitEvent", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    auto* const e = reinterpret_cast<event*>(waited);
    if (s == nullptr || !r.events.holds(e)) return cudaErrorInvalidResourceHandle;
    if (e->recorded == nullptr) return cudaSuccess;
    sim::work w;
    w.after = e->recorded;
    submit(r, *s, std::move(w), "wait");
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&](runtime& r) {
    event e;
    e.device = mine().device;
    e.timed = (flags & cudaEventDisableTiming) == 0;
    *made = reinterpret_cast<cudaEvent_t>(r.events.take(std::move(e)));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* made) { return cudaEventCreateWithFlags(made, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call("cudaEventDestroy", [&](runtime& r) {
    return r.events.give(reinterpret_cast<event*>(handle)) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t where) {
  return call("cudaEventRecord", [&](runtime& r) {
    auto* const e = reinterpret_cast<event*>(handle);
    const auto s = stream_of(r, where);
    if (!r.events.holds(e) || s == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->device != s->device) {
      r.world->violation("an event was recorded in a stream of another device");
      return cudaErrorInvalidResourceHandle;
    }
    sim::work w;
    auto time_ns = std::make_shared<std::int64_t>(-1);
    w.done = r.world->make_mark(0);
    w.run = [world = r.world.get(), time_ns] { *time_ns = world->now_ns(); };
    e->recorded = w.done;
    e->time_ns = std::move(time_ns);
    submit(r, *s, std::move(w), "record");
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call("cudaEventQuery", [&](runtime& r) {
    auto* const e = reinterpret_cast<event*>(handle);
    if (!r.events.holds(e)) return cudaErrorInvalidResourceHandle;
    if (e->recorded == nullptr) return cudaSuccess;
    if (!e->recorded->passed) return cudaErrorNotReady;
    r.world->learn(*e->recorded);
    return static_cast<cudaError_t>(r.gpus[static_cast<std::size_t>(e->device)]->broken);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call("cudaEventSynchronize", [&](runtime& r) {
    auto* const e = reinterpret_cast<event*>(handle);
    if (!r.events.holds(e)) return cudaErrorInvalidResourceHandle;
    await(r, e->recorded);
    return static_cast<cudaError_t>(r.gpus[static_cast<std::size_t>(e->device)]->broken);
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return call("cudaEventElapsedTime", [&](runtime& r) {
    auto* const a = reinterpret_cast<event*>(from);
    auto* const b = reinterpret_cast<event*>(to);
    if (!r.events.holds(a) || !r.events.holds(b) || !a->timed || !b->timed) return cudaErrorInvalidResourceHandle;
    if (a->recorded == nullptr || b->recorded == nullptr) return cudaErrorInvalidResourceHandle;
    if (!a->recorded->passed || !b->recorded->passed) return cudaErrorNotReady;
    *ms = static_cast<float>(*b->time_ns - *a->time_ns) / 1e6F;
    return cudaSuccess;
  });
}

}  // extern "C"
