// SPDX-License-Identifier: Apache-2.0
#pragma once

// The thread that drives a hierarchy between calls.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/topology/affinity.hpp>

namespace vtier {

/// What one round of work found.
enum class progress_state { idle, waiting, moved };

/// A thread that calls a function while there is something to do, and sleeps otherwise.
///
/// Needs   a function that never blocks for long and never throws; it is called from the thread only
/// Threads wake() any; the destructor joins
class progress {
 public:
  progress(std::function<progress_state()> work, std::vector<unsigned> cpus, notes remarks)
      : work_{std::move(work)}, thread_{[this, where = std::move(cpus), said = std::move(remarks)]() mutable {
          run(where, said);
        }} {}

  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  ~progress() {
    {
      const std::scoped_lock hold{lock_};
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The CPUs that the thread was to run on and, read back, does run on; empty while unbound.
  [[nodiscard]] std::vector<unsigned> bound() const {
    const std::scoped_lock hold{lock_};
    return bound_;
  }

  /// Says that there is something to do.
  void wake() noexcept {
    {
      const std::scoped_lock hold{lock_};
      awake_ = true;
    }
    changed_.notify_all();
  }

 private:
  void run(const std::vector<unsigned>& cpus, notes& remarks) {
    if (!cpus.empty()) {
      const bool taken = bind_this_thread(cpus);
      auto now = bound_cpus();
      if (taken && !now.empty() && common_cpus(now, cpus) == now) {
        const std::scoped_lock hold{lock_};
        bound_ = std::move(now);
      } else {
        remarks.say("the progress thread runs unbound: none of the CPUs it was to run on is allowed for this process");
      }
    }
    for (;;) {
      const progress_state state = work_();
      std::unique_lock hold{lock_};
      if (stop_) return;
      if (state == progress_state::idle) {
        changed_.wait(hold, [this] { return stop_ || awake_; });
      } else if (state == progress_state::waiting) {
        // Events of a device and of a drive have no common signal; a short sleep costs less than a spin.
        changed_.wait_for(hold, std::chrono::microseconds{100}, [this] { return stop_ || awake_; });
      }
      if (stop_) return;
      awake_ = false;
    }
  }

  mutable std::mutex lock_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool awake_ = false;
  std::vector<unsigned> bound_;
  std::function<progress_state()> work_;
  std::thread thread_;
};

}  // namespace vtier
