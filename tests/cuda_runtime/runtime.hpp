// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state behind the stand-in: one simulated world, GPUs, streams, events, memory; and the frame around each call.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <vtier/core/simulation.hpp>
#include <vtier/device/detail/sim_memory.hpp>

#include "control.hpp"

namespace standin {

namespace sim = vtier::sim;

struct stream {
  std::shared_ptr<sim::lane> work;
  std::shared_ptr<sim::mark> last;  // passes when all that was submitted has run
  int device = 0;
  bool blocking = true;  // takes part in the order of the legacy default stream
};

struct event {
  std::shared_ptr<sim::mark> recorded;  // null: never
  std::shared_ptr<std::int64_t> time_ns;
  int device = 0;
  bool timed = true;
};

struct gpu {
  explicit gpu(vtier::test::standin_gpu wanted) : about{std::move(wanted)}, bytes{about.memory_bytes} {}
  vtier::test::standin_gpu about;
  sim::detail::device_bytes bytes;
  std::size_t up_link = 0;
  std::size_t down_link = 0;
  std::shared_ptr<stream> legacy;
  std::vector<std::pair<std::shared_ptr<sim::mark>, std::size_t>> frees;  // queued in streams
  int broken = 0;
};

struct block {
  std::size_t size_bytes = 0;
  int device = 0;
};

// Handles are the addresses of slots, which are used again at once, the last one first.
template <class T>
class slots {
 public:
  T* take(T value) {
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      free_.push_back(all_.back().get());
    }
    T* const slot = free_.back();
    free_.pop_back();
    *slot = std::move(value);
    used_.push_back(slot);
    return slot;
  }
  bool give(T* slot) {
    if (!holds(slot)) return false;
    std::erase(used_, slot);
    *slot = T{};
    free_.push_back(slot);
    return true;
  }
  [[nodiscard]] bool holds(const T* slot) const {
    for (const T* u : used_) {
      if (u == slot) return true;
    }
    return false;
  }
  [[nodiscard]] const std::vector<T*>& used() const { return used_; }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
  std::vector<T*> used_;
};

struct runtime {
  runtime() { reset(1, {vtier::test::standin_gpu{}}, false); }
  void reset(std::uint64_t seed, const std::vector<vtier::test::standin_gpu>& gpus, bool logs);

  std::recursive_mutex lock;
  std::shared_ptr<sim::world> world;
  std::vector<std::unique_ptr<gpu>> gpus;
  slots<std::shared_ptr<stream>> streams;
  slots<event> events;
  std::map<std::byte*, block> device_blocks;
  std::map<std::byte*, std::size_t> pinned;      // cudaHostAlloc
  std::map<std::byte*, std::size_t> registered;  // cudaHostRegister
  std::map<const void*, vtier::test::kernel_capture> kernels;
  std::map<std::string, std::map<int, std::uint64_t>> calls;
  std::map<std::string, std::pair<std::uint64_t, int>> planned;  // which call, and its answer
  bool ended = false;
};

runtime& the();

struct per_thread {
  int device = 0;
  cudaError_t last = cudaSuccess;
  std::vector<std::tuple<dim3, dim3, std::size_t, cudaStream_t>> configurations;
};
per_thread& mine();

inline cudaError_t answer(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) mine().last = code;
  return code;
}

// The frame around each call: one at a time, counted, failing where that was planned, forbidden from host functions.
template <class Body>
cudaError_t call(const char* name, Body&& body, bool even_when_broken = false) {
  runtime& r = the();
  const std::scoped_lock hold{r.lock};
  if (r.world->inside_work()) {
    r.world->violation(std::string{name} + " was called from a host function");
    return answer(cudaErrorNotPermitted);
  }
  ++r.calls[name][mine().device];
  if (const auto at = r.planned.find(name); at != r.planned.end() && --at->second.first == 0) {
    const int code = at->second.second;
    r.planned.erase(at);
    return answer(static_cast<cudaError_t>(code));
  }
  const auto device = static_cast<std::size_t>(mine().device);
  if (!even_when_broken && device < r.gpus.size() && r.gpus[device]->broken != 0) {
    return answer(static_cast<cudaError_t>(r.gpus[device]->broken));
  }
  r.world->host_step();
  return answer(body(r));
}

// What a cudaStream_t means for the calling thread; null where it is no stream.
std::shared_ptr<stream> stream_of(runtime& r, cudaStream_t handle);

// Puts work in a stream, in the order that the legacy default stream asks for.
std::shared_ptr<sim::mark> submit(runtime& r, stream& s, sim::work w, const char* what);

// Runs the world until a mark has passed, and lets the host know.
void await(runtime& r, const std::shared_ptr<sim::mark>& done);
void await_device(runtime& r, int device);

[[nodiscard]] gpu* device_at(runtime& r, const void* place);
[[nodiscard]] bool is_locked(const runtime& r, const void* place, std::size_t size_bytes);
[[nodiscard]] std::byte* reach(runtime& r, const void* place);

}  // namespace standin
