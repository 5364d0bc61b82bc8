// SPDX-License-Identifier: Apache-2.0
#pragma once

// A mutex for sections that are shorter than a thread's way into the kernel and back: it tries for a while before it
// sleeps. std::mutex sleeps at once, and two threads that allocate in turns pay for that each time.

#include <pthread.h>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// A mutex, std::mutex's equal but for how it waits; where the C library has no such kind, a plain one.
///
/// Threads any
class adaptive_mutex {
 public:
  adaptive_mutex() noexcept = default;
  adaptive_mutex(const adaptive_mutex&) = delete;
  adaptive_mutex& operator=(const adaptive_mutex&) = delete;
  ~adaptive_mutex() { ::pthread_mutex_destroy(&inner_); }

  void lock() noexcept { ::pthread_mutex_lock(&inner_); }
  [[nodiscard]] bool try_lock() noexcept { return ::pthread_mutex_trylock(&inner_) == 0; }
  void unlock() noexcept { ::pthread_mutex_unlock(&inner_); }

 private:
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  ::pthread_mutex_t inner_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
  ::pthread_mutex_t inner_ = PTHREAD_MUTEX_INITIALIZER;
#endif
};

}  // namespace vtier::detail
