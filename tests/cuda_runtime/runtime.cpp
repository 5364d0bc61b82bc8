// SPDX-License-Identifier: Apache-2.0
// The stand-in's state, and what is the same for each call.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "runtime.hpp"

namespace standin {

namespace {

using vtier::test::standin_gpu;

[[noreturn]] void refuse(const std::string& text) {
  std::fprintf(stderr, "stand-in for the CUDA runtime: %s\n", text.c_str());
  std::abort();
}

// "name,bytes,PCI id;name,bytes,PCI id": the empty text is a machine without a GPU.
std::vector<standin_gpu> parse_gpus(const std::string& text) {
  std::vector<standin_gpu> found;
  std::istringstream all{text};
  for (std::string one; std::getline(all, one, ';');) {
    standin_gpu g;
    std::istringstream fields{one};
    std::string bytes;
    std::getline(fields, g.name, ',');
    std::getline(fields, bytes, ',');
    std::getline(fields, g.bus_id, ',');
    char* end = nullptr;
    g.memory_bytes = std::strtoull(bytes.c_str(), &end, 10);
    if (bytes.empty() || *end != '\0' || g.bus_id.empty()) refuse("VTIER_STANDIN_GPUS has \"" + one + "\"");
    found.push_back(std::move(g));
  }
  return found;
}

std::string environment(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

}  // namespace

runtime& the() {
  static auto* const one = new runtime;  // never destroyed: programs call CUDA until their very end
  return *one;
}

per_thread& mine() {
  static thread_local per_thread one;
  return one;
}

per_thread::per_thread() {
  static std::atomic<unsigned> numbers{0};
  number = numbers++;
}

// A thread that ends with an error pending has not read, or not taken off, what it was answered.
per_thread::~per_thread() {
  if (last == cudaSuccess) return;
  const std::scoped_lock hold{the().lock};
  the().world->violation("a thread ended with error " + std::to_string(last) + " pending");
}

runtime::runtime() {
  const standin_gpu usual;
  const std::string gpus_text = environment("VTIER_STANDIN_GPUS", "");
  const bool named = std::getenv("VTIER_STANDIN_GPUS") != nullptr;
  const std::string seed = environment("VTIER_STANDIN_SEED", "1");
  reset(std::strtoull(seed.c_str(), nullptr, 10), named ? parse_gpus(gpus_text) : std::vector<standin_gpu>{usual},
        false);
}

void runtime::reset(std::uint64_t seed, const std::vector<standin_gpu>& wanted, bool logs) {
  const std::string where = environment("VTIER_STANDIN_FUNCTIONS", "inside");
  if (where != "inside" && where != "thread") refuse("VTIER_STANDIN_FUNCTIONS is \"" + where + "\": inside or thread");
  functions_on_thread = where == "thread";
  forget_virtual_memory(*this);
  world = std::make_shared<sim::world>(sim::world_options{.seed = seed, .logs = logs});
  gpus.clear();
  streams = {};
  events = {};
  device_blocks.clear();
  locked.clear();
  calls.clear();
  devices_of_threads.clear();
  planned.clear();
  for (const auto& g : wanted) {
    gpus.push_back(std::make_unique<gpu>(static_cast<int>(gpus.size()), g));
    gpus.back()->up_link = world->number();
    gpus.back()->down_link = world->number();
  }
}

std::optional<cudaError_t> enter(runtime& r, const char* name, needs what) {
  per_thread& me = mine();
  if (me.in_function || r.world->inside_work()) {
    r.world->violation(std::string{name} + " was called from a host function");
    return cudaErrorNotPermitted;
  }
  ++r.calls[name][me.device];
  r.devices_of_threads[me.number].insert(me.device);
  for (const char* const planned_name : {name, "*"}) {
    const auto plan = r.planned.find(planned_name);
    if (plan == r.planned.end()) continue;
    auto& [remaining, code] = plan->second;
    if (remaining > 1) {
      --remaining;
      continue;
    }
    const auto given = static_cast<cudaError_t>(code);
    if (remaining == 1) r.planned.erase(plan);
    return given;
  }
  if (what != needs::nothing) {
    if (r.gpus.empty()) return cudaErrorNoDevice;
    if (!exists(r, me.device)) return cudaErrorInvalidDevice;
    if (what == needs::a_sound_device && here(r).broken != 0) return state_of(here(r));
  }
  r.world->host_step();
  return std::nullopt;
}

}  // namespace standin
