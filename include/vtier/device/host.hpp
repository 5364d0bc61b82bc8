// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device without a GPU: one worker thread per stream, "device memory" in ordinary pages.
//
// It is what a program runs on where there is no accelerator, and it is a device in earnest: copies overlap with the
// caller, streams are ordered by events alone and memory has a limit, so that a missing wait shows here too (under TSan
// as a race).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/clock.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/device/detail/host_memory.hpp>
#include <vtier/device/detail/host_queue.hpp>
#include <vtier/device/detail/host_range.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/growable_device.hpp>
#include <vtier/device/timed_device.hpp>

namespace vtier::host {

class device;

/// A mark in a stream that passes once everything submitted before it has run; copies are the same mark.
///
/// Gives   a default-made one that has always passed
/// Threads any
class event {
 public:
  event() = default;

 private:
  friend class device;
  explicit event(std::shared_ptr<detail::mark> state) : state_{std::move(state)} {}
  std::shared_ptr<detail::mark> state_;
};

/// A name for a stream that somebody else owns.
///
/// Gives   a name that may outlive its stream: then record() gives a passed event, deallocate() acts at once, and what
///         would have to run throws usage_error
/// Threads any
class stream_ref {
 public:
  friend bool operator==(const stream_ref& a, const stream_ref& b) noexcept { return a.state_ == b.state_; }

 private:
  friend class device;
  friend class stream;
  explicit stream_ref(std::shared_ptr<detail::queue> state) : state_{std::move(state)} {}
  std::shared_ptr<detail::queue> state_;
};

/// A queue of work and the thread that does it.
///
/// Needs   nobody feeds it while it is destroyed
/// Gives   the destructor blocks until everything submitted has run; it needs no device handle to be left. An error
///         that no synchronize() has told by then is with the events recorded after it. In a forked child it does
///         nothing
/// Threads any; moving and destroying it one at a time
class stream {
 public:
  stream(stream&& other) noexcept = default;
  stream& operator=(stream&& other) noexcept {
    if (this == &other) return *this;
    if (state_ != nullptr) state_->close();
    state_ = std::move(other.state_);
    return *this;
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() {
    if (state_ != nullptr) state_->close();
  }

  // NOLINTNEXTLINE(google-explicit-constructor): as std::string to std::string_view
  operator stream_ref() const { return stream_ref{state_}; }

  /// The time that this stream's work has waited for events of other streams, a wait that still lasts included.
  ///
  /// Units   ns
  /// Threads any
  [[nodiscard]] std::int64_t waited_ns() const noexcept { return state_ == nullptr ? 0 : state_->waited_ns(); }

 private:
  friend class device;
  explicit stream(std::shared_ptr<detail::queue> state) : state_{std::move(state)} {}
  std::shared_ptr<detail::queue> state_;
};

/// The host as a device.
///
/// Gives   a handle: copies are the same device, each construction is another one with a limit of its own
/// Errors  out_of_memory(name) beyond the limit or where the system gives no pages; device_error for a thread that does
///         not start, and from the first synchronize() after a launched function has thrown; usage_error for a stream
///         that was moved from or is gone, and in a forked child, which has no threads of its parent
/// Threads any
/// Cost    a call that submits work takes one lock and allocates for launch and, in a stream that has work to do, for
///         event only; it blocks while the stream holds queue_items_max items, and nowhere else does the host block but
///         in synchronize()
class device {
 public:
  using event = host::event;
  using stream = host::stream;
  using stream_ref = host::stream_ref;
  using range = detail::range;

  device() : device{device_options{}} {}
  explicit device(const device_options& options) : state_{std::make_shared<detail::memory>(options)} {}

  /// Starts a stream and its thread.
  [[nodiscard]] stream make_stream() const {
    state_->home().check(name().c_str());
    return stream{detail::queue::make()};
  }

  /// Marks this point of the stream.
  [[nodiscard]] event record(const stream_ref& s) const { return event{queue_of(s).record()}; }

  /// The same, and keeps the time at which the stream comes there.
  [[nodiscard]] event record_timed(const stream_ref& s) const { return event{queue_of(s).record_timed()}; }

  [[nodiscard]] std::int64_t elapsed_ns(const event& from, const event& to) const noexcept {
    VTIER_ASSERT(from.state_ != nullptr && to.state_ != nullptr && from.state_->passed() && to.state_->passed(),
                 "the time between events that have not passed");
    return to.state_->passed_ns() - from.state_->passed_ns();
  }

  /// Lets later work of the stream wait for the event; free where that has passed.
  void wait(const stream_ref& s, const event& e) const {
    if (!passed(e)) submit(s, detail::wait_item(e.state_));
  }

  [[nodiscard]] bool passed(const event& e) const noexcept { return e.state_ == nullptr || e.state_->passed(); }

  /// Blocks until the event has passed, then throws what a function launched before it has thrown and nobody was told.
  void synchronize(const event& e) const {
    if (e.state_ == nullptr) return;
    if (!e.state_->passed()) state_->home().check(name().c_str());
    e.state_->wait();
    e.state_->tell();
  }

  /// Blocks until everything submitted so far has run; errors as for an event.
  void synchronize(const stream_ref& s) const { synchronize(record(s)); }

  /// Copies in stream order; the direction does not matter here.
  ///
  /// Needs   ranges that do not overlap
  void copy(const stream_ref& s, void* target, const void* source, std::size_t size_bytes, copy_direction) const {
    if (size_bytes != 0) submit(s, detail::copy_item(target, source, size_bytes));
  }

  void fill(const stream_ref& s, void* target, std::byte value, std::size_t size_bytes) const {
    if (size_bytes != 0) submit(s, detail::fill_item(target, value, size_bytes));
  }

  /// Runs a function in stream order, on the stream's thread; work after it runs even if it throws.
  void launch(const stream_ref& s, std::function<void()> function) const {
    if (function == nullptr) throw usage_error(name() + ": launch needs a function, this one is empty");
    submit(s, detail::call_item(std::move(function), std::make_shared<detail::failure>()));
  }

  /// Gives device memory; pages count against the limit at once and are had from the system when first touched.
  [[nodiscard]] void* allocate(std::size_t size_bytes) const {
    return size_bytes == 0 ? nullptr : state_->allocate(size_bytes, nullptr);
  }

  void deallocate(void* block, std::size_t size_bytes) const noexcept {
    if (block != nullptr) state_->deallocate(block, size_bytes, nullptr);
  }

  /// Gives device memory for work of the stream from now on. Where the limit has no room but for blocks whose release
  /// is queued, in whichever stream, this stream waits for them and the host does not.
  [[nodiscard]] void* allocate(const stream_ref& s, std::size_t size_bytes) const {
    if (size_bytes == 0) return nullptr;
    std::vector<std::shared_ptr<detail::mark>> after;
    void* const block = state_->allocate(size_bytes, &after);
    try {
      for (auto& done : after) submit(s, detail::wait_item(std::move(done)));
    } catch (...) {
      state_->deallocate(block, size_bytes, nullptr);
      throw;
    }
    return block;
  }

  /// Takes device memory back once the stream has come here.
  void deallocate(const stream_ref& s, void* block, std::size_t size_bytes) const noexcept {
    if (block == nullptr || !state_->home().here()) return;
    VTIER_ASSERT(s.state_ != nullptr, "device memory was freed in a stream that was moved from");
    std::shared_ptr<detail::mark> done;
    try {
      done = std::make_shared<detail::mark>();
      if (!s.state_->push(detail::release_item(state_, block, size_bytes, done))) {
        state_->deallocate(block, size_bytes, nullptr);
        return;
      }
    } catch (...) {  // no memory even for the queue
      s.state_->settle();
      state_->deallocate(block, size_bytes, nullptr);
      return;
    }
    // Only once it is queued: who waits for it must find it ahead of everything that is queued later.
    state_->expect(done, size_bytes);
  }

  /// Reserves addresses whose pages come and go; never empty.
  [[nodiscard]] std::optional<range> make_range(std::size_t size_bytes, std::size_t granule_bytes = 0) const {
    return std::optional<range>{std::in_place, state_, size_bytes, granule_bytes};
  }

  /// Nothing to do: every copy is a copy of the host.
  [[nodiscard]] bool register_host(void*, std::size_t) const noexcept { return true; }
  void unregister_host(void*) const noexcept {}

  /// Gives host memory aligned to pages; it is not the device's and does not count against its limit.
  [[nodiscard]] void* allocate_host(std::size_t size_bytes) const {
    if (size_bytes == 0) return nullptr;
    if (void* const block = detail::take_pages(size_bytes, detail::page_bytes())) return block;
    throw out_of_memory(name(), size_bytes, 0,
                        name() + ": the system gives no " + format_bytes(size_bytes) + " of host memory; ask for less");
  }
  void deallocate_host(void* block, std::size_t size_bytes) const noexcept {
    if (block != nullptr) detail::give_pages(block, size_bytes, detail::page_bytes());
  }

  /// What the limit leaves; bytes whose release is queued are not free yet.
  [[nodiscard]] device_memory memory() const { return state_->now(); }
  [[nodiscard]] std::string name() const { return state_->name(); }
  /// Empty: the host has no PCI address.
  [[nodiscard]] std::string bus_id() const { return {}; }

  /// The machine's monotonic clock.
  [[nodiscard]] std::int64_t now_ns() const noexcept { return vtier::steady_clock{}.now_ns(); }
  /// Sleeps.
  void pause(std::int64_t ns) const { vtier::sleep_for_ns(ns); }

  friend bool operator==(const device& a, const device& b) noexcept { return a.state_ == b.state_; }

 private:
  [[nodiscard]] detail::queue& queue_of(const stream_ref& s) const {
    if (s.state_ == nullptr) throw usage_error(name() + ": this stream was moved from; use the one that it moved to");
    return *s.state_;
  }

  void submit(const stream_ref& s, detail::item next) const {
    if (queue_of(s).push(std::move(next))) return;
    throw usage_error(name() + ": this stream has been destroyed; keep the stream as long as work is given to it");
  }

  std::shared_ptr<detail::memory> state_;
};

static_assert(vtier::growable_device<host::device>);
static_assert(vtier::timed_device<host::device>);

}  // namespace vtier::host
