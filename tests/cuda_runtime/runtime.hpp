// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state behind the stand-in: one simulated world, GPUs, streams, events, memory; and the frame around each call.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
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
  int priority = 0;
  bool blocking = true;  // takes part in the order of the legacy default stream
  bool gone = false;     // destroyed; what was submitted still runs

  [[nodiscard]] bool idle() const { return last == nullptr || last->passed; }
};

struct event {
  std::shared_ptr<sim::mark> recorded;  // null: never
  std::shared_ptr<std::int64_t> time_ns;
  int device = 0;
  bool timed = true;
};

struct gpu {
  gpu(int number, vtier::test::standin_gpu wanted)
      : ordinal{number}, about{std::move(wanted)}, bytes{about.memory_bytes} {}
  int ordinal;
  vtier::test::standin_gpu about;
  sim::detail::device_bytes bytes;
  std::size_t up_link = 0;
  std::size_t down_link = 0;
  std::vector<std::shared_ptr<stream>> streams;  // all, destroyed ones until they are idle
  std::shared_ptr<stream> legacy;
  std::map<unsigned, std::shared_ptr<stream>> per_thread;
  std::vector<std::shared_ptr<sim::mark>> frees;  // queued in streams
  std::set<int> peers;                            // whose memory its kernels may reach
  std::uint64_t release_threshold = 0;
  int broken = 0;             // what every call answers from now on
  std::uint64_t fail_in = 0;  // so many pieces of work from now one fails; 0: none
  int fail_code = 0;
};

struct device_block {
  std::size_t size_bytes = 0;
  int device = 0;
  bool pooled = false;  // from cudaMallocAsync
  bool mapped = false;  // by cuMemMap
};

// The driver's virtual memory: addresses, memory without an address, and what of it is where.
struct address_range {
  std::size_t size_bytes = 0;
  int device = 0;
};
struct physical_memory {
  std::size_t size_bytes = 0;
  int device = 0;
  std::size_t mappings = 0;
  bool released = false;  // it goes with its last mapping
};
struct mapping {
  std::size_t size_bytes = 0;
  unsigned long long handle = 0;
  bool accessible = false;
};

struct locked_range {
  std::size_t size_bytes = 0;
  bool registered = false;  // else from cudaHostAlloc
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
    used_.insert(slot);
    return slot;
  }
  bool give(T* slot) {
    if (used_.erase(slot) == 0) return false;
    *slot = T{};
    free_.push_back(slot);
    return true;
  }
  [[nodiscard]] bool holds(T* slot) const { return used_.count(slot) != 0; }
  [[nodiscard]] const std::set<T*>& used() const { return used_; }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
  std::set<T*> used_;
};

struct runtime {
  runtime();  // by the environment
  void reset(std::uint64_t seed, const std::vector<vtier::test::standin_gpu>& gpus, bool logs);

  std::recursive_mutex lock;
  std::shared_ptr<sim::world> world;
  std::vector<std::unique_ptr<gpu>> gpus;
  slots<std::shared_ptr<stream>> streams;
  slots<event> events;
  std::map<std::byte*, device_block> device_blocks;
  std::map<std::byte*, locked_range> locked;  // host memory
  std::map<std::byte*, address_range> ranges;
  std::map<unsigned long long, physical_memory> physical;  // by handle
  unsigned long long physical_last = 0;
  std::map<std::byte*, mapping> mappings;
  std::set<std::string> missing_driver_functions;
  std::map<const void*, vtier::test::kernel_capture> kernels;
  std::map<std::string, vtier::test::kernel_capture> named_kernels;
  std::map<const void*, std::string> stub_names;  // as nvcc's host code has registered them
  std::map<std::string, std::map<int, std::uint64_t>> calls;
  std::map<unsigned, std::set<int>> devices_of_threads;
  std::map<std::string, std::pair<std::uint64_t, int>> planned;  // which call from now, 0: each; and its answer

  // Where host functions run on a thread, as those of the real runtime do: on their way to it, and with it.
  bool functions_on_thread = false;
  bool has_thread = false;
  std::deque<std::pair<std::function<void()>, std::shared_ptr<sim::mark>>> functions;
  std::size_t functions_running = 0;
  std::condition_variable_any changed;
};

runtime& the();

// What the runtime keeps for each thread.
struct per_thread {
  per_thread();
  ~per_thread();
  unsigned number = 0;
  int device = 0;
  cudaError_t last = cudaSuccess;
  bool in_function = false;
  std::vector<std::tuple<dim3, dim3, std::size_t, cudaStream_t>> configurations;
};
per_thread& mine();

inline cudaError_t answer(cudaError_t code) {
  if (code != cudaSuccess) mine().last = code;  // also "not ready", which is no error to everybody else
  return code;
}

// What a call cannot do without.
enum class needs { nothing, a_device, a_sound_device };

// Counts a call; gives the answer where its body is not to run.
std::optional<cudaError_t> enter(runtime& r, const char* name, needs what);

// The frame around each call: one at a time, counted, failing where that was planned, forbidden from host functions.
template <class Body>
cudaError_t call(const char* name, Body&& body, needs what = needs::a_sound_device) {
  runtime& r = the();
  const std::scoped_lock hold{r.lock};
  if (const auto code = enter(r, name, what)) return answer(*code);
  return answer(body(r));
}

inline gpu& at(runtime& r, int device) { return *r.gpus[static_cast<std::size_t>(device)]; }
inline gpu& here(runtime& r) { return at(r, mine().device); }
inline bool exists(const runtime& r, int device) {
  return device >= 0 && static_cast<std::size_t>(device) < r.gpus.size();
}
inline cudaError_t state_of(const gpu& g) { return static_cast<cudaError_t>(g.broken); }

// ---- streams.cpp

// What a cudaStream_t means for the calling thread; null where it is no stream.
std::shared_ptr<stream> stream_of(runtime& r, cudaStream_t handle);

// Puts work in a stream, in the order that the legacy default stream asks for.
std::shared_ptr<sim::mark> submit(runtime& r, stream& s, sim::work w, const char* what);

// The same act for a device: it fails where that was planned, and does nothing on a device that has failed.
std::function<void()> on_device(runtime& r, gpu& g, std::function<void()> act);

// Runs the world until a mark has passed; false where it never does. With await the host knows what is over.
bool reached(runtime& r, std::shared_ptr<sim::mark> done);
void await(runtime& r, std::shared_ptr<sim::mark> done);
void await_device(runtime& r, int device);

// ---- memory.cpp

enum class share { none, part, all };

// How much of some host memory is page-locked.
[[nodiscard]] share locked_share(const runtime& r, const void* first, std::size_t size_bytes);

[[nodiscard]] gpu* device_at(runtime& r, const void* place);
[[nodiscard]] std::byte* reach(runtime& r, const void* place);
void give(runtime& r, std::byte* start);

// ---- driver.cpp

void forget_virtual_memory(runtime& r);
void tell_leaked_virtual_memory(runtime& r);

}  // namespace standin
