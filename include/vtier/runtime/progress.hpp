// SPDX-License-Identifier: Apache-2.0
#pragma once

// The thread that drives a hierarchy between calls.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/topology/affinity.hpp>

namespace vtier {

/// What one round of work found.
enum class progress_state { idle, waiting, moved };

/// A thread that calls a function while there is something to do, and sleeps otherwise.
///
/// Needs   a function that never blocks for long and never throws; it is called from the thread only
/// Errors  the constructor: device_error (EAGAIN) where the system makes no more threads
/// Threads wake() any; the destructor joins. In a forked child, where the thread is not, no member does anything
class progress {
 public:
  progress(std::function<progress_state()> work, std::vector<unsigned> cpus, notes remarks)
      : state_{std::make_unique<state>()} {
    state_->work = std::move(work);
    try {
      state_->thread = std::thread{
          [s = state_.get(), where = std::move(cpus), said = std::move(remarks)]() mutable { s->run(where, said); }};
    } catch (const std::system_error& e) {
      throw device_error(e.code().value(), "the progress thread cannot start (" + e.code().message() +
                                               "): raise the limit on threads (ulimit -u, or pids.max of the "
                                               "container), or set options.progress_thread to false");
    }
  }

  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  ~progress() {
    if (!state_->home.here()) {
      static_cast<void>(state_.release());  // neither the thread nor who waits on the condition can be waited for
      return;
    }
    {
      const std::scoped_lock hold{state_->lock};
      state_->stop = true;
    }
    state_->changed.notify_all();
    state_->thread.join();
  }

  /// The CPUs that the thread was to run on and, read back, does run on; empty while unbound.
  [[nodiscard]] std::vector<unsigned> bound() const {
    if (!state_->home.here()) return {};
    const std::scoped_lock hold{state_->lock};
    return state_->bound;
  }

  /// Says that there is something to do.
  void wake() noexcept {
    if (!state_->home.here()) return;
    {
      const std::scoped_lock hold{state_->lock};
      state_->awake = true;
    }
    state_->changed.notify_all();
  }

 private:
  struct state {
    void run(const std::vector<unsigned>& cpus, notes& remarks) {
      if (!cpus.empty()) {
        const bool taken = bind_this_thread(cpus);
        auto now = bound_cpus();
        if (taken && !now.empty() && common_cpus(now, cpus) == now) {
          const std::scoped_lock hold{lock};
          bound = std::move(now);
        } else {
          remarks.say(
              "the progress thread runs unbound: none of the CPUs it was to run on is allowed for this process");
        }
      }
      for (;;) {
        const progress_state found = work();
        std::unique_lock hold{lock};
        if (stop) return;
        if (found == progress_state::idle) {
          changed.wait(hold, [this] { return stop || awake; });
        } else if (found == progress_state::waiting) {
          // Events of a device and of a drive have no common signal; a short sleep costs less than a spin.
          changed.wait_for(hold, std::chrono::microseconds{100}, [this] { return stop || awake; });
        }
        if (stop) return;
        awake = false;
      }
    }

    const process_mark home;
    std::mutex lock;
    std::condition_variable changed;
    bool stop = false;
    bool awake = false;
    std::vector<unsigned> bound;
    std::function<progress_state()> work;
    std::thread thread;
  };

  std::unique_ptr<state> state_;
};

}  // namespace vtier
