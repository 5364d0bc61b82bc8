// SPDX-License-Identifier: Apache-2.0
// The stand-in's streams.

#include "runtime.hpp"

namespace standin {

namespace {

// The toolkit's macros are C casts of these numbers.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
bool is_legacy(cudaStream_t handle) { return handle == nullptr || handle == cudaStreamLegacy; }
bool is_per_thread(cudaStream_t handle) { return handle == cudaStreamPerThread; }
#pragma GCC diagnostic pop

constexpr int highest_priority = -5;

std::shared_ptr<stream> new_stream(runtime& r, bool blocking, const char* name) {
  gpu& g = here(r);
  std::erase_if(g.streams, [](const auto& s) { return s->gone && s->idle(); });
  auto made = std::make_shared<stream>();
  made->work = r.world->make_lane(std::string{name} + " of gpu " + std::to_string(g.ordinal));
  made->device = g.ordinal;
  made->blocking = blocking;
  g.streams.push_back(made);
  return made;
}

cudaError_t create(runtime& r, cudaStream_t* made, unsigned flags, int priority) {
  if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
  auto s = new_stream(r, (flags & cudaStreamNonBlocking) == 0, "stream");
  s->priority = std::clamp(priority, highest_priority, 0);
  *made = reinterpret_cast<cudaStream_t>(r.streams.take(std::move(s)));
  r.world->stream_made();
  return cudaSuccess;
}

// One value of a stream.
template <class Value, class Read>
cudaError_t ask(const char* name, cudaStream_t handle, Value* value, Read&& read) {
  return call(name, [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    *value = read(*s);
    return cudaSuccess;
  });
}

}  // namespace

std::shared_ptr<stream> stream_of(runtime& r, cudaStream_t handle) {
  if (is_legacy(handle)) {
    auto& legacy = here(r).legacy;
    if (legacy == nullptr) legacy = new_stream(r, true, "legacy stream");
    return legacy;
  }
  if (is_per_thread(handle)) {
    auto& own = here(r).per_thread[mine().number];
    if (own == nullptr) own = new_stream(r, true, "per-thread stream");
    return own;
  }
  auto* const slot = reinterpret_cast<std::shared_ptr<stream>*>(handle);
  return r.streams.holds(slot) ? *slot : nullptr;
}

std::shared_ptr<sim::mark> submit(runtime& r, stream& s, sim::work w, const char* what) {
  const auto wait_for = [&](const std::shared_ptr<sim::mark>& before) {
    if (before == nullptr) return;
    if (before->passed) {
      s.work->known.join(before->known);
      return;
    }
    sim::work wait;
    wait.after = before;
    r.world->submit(*s.work, std::move(wait), "wait of the default stream's order", {});
  };
  gpu& g = at(r, s.device);
  if (g.legacy.get() == &s) {
    for (const auto& other : g.streams) {
      if (other->blocking && other.get() != &s) wait_for(other->last);
    }
  } else if (s.blocking && g.legacy != nullptr) {
    wait_for(g.legacy->last);
  }
  if (w.done == nullptr) w.done = r.world->make_mark(0);
  s.last = w.done;
  r.world->submit(*s.work, std::move(w), what, {});
  return s.last;
}

std::function<void()> on_device(runtime& r, gpu& g, std::function<void()> act) {
  return [&r, &g, act = std::move(act)] {
    if (g.broken != 0) return;
    if (g.fail_in > 0 && --g.fail_in == 0) {
      g.broken = g.fail_code;
      r.world->log("gpu " + std::to_string(g.ordinal) + " has failed with " + std::to_string(g.broken));
      return;
    }
    act();
  };
}

bool reached(runtime& r, std::shared_ptr<sim::mark> done) {
  while (!r.world->run_until([&] { return done->passed; })) {
    if (r.functions.empty() && r.functions_running == 0) return false;
    r.changed.wait(r.lock);  // a host function on its thread has to end first
  }
  return true;
}

void await(runtime& r, std::shared_ptr<sim::mark> done) {
  if (done == nullptr) return;
  if (!reached(r, done)) return r.world->violation("the host waits for an event that never passes");
  r.world->learn(*done);
}

void await_device(runtime& r, int device) {
  gpu& g = at(r, device);
  for (const auto& s : std::vector{g.streams}) await(r, s->last);
  std::erase_if(g.streams, [](const auto& s) { return s->gone && s->idle(); });
  g.frees.clear();
}

}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&](runtime& r) { return create(r, made, flags, priority); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&](runtime& r) { return create(r, made, flags, 0); });
}
cudaError_t cudaStreamCreate(cudaStream_t* made) {
  return call("cudaStreamCreate", [&](runtime& r) { return create(r, made, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call("cudaStreamDestroy", [&](runtime& r) {
    auto* const slot = reinterpret_cast<std::shared_ptr<stream>*>(handle);
    if (!r.streams.holds(slot)) return cudaErrorInvalidResourceHandle;
    (*slot)->gone = true;
    r.streams.give(slot);
    r.world->stream_gone();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    await(r, s->last);
    return state_of(at(r, s->device));
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", [&](runtime& r) {
    const auto s = stream_of(r, handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (!s->idle()) return cudaErrorNotReady;
    if (s->last != nullptr) r.world->learn(*s->last);
    return state_of(at(r, s->device));
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return ask("cudaStreamGetFlags", handle, flags,
             [](const stream& s) { return s.blocking ? 0U : unsigned{cudaStreamNonBlocking}; });
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return ask("cudaStreamGetPriority", handle, priority, [](const stream& s) { return s.priority; });
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return ask("cudaStreamGetDevice", handle, device, [](const stream& s) { return s.device; });
}
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return ask("cudaStreamGetId", handle, id,
             [](const stream& s) { return static_cast<unsigned long long>(s.work->who); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&](runtime&) {
    *least = 0;
    *greatest = highest_priority;
    return cudaSuccess;
  });
}

// The recording that the event has now, of whatever device; one that was never recorded holds nothing up.
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

}  // extern "C"
