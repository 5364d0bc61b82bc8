// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the handles of a simulated device and of its streams share.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/detail/launch_failure.hpp>
#include <vtier/device/detail/sim_memory.hpp>

namespace vtier::sim {

/// Limits and speeds of a simulated device.
struct device_options {
  std::size_t memory_bytes = std::size_t{1} << 20U;
  std::string name = "sim";
  std::string bus_id;                  // as bus_id() gives it
  double copy_bytes_per_ns = 16.0;     // up and down each
  double device_bytes_per_ns = 256.0;  // within the device
  double latency_ns = 2000.0;          // of each operation
  double function_ns = 5000.0;         // of a launched function
};

namespace detail {

/// What the handles of a device share.
struct device_state {
  device_state(std::shared_ptr<world> in, device_options wanted)
      : machine{std::move(in)},
        options{std::move(wanted)},
        number{machine->number()},
        up_link{machine->number()},
        down_link{machine->number()},
        bytes{options.memory_bytes} {
    machine->only_allocated(bytes.first(), bytes.size_bytes());
  }
  device_state(const device_state&) = delete;
  device_state& operator=(const device_state&) = delete;
  /// Work that is queued runs before the device goes; what waits for something that never comes is lost, and told.
  ~device_state() {
    const auto idle = [&] {
      return std::all_of(lanes.begin(), lanes.end(),
                         [](const auto& l) { return !l.lock() || l.lock()->queue.empty(); });
    };
    if (!machine->run_until(idle)) {
      machine->violation(options.name + " was destroyed with work that waits for what never comes");
      for (const auto& weak : lanes) {
        if (const auto l = weak.lock()) l->queue.clear();
      }
    }
    machine->any_use(bytes.first());
  }

  /// What each call of the host does first: it comes from no launched function, and a moment goes by.
  void check_caller() const {
    if (machine->inside_work()) machine->violation("a launched function called " + options.name);
  }
  void begin() const {
    check_caller();
    if (!machine->inside_work()) machine->host_step();
  }

  [[nodiscard]] std::size_t free_bytes() const noexcept { return bytes.size_bytes() - bytes.used_bytes(); }
  [[nodiscard]] out_of_memory no_room(std::size_t size_bytes) const {
    return {options.name, size_bytes, free_bytes(),
            options.name + ": asked " + format_bytes(size_bytes) + ", free " + format_bytes(free_bytes()) + " of " +
                format_bytes(bytes.size_bytes()) + "; free a block or make it larger"};
  }

  /// A queue for a new stream.
  [[nodiscard]] std::shared_ptr<lane> make_lane() {
    std::erase_if(lanes, [](const auto& l) { return l.expired(); });
    auto made = machine->make_lane(options.name + " stream " + std::to_string(++stream_count));
    lanes.push_back(made);
    return made;
  }

  /// Takes a block back; what is none of its own stays as it is, and is told.
  void give(void* block, std::size_t size_bytes) {
    if (!bytes.holds(block)) return machine->violation("memory was freed on " + options.name + " that is not its own");
    if (const std::size_t size = machine->freed(block, size_bytes); size > 0) bytes.give(block, size);
  }

  /// Host memory, and an end to it.
  [[nodiscard]] void* take_host(std::size_t size_bytes) {
    if (machine->fails(fault::host_memory)) {
      throw out_of_memory(options.name, size_bytes, 0,
                          options.name + ": no " + format_bytes(size_bytes) + " of host memory: ask for less");
    }
    void* const block = ::operator new (size_bytes, std::align_val_t{host_alignment});
    std::memset(block, 0xCD, size_bytes);
    machine->allocated(block, size_bytes, "host memory of " + options.name);
    machine->forget(block, size_bytes);
    return block;
  }
  void give_host(void* block, std::size_t size_bytes) noexcept {
    machine->touch(block, size_bytes, access_kind::write);
    const std::size_t size = machine->freed(block, size_bytes);
    if (size == 0) return;  // it is not there, or not any more
    std::memset(block, 0xDC, size);
    ::operator delete (block, std::align_val_t{host_alignment});
  }

  static constexpr std::size_t host_alignment = 4096;

  struct release {
    std::shared_ptr<mark> done;
    std::size_t size_bytes;
  };

  std::shared_ptr<world> machine;
  device_options options;
  std::size_t number;
  std::size_t up_link;
  std::size_t down_link;
  device_bytes bytes;
  std::vector<release> queued;  // blocks whose release waits in a stream
  std::size_t stream_count = 0;
  std::vector<std::weak_ptr<lane>> lanes;
  const std::shared_ptr<vtier::detail::launch_failures> failures = std::make_shared<vtier::detail::launch_failures>();
};

/// What the handles of a stream share.
struct stream_state {
  std::shared_ptr<lane> work;
  std::size_t owner = 0;  // the device, by number
  bool gone = false;
};

}  // namespace detail

}  // namespace vtier::sim
