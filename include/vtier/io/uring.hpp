// SPDX-License-Identifier: Apache-2.0
#pragma once

// File I/O through io_uring: one ring, no threads of our own, registered buffers where the system allows them.
//
// The only header that knows liburing. The ring is set up without SINGLE_ISSUER, DEFER_TASKRUN and COOP_TASKRUN:
// members are called from different threads, one at a time, and those flags tie completions to the thread that
// submitted.

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/io/detail/errno_name.hpp>
#include <vtier/io/detail/uring_refusal.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/io/file_engine.hpp>

namespace vtier::io {

namespace detail {

/// The calls of liburing that can be refused, for a test to replace.
///
/// Gives   what liburing gives: a result or -errno; errno itself is not touched
struct uring_system {
  [[nodiscard]] int set_up(unsigned entries, ::io_uring& ring, ::io_uring_params& params) const noexcept {
    int result = ::io_uring_queue_init_params(entries, &ring, &params);
    if (result < 0) return result;
    // A filter may allow the set-up and forbid the rest: a request for nothing shows it before anybody relies on it.
    ::io_uring_prep_nop(::io_uring_get_sqe(&ring));
    ::io_uring_cqe* entry = nullptr;
    do result = submit(ring);
    while (result == -EINTR);
    while (result > 0 && (result = ::io_uring_wait_cqe(&ring, &entry)) == -EINTR) result = 1;
    if (entry == nullptr) {
      ::io_uring_queue_exit(&ring);
      return result < 0 ? result : -EAGAIN;
    }
    ::io_uring_cqe_seen(&ring, entry);
    return 0;
  }
  [[nodiscard]] int submit(::io_uring& ring) const noexcept { return ::io_uring_submit(&ring); }
  /// Blocks until there is a completion (0) or the time has passed (-ETIME).
  [[nodiscard]] int wait(::io_uring& ring, std::int64_t timeout_ns) const noexcept {
    ::__kernel_timespec time{};
    time.tv_sec = timeout_ns / 1'000'000'000;
    time.tv_nsec = timeout_ns % 1'000'000'000;
    ::io_uring_cqe* entry = nullptr;
    return ::io_uring_wait_cqe_timeout(&ring, &entry, &time);
  }
  [[nodiscard]] int register_buffers(::io_uring& ring, std::span<const ::iovec> buffers) const noexcept {
    return ::io_uring_register_buffers(&ring, buffers.data(), static_cast<unsigned>(buffers.size()));
  }
};

}  // namespace detail

/// Moves file bytes through one io_uring; `uring` is the one for the real kernel.
///
/// Gives   completions in any order; short transfers are reported as they are. Destruction waits for all that was
///         accepted; what has not begun after ten seconds is cancelled
/// Errors  usage_error for limits out of range; io_error with the errno of the set-up, which says the likely reason;
///         try_submit throws io_error when the ring itself is broken, usage_error in a forked child
/// Threads one at a time, any of them
/// Cost    no allocation after construction but in register_buffers; one system call for each request
/// Source  io_uring(7), io_uring_setup(2), io_uring_enter(2)
template <class System>
class basic_uring {
 public:
  /// Sets the ring up; what the engine later does without is said in `remarks`.
  explicit basic_uring(const engine_options& options = {}, const vtier::notes& remarks = {}, const System& system = {})
      : state_{std::make_unique<state>(options, remarks, system)} {}

  /// Takes a request; false where depth_max() are in flight or the kernel takes no more until some were reaped.
  ///
  /// Needs   the request's memory until its completion was reaped
  bool try_submit(const file_request& request) { return state_->try_submit(request); }

  /// Takes completions, as many as are there and fit; never blocks.
  std::size_t reap(std::span<file_completion> completions) noexcept { return state_->reap(completions); }

  /// Blocks until a completion can be reaped or the time has passed; returns at once where nothing is in flight.
  ///
  /// Units   ns
  void wait(std::int64_t timeout_ns) noexcept { state_->wait(timeout_ns); }

  /// Registers the memory that requests will use, in place of what was registered before.
  ///
  /// Needs   nothing in flight; memory that stays until the engine is gone or other memory is registered
  /// Gives   false where the system refuses (the locked memory limit, memory of a mapped file): requests then go
  ///         unregistered, and a note says why
  bool register_buffers(std::span<const std::span<std::byte>> buffers) { return state_->register_buffers(buffers); }

  [[nodiscard]] std::size_t in_flight() const noexcept { return state_->in_flight; }
  [[nodiscard]] std::size_t depth_max() const noexcept { return state_->options.depth_max; }
  [[nodiscard]] std::string_view name() const noexcept { return "uring"; }

 private:
  // Held by pointer: the kernel's side of a ring refers to it.
  struct state {
    state(const engine_options& limits, const vtier::notes& say_to, const System& calls)
        : options{limits}, remarks{say_to}, system{calls} {
      check(options);
      ::io_uring_params params{};
      const int result = system.set_up(static_cast<unsigned>(options.depth_max), ring, params);
      if (result < 0) throw io_error(-result, detail::uring_refusal(-result));
      // Without these a wait would need an entry of its own, and completions could be dropped.
      constexpr unsigned needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;
      if ((params.features & needed) != needed) {
        ::io_uring_queue_exit(&ring);
        throw io_error(ENOSYS, "io_uring of this kernel lacks what vtier needs (ENOSYS): use Linux 5.11 or newer");
      }
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    ~state() {
      // A forked child shares the ring with its parent, whose completions these are.
      if (home.here()) {
        drain();
        if (!regions.empty()) static_cast<void>(::io_uring_unregister_buffers(&ring));  // queue_exit alone unpins late
      }
      ::io_uring_queue_exit(&ring);
    }

    bool try_submit(const file_request& request) {
      home.check("this file engine");
      flush();
      if (broken != 0) throw broken_error();
      if (unsent || in_flight == options.depth_max) return false;
      ::io_uring_sqe* const entry = ::io_uring_get_sqe(&ring);
      if (entry == nullptr) return false;
      prepare(*entry, request);
      ++in_flight;
      unsent = true;
      unsent_tag = request.tag;
      flush();
      if (broken != 0) {  // not accepted, and never sent later: a broken ring is not entered again
        --in_flight;
        lost = false;
        throw broken_error();
      }
      return true;
    }

    std::size_t reap(std::span<file_completion> completions) noexcept {
      if (!home.here()) return 0;
      std::size_t count = 0;
      if (lost && !completions.empty()) {
        completions[count++] = {unsent_tag, -broken};
        lost = false;
      }
      std::array<::io_uring_cqe*, 64> entries;
      while (count < completions.size()) {
        const auto wanted = (std::min)(entries.size(), completions.size() - count);
        const unsigned got = ::io_uring_peek_batch_cqe(&ring, entries.data(), static_cast<unsigned>(wanted));
        for (unsigned i = 0; i < got; ++i) completions[count++] = {entries[i]->user_data, entries[i]->res};
        ::io_uring_cq_advance(&ring, got);
        if (got < wanted) break;
      }
      in_flight -= count;
      flush();
      return count;
    }

    void wait(std::int64_t timeout_ns) noexcept {
      const auto start = std::chrono::steady_clock::now();
      std::int64_t left_ns = home.here() ? timeout_ns : 0;
      while (in_flight > 0 && !lost && left_ns > 0) {
        flush();
        // What the kernel did not take yet has no completion to wait for: look again soon.
        if (!wait_once(unsent ? (std::min)(left_ns, retry_ns) : left_ns)) return;
        left_ns = timeout_ns - std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
      }
    }

    bool register_buffers(std::span<const std::span<std::byte>> buffers) {
      home.check("this file engine");
      if (!regions.empty()) {
        static_cast<void>(::io_uring_unregister_buffers(&ring));
        regions.clear();
      }
      std::vector<::iovec> vectors;
      std::vector<region> sorted;
      std::size_t total_bytes = 0;
      for (std::span<std::byte> rest : buffers) {
        total_bytes += rest.size();
        while (!rest.empty()) {
          const auto piece = rest.first((std::min)(rest.size(), region_bytes_max));
          sorted.push_back({piece.data(), piece.data() + piece.size(), static_cast<int>(vectors.size())});
          vectors.push_back({piece.data(), piece.size()});
          rest = rest.subspan(piece.size());
        }
      }
      if (vectors.empty()) return true;
      std::sort(sorted.begin(), sorted.end(),
                [](const region& a, const region& b) { return before(a.first, b.first); });
      int result = 0;
      do result = system.register_buffers(ring, vectors);
      while (result == -EINTR);
      if (result < 0) {
        say_unregistered(-result, total_bytes);
        return false;
      }
      regions = std::move(sorted);
      return true;
    }

    // Memory that requests may use without being pinned each time.
    struct region {
      std::byte* first;
      std::byte* last;
      int index;
    };
    static constexpr std::size_t region_bytes_max = std::size_t{1} << 30U;  // the kernel's limit for one buffer
    static constexpr std::int64_t retry_ns = 1'000'000;

    [[nodiscard]] static bool before(const std::byte* a, const std::byte* b) noexcept { return std::less<>{}(a, b); }

    [[nodiscard]] int region_of(std::span<const std::byte> memory) const noexcept {
      auto at = std::upper_bound(regions.begin(), regions.end(), memory.data(),
                                 [](const std::byte* place, const region& r) { return before(place, r.first); });
      if (at == regions.begin()) return -1;
      --at;
      return before(at->last, memory.data() + memory.size()) ? -1 : at->index;
    }

    void prepare(::io_uring_sqe& entry, const file_request& request) const noexcept {
      constexpr std::size_t offset_max = static_cast<std::size_t>((std::numeric_limits<std::int64_t>::max)());
      const auto size = static_cast<unsigned>((std::min)(request.memory.size(), options.transfer_bytes_max));
      const int index = region_of(request.memory.first(size));
      // The offset -1 would mean "where the file stands": all that is out of range becomes one that is refused.
      const std::uint64_t offset = request.offset_bytes > offset_max ? offset_max + 1 : request.offset_bytes;
      std::byte* const memory = request.memory.data();
      if (request.operation == file_operation::read) {
        if (index >= 0)
          ::io_uring_prep_read_fixed(&entry, request.descriptor, memory, size, offset, index);
        else
          ::io_uring_prep_read(&entry, request.descriptor, memory, size, offset);
      } else {
        if (index >= 0)
          ::io_uring_prep_write_fixed(&entry, request.descriptor, memory, size, offset, index);
        else
          ::io_uring_prep_write(&entry, request.descriptor, memory, size, offset);
      }
      ::io_uring_sqe_set_data64(&entry, request.tag);
    }

    // Hands the one entry that may wait in the ring to the kernel. Refused for now: it stays, and nothing follows it.
    void flush() noexcept {
      while (unsent && broken == 0) {
        const int result = system.submit(ring);
        if (result > 0) {
          unsent = false;
        } else if (result == 0 || result == -EAGAIN || result == -EBUSY || result == -ENOMEM) {
          return;
        } else if (result != -EINTR) {
          broken = -result;
          unsent = false;
          lost = true;  // its completion is made up by reap()
        }
      }
    }

    // False where there is something to reap, or waiting makes no sense.
    [[nodiscard]] bool wait_once(std::int64_t timeout_ns) noexcept {
      const int result = system.wait(ring, timeout_ns);
      return result == -ETIME || result == -EINTR || result == -EAGAIN;
    }

    // Returns when the kernel touches no memory of a request any more. A drive that never answers blocks here: memory
    // that goes while the kernel fills it would be worse.
    void drain() noexcept {
      constexpr std::chrono::seconds patience{10};
      const auto began = std::chrono::steady_clock::now();
      for (bool patient = true;;) {
        flush();  // what the kernel did not take yet was accepted all the same
        ::io_uring_cqe* entry = nullptr;
        while (::io_uring_peek_cqe(&ring, &entry) == 0) {
          ::io_uring_cqe_seen(&ring, entry);
          --in_flight;
        }
        if (in_flight == (lost ? 1U : 0U)) return;
        // By the clock, not in rounds: signals make those short.
        if (patient && std::chrono::steady_clock::now() - began > patience) {
          patient = false;
          if (broken == 0 && !unsent) {
            if (::io_uring_sqe* const cancel = ::io_uring_get_sqe(&ring)) {
              ::io_uring_prep_cancel64(cancel, 0, IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY);
              if (system.submit(ring) == 1) ++in_flight;  // it has a completion of its own
            }
          } else if (std::exchange(unsent, false)) {
            --in_flight;
          }
        }
        const int result = system.wait(ring, unsent ? retry_ns : 100 * retry_ns);
        if (result == 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY) continue;
        return;  // the descriptor of the ring was closed by somebody else: there is nothing left to ask
      }
    }

    [[nodiscard]] io_error broken_error() const {
      return {broken, "the io_uring takes no requests any more (" + detail::errno_name(broken) +
                          "): something closed its descriptor, or a bug; make the engine anew"};
    }

    void say_unregistered(int error_number, std::size_t wanted_bytes) {
      std::string text = "file I/O uses unregistered buffers (" + detail::errno_name(error_number) +
                         "), which costs CPU time: wanted " + format_bytes(wanted_bytes);
      if (error_number == ENOMEM) {
        text += ", more than the locked memory limit" + detail::locked_memory_limit() +
                ", counted over all processes of this user; raise it (ulimit -l, or LimitMEMLOCK of a service)";
      }
      remarks.say(std::move(text));
    }

    const engine_options options;
    vtier::notes remarks;
    const System system;
    const process_mark home;
    ::io_uring ring{};
    std::vector<region> regions;  // by address
    std::size_t in_flight = 0;    // accepted and not reaped
    bool unsent = false;          // the last accepted entry waits in the ring for the kernel
    bool lost = false;            // it waited, and the ring broke
    std::uint64_t unsent_tag = 0;
    int broken = 0;  // errno; 0: works
  };

  std::unique_ptr<state> state_;
};

/// The io_uring engine for the real kernel.
using uring = basic_uring<detail::uring_system>;

static_assert(file_engine<uring>);

}  // namespace vtier::io
