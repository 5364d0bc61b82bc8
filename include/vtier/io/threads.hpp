// SPDX-License-Identifier: Apache-2.0
#pragma once

// File I/O on worker threads: the engine for kernels and containers that have no io_uring.
//
// Each worker does one pread or pwrite at a time. Queues are as long as the depth and are made once, so that submitting
// and reaping allocate nothing.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/io/detail/posix_system.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/io/file_engine.hpp>

namespace vtier::io {

namespace detail {

/// Blocks all signals in this thread while it lives: threads made meanwhile never run the program's handlers.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    ::sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  ::sigset_t before_;
};

/// A queue of at most so many values, in memory that is taken once.
template <class Value>
class bounded_queue {
 public:
  explicit bounded_queue(std::size_t count_max) : values_(count_max) {}
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  void push(const Value& value) noexcept {
    VTIER_ASSERT(count_ < values_.size(), "a bounded queue has no room");
    values_[(first_ + count_++) % values_.size()] = value;
  }
  Value pop() noexcept {
    VTIER_ASSERT(count_ > 0, "a bounded queue is empty");
    const Value value = values_[first_];
    first_ = (first_ + 1) % values_.size();
    --count_;
    return value;
  }

 private:
  std::vector<Value> values_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace detail

/// Moves file bytes by pread and pwrite on a fixed number of threads; `threads` is the one for real files.
///
/// Gives   completions in any order. EINTR is retried inside; a short transfer is reported as it is. Destruction waits
///         for all that was accepted, then for the threads
/// Errors  usage_error for limits out of range and from try_submit in a forked child, io_error (EAGAIN) where the
///         system makes no more threads
/// Threads one at a time
/// Cost    no allocation after construction; one lock and one wake-up for each request
template <class System>
class basic_threads {
 public:
  explicit basic_threads(const engine_options& options = {}, const System& system = {})
      : state_{std::make_unique<state>(options, system)} {}
  basic_threads(basic_threads&&) noexcept = default;
  basic_threads& operator=(basic_threads&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~basic_threads() {
    // A forked child has the object but not its threads: nothing can be joined there.
    if (state_ && !state_->home.here()) static_cast<void>(state_.release());
  }

  /// Takes a request; false where depth_max() are in flight.
  ///
  /// Needs   the request's memory until its completion was reaped
  bool try_submit(const file_request& request) {
    state_->home.check("this file engine");
    if (state_->in_flight == state_->options.depth_max) return false;
    {
      const std::scoped_lock hold{state_->lock};
      state_->waiting.push(request);
    }
    ++state_->in_flight;
    state_->work.notify_one();
    return true;
  }

  /// Takes completions, as many as are there and fit; never blocks on I/O.
  std::size_t reap(std::span<file_completion> completions) {
    if (!state_->home.here()) return 0;
    const std::scoped_lock hold{state_->lock};
    std::size_t count = 0;
    while (count < completions.size() && !state_->finished.empty()) completions[count++] = state_->finished.pop();
    state_->in_flight -= count;
    return count;
  }

  /// Blocks until a completion can be reaped or the time has passed; returns at once where nothing is in flight.
  ///
  /// Units   ns
  void wait(std::int64_t timeout_ns) {
    if (state_->in_flight == 0 || timeout_ns <= 0 || !state_->home.here()) return;
    // Beyond this a point in time does not fit in 64 bits; nobody waits a century.
    constexpr std::int64_t timeout_max_ns = std::int64_t{1} << 61U;
    std::unique_lock hold{state_->lock};
    state_->done.wait_for(hold, std::chrono::nanoseconds{(std::min)(timeout_ns, timeout_max_ns)},
                          [&] { return !state_->finished.empty(); });
  }

  /// Gives false: system calls take any memory as it is.
  bool register_buffers(std::span<const std::span<std::byte>> /*buffers*/) { return false; }

  [[nodiscard]] std::size_t in_flight() const noexcept { return state_->in_flight; }
  [[nodiscard]] std::size_t depth_max() const noexcept { return state_->options.depth_max; }
  [[nodiscard]] std::string_view name() const noexcept { return "threads"; }

 private:
  struct state {
    state(const engine_options& limits, const System& calls)
        : options{checked(limits)}, system{calls}, waiting{options.depth_max}, finished{options.depth_max} {
      const detail::signals_blocked quiet;
      try {
        workers.reserve(options.thread_count);
        for (std::size_t i = 0; i < options.thread_count; ++i) workers.emplace_back([this] { run(); });
      } catch (const std::system_error& refused) {
        stop();
        throw io_error(refused.code().value(),
                       "cannot start thread " + std::to_string(workers.size() + 1) + " of " +
                           std::to_string(options.thread_count) +
                           " for file I/O: lower engine_options.thread_count or raise ulimit -u");
      } catch (...) {
        stop();
        throw;
      }
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() { stop(); }

    static const engine_options& checked(const engine_options& limits) {
      check(limits);
      return limits;
    }

    // The workers finish what is queued before they look at `stopping`.
    void stop() noexcept {
      {
        const std::scoped_lock hold{lock};
        stopping = true;
      }
      work.notify_all();
      for (std::thread& worker : workers) worker.join();
      workers.clear();
    }

    void run() noexcept {
      std::unique_lock hold{lock};
      for (;;) {
        work.wait(hold, [&] { return stopping || !waiting.empty(); });
        if (waiting.empty()) return;
        const file_request request = waiting.pop();
        hold.unlock();
        const std::int64_t result = move(request);
        hold.lock();
        finished.push({request.tag, result});
        done.notify_one();
      }
    }

    [[nodiscard]] std::int64_t move(const file_request& request) const noexcept {
      if (request.offset_bytes > static_cast<std::size_t>((std::numeric_limits<std::int64_t>::max)())) return -EINVAL;
      const std::size_t size = (std::min)(request.memory.size(), options.transfer_bytes_max);
      return detail::uninterrupted([&] {
        return request.operation == file_operation::read
                   ? system.pread(request.descriptor, request.memory.data(), size, request.offset_bytes)
                   : system.pwrite(request.descriptor, request.memory.data(), size, request.offset_bytes);
      });
    }

    const engine_options options;
    const System system;
    const process_mark home;
    std::size_t in_flight = 0;  // touched by the caller's side only
    std::mutex lock;            // for all that follows but the workers
    std::condition_variable work;
    std::condition_variable done;
    detail::bounded_queue<file_request> waiting;
    detail::bounded_queue<file_completion> finished;
    bool stopping = false;
    std::vector<std::thread> workers;
  };

  std::unique_ptr<state> state_;
};

/// The thread engine for real files.
using threads = basic_threads<detail::posix_system>;

static_assert(file_engine<threads>);

}  // namespace vtier::io
