// SPDX-License-Identifier: Apache-2.0
#pragma once

// A drive in memory and its file engine, whose latencies, order of completions and faults are chosen by a seed.
//
// It holds transfers to the rules that a strict drive has: stated alignments, space that was reserved, memory that
// stays untouched until the completion was reaped. Breaking one is a violation in the world's list.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/io/file_engine.hpp>

namespace vtier::sim {

/// Limits, rules and speed of a simulated drive.
///
/// Units   bytes; ns
struct drive_options {
  std::size_t capacity_bytes = std::size_t{64} << 20U;
  std::string name = "sim drive";
  std::size_t depth_max = 8;
  std::size_t offset_alignment_bytes = 512;  // of offsets and lengths
  std::size_t memory_alignment_bytes = 4;    // of addresses
  double bytes_per_ns = 4.0;                 // of each request
  double latency_ns = 20'000.0;              // of each request
  double read_bytes_per_ns = 0.0;   // of all reads together, whose bytes then take turns; 0: no more than each has
  double write_bytes_per_ns = 0.0;  // likewise
};

/// A drive that holds files without names.
///
/// Gives   a handle: copies are the same drive
/// Errors  io_error where the world lets an occasion fail, or where the capacity is used up
/// Threads one at a time, the world's
class drive {
 public:
  explicit drive(std::shared_ptr<world> in, drive_options options = {})
      : state_{std::make_shared<state>(std::move(in), std::move(options))} {}

  /// Makes a file that can become so long; gives its descriptor.
  [[nodiscard]] int open(std::size_t size_max_bytes) const {
    if (machine().fails(fault::file_open)) {
      throw io_error(EMFILE,
                     "cannot create a file on " + name() + " (EMFILE) because the simulation wanted it to fail");
    }
    const int descriptor = ++state_->last_descriptor;
    file& f = state_->files[descriptor];
    constexpr std::size_t page = 4096;  // a mapping begins at one
    const std::size_t whole = align_up((std::max)(size_max_bytes, std::size_t{1}), page);
    f.bytes.reset(static_cast<std::byte*>(std::aligned_alloc(page, whole)));
    VTIER_ASSERT(f.bytes != nullptr, "no memory for a simulated file");
    std::memset(f.bytes.get(), 0, whole);
    f.size_max_bytes = size_max_bytes;
    machine().allocated(f.bytes.get(), (std::max)(size_max_bytes, std::size_t{1}), "a file of " + name());
    machine().forget(f.bytes.get(), (std::max)(size_max_bytes, std::size_t{1}));
    return descriptor;
  }

  void close(int descriptor) const noexcept {
    const auto at = state_->files.find(descriptor);
    VTIER_ASSERT(at != state_->files.end(), "a simulated file was closed twice");
    machine().freed(at->second.bytes.get(), (std::max)(at->second.size_max_bytes, std::size_t{1}));
    state_->used_bytes -= at->second.reserved_bytes;
    state_->files.erase(at);
  }

  /// Makes sure that the file's first `end_bytes` have space.
  void reserve(int descriptor, std::size_t end_bytes) const {
    file& f = state_->files.at(descriptor);
    if (end_bytes <= f.reserved_bytes) return;
    const std::size_t more = end_bytes - f.reserved_bytes;
    const std::size_t free = state_->options.capacity_bytes - state_->used_bytes;
    if (machine().fails(fault::reservation) || more > free) {
      throw io_error(ENOSPC, "cannot reserve " + format_bytes(more) + " on " + name() + " (ENOSPC); " +
                                 format_bytes(free) + " are free there; free space or lower the budget");
    }
    f.reserved_bytes = end_bytes;
    state_->used_bytes += more;
  }

  /// Takes the space behind the file's first `end_bytes` back.
  void release(int descriptor, std::size_t end_bytes) const {
    file& f = state_->files.at(descriptor);
    if (end_bytes >= f.reserved_bytes) return;
    state_->used_bytes -= f.reserved_bytes - end_bytes;
    f.reserved_bytes = end_bytes;
  }

  /// The bytes of a file, as a mapping would show them.
  [[nodiscard]] std::byte* bytes(int descriptor) const { return state_->files.at(descriptor).bytes.get(); }

  [[nodiscard]] std::size_t used_bytes() const noexcept { return state_->used_bytes; }
  [[nodiscard]] std::size_t file_count() const noexcept { return state_->files.size(); }
  [[nodiscard]] const std::string& name() const noexcept { return state_->options.name; }
  [[nodiscard]] const drive_options& options() const noexcept { return state_->options; }
  [[nodiscard]] world& machine() const noexcept { return *state_->machine; }
  [[nodiscard]] const std::shared_ptr<world>& shared_machine() const noexcept { return state_->machine; }

  friend bool operator==(const drive& a, const drive& b) noexcept { return a.state_ == b.state_; }

 private:
  friend class engine;
  struct released {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  struct file {
    std::unique_ptr<std::byte, released> bytes;
    std::size_t size_max_bytes = 0;
    std::size_t reserved_bytes = 0;
  };
  struct state {
    state(std::shared_ptr<world> in, drive_options wanted)
        : machine{std::move(in)},
          options{std::move(wanted)},
          read_link{machine->number()},
          write_link{machine->number()} {}
    std::shared_ptr<world> machine;
    drive_options options;
    std::size_t read_link;
    std::size_t write_link;
    std::map<int, file> files;
    std::size_t used_bytes = 0;
    int last_descriptor = 1000;
  };

  std::shared_ptr<state> state_;
};

/// The engine of a simulated drive.
///
/// Threads one at a time, the world's
class engine {
 public:
  explicit engine(drive on) : state_{std::make_unique<state>(std::move(on))} {}
  engine(engine&&) noexcept = default;
  engine& operator=(engine&& other) noexcept {
    if (this == &other) return *this;
    drain();
    state_ = std::move(other.state_);
    return *this;
  }
  ~engine() { drain(); }

  /// Takes a request; false at the full depth, and now and then without a reason, as a kernel may.
  bool try_submit(const file_request& request) {
    state& s = *state_;
    world& machine = s.on.machine();
    machine.host_step();
    if (s.in_flight >= s.on.options().depth_max || machine.random().below(64) == 0) return false;
    ++s.in_flight;
    if (s.idle.empty()) s.idle.push_back(machine.make_lane(s.on.name() + " request"));
    const auto lane = s.idle.back();
    s.idle.pop_back();
    const bool reading = request.operation == file_operation::read;
    const std::int64_t result = fate_of(request, reading);
    work w;
    w.done = machine.make_mark(0);
    const auto size = static_cast<double>(request.memory.size());
    const drive_options& speed = s.on.options();
    const double together = reading ? speed.read_bytes_per_ns : speed.write_bytes_per_ns;
    if (together > 0.0) {
      work seek;
      seek.duration_ns = machine.stretched(speed.latency_ns);
      machine.submit(*lane, std::move(seek), reading ? "file seek to read" : "file seek to write", {});
      w.duration_ns = machine.stretched(size / together);
      w.link = reading ? s.on.state_->read_link : s.on.state_->write_link;
    } else {
      w.duration_ns = machine.stretched(speed.latency_ns + size / speed.bytes_per_ns);
    }
    w.run = [&s, request, result, reading, done = w.done, lane] {
      if (result > 0) move(s, request, static_cast<std::size_t>(result), reading);
      s.finished.push_back({{request.tag, result}, done, lane});
    };
    machine.submit(*lane, std::move(w), reading ? "file read" : "file write", {});
    return true;
  }

  /// Takes completions; what they tell is known to be over.
  std::size_t reap(std::span<file_completion> completions) {
    state& s = *state_;
    s.on.machine().host_step();
    std::size_t count = 0;
    while (count < completions.size() && !s.finished.empty()) {
      const ended e = std::move(s.finished.front());
      s.finished.pop_front();
      s.on.machine().learn(*e.done);
      s.idle.push_back(e.lane);
      completions[count++] = e.completion;
      --s.in_flight;
    }
    return count;
  }

  /// Lets time pass until a completion is there, or so much is over.
  void wait(std::int64_t timeout_ns) {
    state& s = *state_;
    if (s.in_flight == 0) return;
    world& machine = s.on.machine();
    for (int part = 0; part < 16 && s.finished.empty(); ++part) machine.pass(timeout_ns / 16 + 1);
  }

  bool register_buffers(std::span<const std::span<std::byte>> /*buffers*/) {
    return !state_->on.machine().fails(fault::registration);
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return state_->in_flight; }
  [[nodiscard]] std::size_t depth_max() const noexcept { return state_->on.options().depth_max; }
  [[nodiscard]] std::string_view name() const noexcept { return "sim"; }

 private:
  struct ended {
    file_completion completion;
    std::shared_ptr<mark> done;
    std::shared_ptr<vtier::sim::lane> lane;
  };
  struct state {
    explicit state(drive d) : on{std::move(d)} {}
    drive on;
    std::size_t in_flight = 0;
    std::deque<ended> finished;
    std::vector<std::shared_ptr<lane>> idle;  // a lane is used again only once its completion was reaped
  };

  // Returns when no memory of a request is touched any more.
  void drain() noexcept {
    if (state_ == nullptr) return;  // moved from
    state& s = *state_;
    static_cast<void>(s.on.machine().run_until([&] { return s.finished.size() == s.in_flight; }));
  }

  // What the request will answer: all bytes, fewer, or an error.
  [[nodiscard]] std::int64_t fate_of(const file_request& request, bool reading) {
    world& machine = state_->on.machine();
    const drive_options& rules = state_->on.options();
    const auto address = reinterpret_cast<std::uintptr_t>(request.memory.data());
    const auto at = state_->on.state_->files.find(request.descriptor);
    if (at == state_->on.state_->files.end()) {
      machine.violation("a transfer with a file that is closed");
      return -EBADF;
    }
    if (request.offset_bytes % rules.offset_alignment_bytes != 0 ||
        request.memory.size() % rules.offset_alignment_bytes != 0 || address % rules.memory_alignment_bytes != 0) {
      machine.violation("a transfer of " + std::to_string(request.memory.size()) + " bytes at offset " +
                        std::to_string(request.offset_bytes) + " breaks the drive's alignment");
      return -EINVAL;
    }
    if (request.offset_bytes + request.memory.size() > at->second.reserved_bytes) {
      machine.violation("a transfer goes beyond the space that was reserved");
      return -EINVAL;
    }
    const auto size = static_cast<std::int64_t>(request.memory.size());
    if (!machine.fails(reading ? fault::file_read : fault::file_write)) return size;
    switch (machine.random().below(5)) {
      case 0: return -EIO;
      case 1: return reading ? -EIO : -ENOSPC;
      case 2: return -EINTR;
      case 3: return -EAGAIN;
      default: return static_cast<std::int64_t>(machine.random().below(request.memory.size()));  // short
    }
  }

  static void move(state& s, const file_request& request, std::size_t size_bytes, bool reading) {
    const auto at = s.on.state_->files.find(request.descriptor);
    world& machine = s.on.machine();
    if (at == s.on.state_->files.end()) return machine.violation("a file was closed while a transfer was in flight");
    std::byte* const place = at->second.bytes.get() + request.offset_bytes;
    machine.touch(reading ? place : request.memory.data(), size_bytes, access_kind::read);
    // The kernel may use all of the memory that it was given, also where it answers with less.
    machine.touch(reading ? request.memory.data() : place, reading ? request.memory.size() : size_bytes,
                  access_kind::write);
    if (reading) {
      std::memcpy(request.memory.data(), place, size_bytes);
    } else {
      std::memcpy(place, request.memory.data(), size_bytes);
    }
  }

  std::unique_ptr<state> state_;
};

static_assert(vtier::file_engine<sim::engine>);

}  // namespace vtier::sim
