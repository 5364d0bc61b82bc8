// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device whose time and order of events are chosen by a seed: for tests of whatever is built on the device concept.
//
// Nothing runs beside the caller. Each call lets a moment of the world's time pass, in which work that is due runs;
// what is asked of the device wrongly (another device's stream, a call from a launched function, freed memory) is a
// violation in the world's list, and so is every use of bytes that no event orders behind the one before it.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/detail/sim_handles.hpp>
#include <vtier/device/detail/sim_range.hpp>
#include <vtier/device/detail/sim_state.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/growable_device.hpp>
#include <vtier/device/timed_device.hpp>

namespace vtier::sim {

/// A simulated device.
///
/// Needs   a world, which must outlive nothing: it is shared
/// Gives   a handle: copies are the same device. Host code that touches its memory faults; a launched function may, and
///         says what it touches by world::reads and world::writes if the world is to check it
/// Errors  out_of_memory, device_error where the world lets an occasion fail; usage_error for streams that are gone
/// Threads one at a time, the world's
class device {
 public:
  using event = sim::event;
  using stream = sim::stream;
  using stream_ref = sim::stream_ref;
  using range = detail::range;

  explicit device(std::shared_ptr<world> in, device_options options = {})
      : state_{std::make_shared<detail::device_state>(std::move(in), std::move(options))} {}

  [[nodiscard]] stream make_stream() const {
    begin();
    may_fail(fault::stream, "make_stream");
    auto made = std::make_shared<detail::stream_state>();
    made->owner = state_->number;
    made->work = state_->make_lane();
    machine().stream_made();
    return stream{std::move(made), state_->machine};
  }

  [[nodiscard]] event record(stream_ref s, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    begin();
    may_fail(fault::record, "record");
    auto done = machine().make_mark(state_->number);
    work w;
    w.done = done;
    put(s, std::move(w), "record", {file, line});
    return event{std::move(done)};
  }

  /// Every event is timed here.
  [[nodiscard]] event record_timed(stream_ref s, const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) const {
    return record(std::move(s), file, line);
  }

  [[nodiscard]] std::int64_t elapsed_ns(const event& from, const event& to) const {
    begin();
    VTIER_ASSERT(from.state_ != nullptr && to.state_ != nullptr && from.state_->passed && to.state_->passed,
                 "the time between events that have not passed");
    check_owner(from, "elapsed_ns");
    check_owner(to, "elapsed_ns");
    return to.state_->passed_ns - from.state_->passed_ns;
  }

  void wait(stream_ref s, const event& e, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    begin();
    if (e.state_ == nullptr) return;
    check_owner(e, "wait");
    may_fail(fault::wait, "wait");
    work w;
    w.after = e.state_;
    put(s, std::move(w), "wait", {file, line});
  }

  [[nodiscard]] bool passed(const event& e) const {
    begin();
    if (e.state_ == nullptr) return true;
    check_owner(e, "passed");
    may_fail(fault::query, "passed");
    if (e.state_->passed) machine().learn(*e.state_);
    return e.state_->passed;
  }

  void synchronize(const event& e) const {
    begin();
    if (e.state_ == nullptr) return;
    check_owner(e, "synchronize");
    await(e.state_);
  }

  void synchronize(stream_ref s, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    begin();
    auto done = machine().make_mark(state_->number);
    work w;
    w.done = done;
    put(s, std::move(w), "synchronize", {file, line});
    await(done);
  }

  void copy(stream_ref s, void* target, const void* source, std::size_t size_bytes, copy_direction direction,
            const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    begin();
    if (size_bytes == 0) return;
    may_fail(fault::copy, "copy");
    const bool within = direction == copy_direction::device_to_device;
    const double speed = within ? state_->options.device_bytes_per_ns : state_->options.copy_bytes_per_ns;
    work w = timed(size_bytes, speed);
    if (!within) w.link = direction == copy_direction::device_to_host ? state_->down_link : state_->up_link;
    w.run = [state = state_.get(), target, source, size_bytes] {
      state->machine->reads(source, size_bytes);
      state->machine->writes(target, size_bytes);
      std::memmove(state->bytes.reach(target), state->bytes.reach(source), size_bytes);
    };
    static constexpr const char* words[] = {"copy up", "copy down", "copy within the device", "copy within the host"};
    put(s, std::move(w), words[static_cast<std::size_t>(direction)], {file, line});
  }

  void fill(stream_ref s, void* target, std::byte value, std::size_t size_bytes, const char* file = __builtin_FILE(),
            int line = __builtin_LINE()) const {
    begin();
    if (size_bytes == 0) return;
    may_fail(fault::copy, "fill");
    work w = timed(size_bytes, state_->options.device_bytes_per_ns);
    w.run = [state = state_.get(), target, value, size_bytes] {
      state->machine->writes(target, size_bytes);
      std::memset(state->bytes.reach(target), std::to_integer<int>(value), size_bytes);
    };
    put(s, std::move(w), "fill", {file, line});
  }

  void launch(stream_ref s, std::function<void()> function, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) const {
    const double ns = state_->options.latency_ns + state_->options.function_ns;
    put_function(s, ns, std::move(function), true, "launch", {file, line});
  }

  /// Launches a function that takes so long and finds bytes by reach() alone: device addresses stay closed to it, so
  /// that it costs the simulation little.
  void compute(stream_ref s, double ns, std::function<void()> function, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) const {
    put_function(s, ns, std::move(function), false, "compute", {file, line});
  }

  [[nodiscard]] void* allocate(std::size_t size_bytes) const {
    begin();
    if (size_bytes == 0) return nullptr;
    void* const block = take(size_bytes);
    machine().forget(block, size_bytes);  // a blocking allocation comes after all that was freed
    return block;
  }

  void deallocate(void* block, std::size_t size_bytes) const noexcept {
    if (block == nullptr) return;
    begin();
    machine().touch(block, size_bytes, access_kind::write);  // who still uses it has lost
    state_->give(block, size_bytes);
  }

  /// Gives device memory for work of the stream from now on; where there is room but for blocks whose release is
  /// queued, the stream waits for them.
  [[nodiscard]] void* allocate(stream_ref s, std::size_t size_bytes) const {
    begin();
    if (size_bytes == 0) return nullptr;
    check_stream(s, "allocate");
    if (s.state_->gone) throw gone();
    auto& queued = state_->queued;
    std::erase_if(queued, [](const auto& r) { return r.done->passed; });
    if (size_bytes > state_->free_bytes() && !queued.empty()) {
      // The address of a queued block is known only once it is free: the device waits on the caller's behalf.
      const std::vector<detail::device_state::release> before = queued;
      for (const auto& r : before) {
        wait(s, event{r.done});
        await(r.done);
        if (size_bytes <= state_->free_bytes()) break;
      }
    }
    void* const block = take(size_bytes);
    work w;
    w.run = [state = state_.get(), block, size_bytes] { state->machine->forget(block, size_bytes); };
    machine().forget(block, size_bytes);
    put(s, std::move(w), "allocate", {});
    return block;
  }

  void deallocate(stream_ref s, void* block, std::size_t size_bytes) const noexcept {
    if (block == nullptr) return;
    begin();
    VTIER_ASSERT(s.state_ != nullptr, "device memory was freed in a stream that was moved from");
    if (s.state_->gone) {
      static_cast<void>(machine().run_until([&] { return s.state_->work->queue.empty(); }));
      return deallocate(block, size_bytes);
    }
    auto done = machine().make_mark(state_->number);
    work w;
    w.done = done;
    w.run = [state = state_.get(), block, size_bytes] {
      state->machine->writes(block, size_bytes);
      state->give(block, size_bytes);
    };
    put(s, std::move(w), "free", {});
    state_->queued.push_back({std::move(done), size_bytes});
  }

  /// Reserves addresses whose memory comes and goes; never empty.
  [[nodiscard]] std::optional<range> make_range(std::size_t size_bytes, std::size_t granule_bytes = 0) const {
    check_caller();
    return std::optional<range>{std::in_place, state_, size_bytes, granule_bytes};
  }

  /// False where the world lets it fail.
  [[nodiscard]] bool register_host(void*, std::size_t) const {
    begin();
    return !machine().fails(fault::registration);
  }
  void unregister_host(void*) const noexcept { begin(); }

  [[nodiscard]] void* allocate_host(std::size_t size_bytes) const {
    begin();
    return size_bytes == 0 ? nullptr : state_->take_host(size_bytes);
  }
  void deallocate_host(void* block, std::size_t size_bytes) const noexcept {
    if (block == nullptr) return;
    begin();
    state_->give_host(block, size_bytes);
  }

  [[nodiscard]] device_memory memory() const {
    check_caller();
    return {state_->free_bytes(), state_->bytes.size_bytes()};
  }
  [[nodiscard]] std::string name() const { return state_->options.name; }
  [[nodiscard]] std::string bus_id() const { return state_->options.bus_id; }

  /// The world's time.
  [[nodiscard]] std::int64_t now_ns() const noexcept { return machine().now_ns(); }
  /// Lets so much of the world's time go by.
  void pause(std::int64_t ns) const {
    check_caller();
    machine().wait_for(ns);
  }

  /// The world that the device is in.
  [[nodiscard]] world& machine() const noexcept { return *state_->machine; }
  /// Where host code reaches device memory without a fault, to look at it in a test.
  [[nodiscard]] std::byte* reach(const void* place) const noexcept { return state_->bytes.reach(place); }

  friend bool operator==(const device& a, const device& b) noexcept { return a.state_ == b.state_; }

 private:
  void check_caller() const { state_->check_caller(); }
  void begin() const { state_->begin(); }

  void may_fail(fault what, const char* call) const {
    if (!machine().fails(what)) return;
    throw device_error(1, name() + ": " + call + " failed because the simulation wanted it to");
  }

  void check_owner(const event& e, const char* call) const {
    if (e.state_->owner == state_->number) return;
    machine().violation(std::string{call} + " on " + name() + " with an event of another device");
  }

  [[nodiscard]] work timed(std::size_t size_bytes, double bytes_per_ns) const {
    work w;
    w.duration_ns = machine().stretched(state_->options.latency_ns + static_cast<double>(size_bytes) / bytes_per_ns);
    return w;
  }

  void put_function(const stream_ref& s, double ns, std::function<void()> function, bool opens, const char* what,
                    const call_site& from) const {
    begin();
    if (function == nullptr) throw usage_error(name() + ": " + what + " needs a function, this one is empty");
    may_fail(fault::launch, what);
    work w;
    w.duration_ns = machine().stretched(ns);
    w.run = [state = state_.get(), function = std::move(function), opens]() mutable {
      if (opens) state->bytes.open(true);
      try {
        function();
      } catch (...) {
        state->failures->keep(std::current_exception());
      }
      if (opens) state->bytes.open(false);
      function = nullptr;
    };
    put(s, std::move(w), what, from);
  }

  void check_stream(const stream_ref& s, const char* what) const {
    if (s.state_ == nullptr) throw usage_error(name() + ": this stream was moved from; use the one that it moved to");
    if (s.state_->owner != state_->number) {
      machine().violation(std::string{what} + " on " + name() + " in a stream of another device");
    }
  }
  [[nodiscard]] usage_error gone() const {
    return usage_error(name() + ": this stream has been destroyed; keep the stream as long as work is given to it");
  }

  void put(const stream_ref& s, work w, const char* what, const call_site& from) const {
    check_stream(s, what);
    if (s.state_->gone) {
      if (w.done != nullptr && !w.run) {  // a record: all that the stream had may still be on its way
        static_cast<void>(machine().run_until([&] { return s.state_->work->queue.empty(); }));
        w.done->passed = true;
        w.done->passed_ns = machine().now_ns();
        w.done->known = s.state_->work->known;
        return;
      }
      throw gone();
    }
    machine().submit(*s.state_->work, std::move(w), what, from);
  }

  void await(const std::shared_ptr<mark>& done) const {
    if (!machine().run_until([&] { return done->passed; })) {
      machine().violation("the host waits for an event that never passes");
      throw device_error(2, name() + ": the host waits for an event that never passes");
    }
    machine().learn(*done);
    state_->failures->tell(name());
  }

  [[nodiscard]] void* take(std::size_t size_bytes) const {
    const bool refused = machine().fails(fault::device_memory);
    void* const block = refused ? nullptr : state_->bytes.take(size_bytes);
    if (block == nullptr) throw state_->no_room(size_bytes);
    machine().allocated(block, size_bytes, "memory of " + name());
    return block;
  }

  std::shared_ptr<detail::device_state> state_;
};

static_assert(vtier::growable_device<sim::device>);
static_assert(vtier::timed_device<sim::device>);

}  // namespace vtier::sim
