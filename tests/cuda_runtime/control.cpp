// SPDX-License-Identifier: Apache-2.0
// What tests say to the stand-in.

#include "runtime.hpp"

namespace standin {
namespace {

// Host functions that are on their thread come to their end.
void settle(runtime& r) {
  while (!r.functions.empty() || r.functions_running > 0) r.changed.wait(r.lock);
}

// Runs what is left.
void drain(runtime& r) {
  do {
    settle(r);
    static_cast<void>(r.world->run_until([] { return false; }));
  } while (!r.functions.empty() || r.functions_running > 0);
}

std::vector<std::string> violations(bool at_end) {
  runtime& r = the();
  const std::scoped_lock hold{r.lock};
  if (at_end) {
    drain(r);
    for (const auto& g : r.gpus) {
      g->frees.clear();
      g->legacy = nullptr;
      g->per_thread.clear();
      g->streams.clear();
    }
    if (const std::size_t left = r.events.used().size(); left > 0) {
      r.world->violation("leaked: " + std::to_string(left) + " CUDA events");
      r.events = {};
    }
    tell_leaked_virtual_memory(r);
    for (const auto& [start, range] : r.locked) {
      if (range.registered) r.world->violation("leaked: a registration of host memory");
    }
    r.world->finish();
  }
  return r.world->violations();
}

vtier::test::standin_control control() {
  vtier::test::standin_control c{};
  c.reset = [](std::uint64_t seed, const std::vector<vtier::test::standin_gpu>& gpus, bool logs) {
    const std::scoped_lock hold{the().lock};
    settle(the());  // what has not begun is forgotten: it may use what is gone
    the().reset(seed, gpus, logs);
    mine().device = 0;
    mine().last = cudaSuccess;
    mine().configurations.clear();
  };
  c.functions_on_thread = [](bool yes) {
    const std::scoped_lock hold{the().lock};
    the().functions_on_thread = yes;
  };
  c.fail = [](const char* function, std::uint64_t nth, int code) {
    const std::scoped_lock hold{the().lock};
    if (code == 0) {
      the().planned.erase(function);
    } else {
      the().planned[function] = {nth, code};
    }
  };
  c.fail_work = [](int device, std::uint64_t nth, int code) {
    const std::scoped_lock hold{the().lock};
    the().gpus.at(static_cast<std::size_t>(device))->fail_in = nth;
    the().gpus.at(static_cast<std::size_t>(device))->fail_code = code;
  };
  c.break_device = [](int device, int code) {
    const std::scoped_lock hold{the().lock};
    the().gpus.at(static_cast<std::size_t>(device))->broken = code;
  };
  c.lack = [](const char* function) {
    const std::scoped_lock hold{the().lock};
    the().missing_driver_functions.insert(function);
  };
  c.bind = [](const void* stub, vtier::test::kernel_capture capture) {
    const std::scoped_lock hold{the().lock};
    the().kernels[stub] = std::move(capture);
  };
  c.bind_name = [](const char* mangled, vtier::test::kernel_capture capture) {
    const std::scoped_lock hold{the().lock};
    the().named_kernels[mangled] = std::move(capture);
  };
  c.violations = &violations;
  c.events = [] {
    const std::scoped_lock hold{the().lock};
    return the().world->events();
  };
  c.calls = [](const char* function, int device) {
    runtime& r = the();
    const std::scoped_lock hold{r.lock};
    std::uint64_t sum = 0;
    for (const auto& [on, count] : r.calls[function]) sum += device < 0 || on == device ? count : 0;
    return sum;
  };
  c.functions = [] {
    const std::scoped_lock hold{the().lock};
    std::vector<std::string> names;
    for (const auto& entry : the().calls) names.push_back(entry.first);
    return names;
  };
  c.devices_of_threads = [] {
    const std::scoped_lock hold{the().lock};
    std::vector<std::set<int>> all;
    for (const auto& entry : the().devices_of_threads) all.push_back(entry.second);
    return all;
  };
  c.reads = [](const void* first, std::size_t size) {
    const std::scoped_lock hold{the().lock};
    if (!mine().in_function) the().world->reads(first, size);
  };
  c.writes = [](const void* first, std::size_t size) {
    const std::scoped_lock hold{the().lock};
    if (!mine().in_function) the().world->writes(first, size);
  };
  return c;
}

}  // namespace
}  // namespace standin

extern "C" __attribute__((visibility("default"))) const vtier::test::standin_control* vtier_standin() {
  static const vtier::test::standin_control one = standin::control();
  return &one;
}
