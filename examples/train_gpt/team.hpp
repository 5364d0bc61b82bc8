// SPDX-License-Identifier: Apache-2.0
#pragma once

// A few threads that share one loop at a time.
//
// The split is a function of the loop's length and the number of threads alone, so that results do not depend on
// timing. BLAS runs single-threaded inside: two pools of threads on one set of cores would get in each other's way.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace train_gpt {

/// Threads for fork-join loops; the caller is one of them.
///
/// Threads run() one caller at a time
class team {
 public:
  explicit team(std::size_t size) {
    threads_.reserve(size > 0 ? size - 1 : 0);
    for (std::size_t i = 1; i < size; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  team(const team&) = delete;
  team& operator=(const team&) = delete;
  ~team() {
    call_ = nullptr;
    announce();
    for (std::thread& t : threads_) t.join();
  }

  [[nodiscard]] std::size_t size() const noexcept { return threads_.size() + 1; }

  /// Calls f(begin, end, member) once for each member whose share of [0, count) is not empty; returns when all are
  /// done.
  ///
  /// Needs   f does not throw; shares are multiples of `grain` but for the last
  template <class F>
  void run(std::size_t count, std::size_t grain, const F& f) {
    count_ = count;
    grain_ = grain;
    context_ = &f;
    call_ = [](const void* context, std::size_t begin, std::size_t end, std::size_t member) {
      (*static_cast<const F*>(context))(begin, end, member);
    };
    if (threads_.empty() || count <= grain) {
      if (count > 0) f(std::size_t{0}, count, std::size_t{0});
      return;
    }
    left_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    announce();
    share(0);
    for (std::uint32_t left = left_.load(std::memory_order_acquire); left != 0;
         left = left_.load(std::memory_order_acquire)) {
      left_.wait(left, std::memory_order_acquire);
    }
  }

 private:
  void announce() noexcept {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void share(std::size_t member) const {
    const std::size_t grains = (count_ + grain_ - 1) / grain_;
    const std::size_t begin = (std::min)(count_, grains * member / size() * grain_);
    const std::size_t end = (std::min)(count_, grains * (member + 1) / size() * grain_);
    if (begin < end) call_(context_, begin, end, member);
  }

  void work(std::size_t member) {
    for (std::uint32_t seen = 0;;) {
      round_.wait(seen, std::memory_order_acquire);
      ++seen;  // no round is skipped: run() waits for every member
      if (call_ == nullptr) return;
      share(member);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  using call = void (*)(const void*, std::size_t, std::size_t, std::size_t);
  call call_ = nullptr;
  const void* context_ = nullptr;
  std::size_t count_ = 0;
  std::size_t grain_ = 1;
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> left_{0};
  std::vector<std::thread> threads_;
};

}  // namespace train_gpt
