// SPDX-License-Identifier: Apache-2.0
#pragma once

// The queue of a host stream and the thread that empties it.
//
// A file of its own because this is all the concurrency of a host device: what is here runs beside the caller, what is
// in host.hpp runs in the caller.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

#include <vtier/core/clock.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/device/detail/host_memory.hpp>

namespace vtier::host {

/// The most work that one stream holds unstarted; a call that would add more blocks until there is room.
inline constexpr std::size_t queue_items_max = 65'536;

namespace detail {

/// What an item of a queue asks for.
enum class work_kind : std::uint8_t { copy, fill, record, wait, call, release };

/// Work in a queue; each kind uses some of the fields. None but `call` costs an allocation of its own. A plain
/// struct: a variant of these costs every program that includes this compile time for nothing.
struct item {
  work_kind kind;
  std::byte value{};
  void* target = nullptr;  // of a copy or a fill; the block of a release
  const void* source = nullptr;
  std::size_t size_bytes = 0;
  std::shared_ptr<mark> event;      // to pass, or to wait for
  std::shared_ptr<memory> owner;    // of the block of a release
  std::shared_ptr<failure> failed;  // made ahead: noting an exception must not need memory
  std::function<void()> function;
};

inline item copy_item(void* target, const void* source, std::size_t size_bytes) {
  return {work_kind::copy, {}, target, source, size_bytes, nullptr, nullptr, nullptr, nullptr};
}
inline item fill_item(void* target, std::byte value, std::size_t size_bytes) {
  return {work_kind::fill, value, target, nullptr, size_bytes, nullptr, nullptr, nullptr, nullptr};
}
inline item record_item(std::shared_ptr<mark> done) {
  return {work_kind::record, {}, nullptr, nullptr, 0, std::move(done), nullptr, nullptr, nullptr};
}
inline item wait_item(std::shared_ptr<mark> before) {
  return {work_kind::wait, {}, nullptr, nullptr, 0, std::move(before), nullptr, nullptr, nullptr};
}
inline item call_item(std::function<void()> function, std::shared_ptr<failure> failed) {
  return {work_kind::call, {}, nullptr, nullptr, 0, nullptr, nullptr, std::move(failed), std::move(function)};
}
inline item release_item(std::shared_ptr<memory> owner, void* block, std::size_t size_bytes,
                         std::shared_ptr<mark> done) {
  return {work_kind::release, {}, block, nullptr, size_bytes, std::move(done), std::move(owner), nullptr, nullptr};
}

/// A stream's work, first in first out, and the thread that does it. The thread holds the queue too: in a forked child,
/// which has no such thread, it is never destroyed.
class queue {
 public:
  /// Starts the thread.
  [[nodiscard]] static std::shared_ptr<queue> make() {
    auto made = std::make_shared<queue>();
    try {
      made->worker_ = std::thread{[made] { made->work(); }};
    } catch (const std::system_error& e) {
      throw device_error(e.code().value(), "no thread for another host stream (" + e.code().message() +
                                               "); use fewer streams or raise the limit on threads");
    }
    return made;
  }

  /// Adds work; blocks while the queue is full. False where the stream is gone, and with it everything has run.
  [[nodiscard]] bool push(item next) {
    mark_.check("this stream of a host device");  // nobody would do it in a forked child
    std::unique_lock hold{lock_};
    room_.wait(hold, [&] { return items_.size() < queue_items_max || closed_; });
    if (closed_) return false;
    items_.push_back(std::move(next));
    clear_.store(false, std::memory_order_relaxed);
    const bool wake = idle_;
    hold.unlock();
    if (wake) ready_.notify_one();
    return true;
  }

  /// Marks this point; blocks while the queue is full. Costs an allocation only where there is something to wait for:
  /// where everything has run it has passed already, and two in a row are the same.
  ///
  /// Gives   null for a mark that has passed, and with which there is no error to tell
  [[nodiscard]] std::shared_ptr<mark> record() {
    mark_.check("this stream of a host device");
    if (clear_.load(std::memory_order_acquire)) return nullptr;
    {
      const std::scoped_lock hold{lock_};
      if (items_.empty() && !busy_) return all_passed();
      if (!items_.empty() && items_.back().kind == work_kind::record && !items_.back().event->timed()) {
        return items_.back().event;
      }
    }
    auto done = std::make_shared<mark>();
    return push(record_item(done)) ? done : all_passed();
  }

  /// The same, and keeps the time at which the thread comes there; never null.
  [[nodiscard]] std::shared_ptr<mark> record_timed() {
    auto done = std::make_shared<mark>(true);
    if (!push(record_item(done))) done->pass(failed_);
    return done;
  }

  /// Does what is left and ends the thread; nothing in a forked child.
  void close() noexcept {
    if (!mark_.here()) return;  // nor detached: what was the thread's handle may be that of a thread of the child's
    {
      const std::scoped_lock hold{lock_};
      stopping_ = true;
    }
    ready_.notify_one();
    if (worker_.get_id() == std::this_thread::get_id()) {
      worker_.detach();  // a launched function held the stream; the thread ends once the rest is done
    } else {
      worker_.join();
    }
  }

  /// Blocks until nothing is queued; the way out where there is no memory to queue anything.
  void settle() noexcept {
    for (; mark_.here(); std::this_thread::yield()) {
      const std::scoped_lock hold{lock_};
      if (items_.empty() && !busy_) return;
    }
  }

  /// The time that the thread was blocked by events, the present wait included.
  [[nodiscard]] std::int64_t waited_ns() const noexcept {
    const std::int64_t since = waiting_since_ns_.load(std::memory_order_relaxed);
    const std::int64_t past = waited_ns_.load(std::memory_order_relaxed);
    return since == 0 ? past : past + (std::max)(std::int64_t{0}, vtier::steady_clock{}.now_ns() - since);
  }

 private:
  // A mark for when nothing is left to run. Needs that nothing runs, seen under the lock.
  [[nodiscard]] std::shared_ptr<mark> all_passed() const {
    if (failed_ == nullptr || failed_->told) return nullptr;
    auto done = std::make_shared<mark>();
    done->pass(failed_);
    return done;
  }

  void work() noexcept {
    ::pthread_setname_np(::pthread_self(), "vtier-stream");
    std::unique_lock hold{lock_};
    for (;;) {
      busy_ = false;
      if (items_.empty() && failed_ == nullptr) clear_.store(true, std::memory_order_release);
      while (items_.empty() && !stopping_) {
        idle_ = true;
        ready_.wait(hold);
      }
      idle_ = false;
      if (items_.empty()) break;
      busy_ = true;
      {
        item next = std::move(items_.front());
        items_.pop_front();
        const bool was_full = items_.size() + 1 == queue_items_max;
        hold.unlock();
        if (was_full) room_.notify_all();
        run(next);
      }  // what a function held is gone before anything after it runs
      hold.lock();
    }
    closed_ = true;
    room_.notify_all();
  }

  void run(item& i) noexcept {
    switch (i.kind) {
      case work_kind::copy: std::memcpy(i.target, i.source, i.size_bytes); break;
      case work_kind::fill: std::memset(i.target, std::to_integer<int>(i.value), i.size_bytes); break;
      case work_kind::record: i.event->pass(failed_); break;
      case work_kind::release: i.owner->deallocate(i.target, i.size_bytes, i.event.get()); break;
      case work_kind::wait: wait_for(*i.event); break;
      case work_kind::call: call(i); break;
    }
  }

  void wait_for(const mark& before) noexcept {
    if (before.passed()) return;
    const std::int64_t since = vtier::steady_clock{}.now_ns();
    waiting_since_ns_.store(since, std::memory_order_relaxed);
    before.wait();
    waiting_since_ns_.store(0, std::memory_order_relaxed);
    waited_ns_.fetch_add(vtier::steady_clock{}.now_ns() - since, std::memory_order_relaxed);
  }

  void call(item& i) noexcept {
    try {
      i.function();
    } catch (...) {
      i.failed->cause = std::current_exception();
      if (failed_ == nullptr || failed_->told) failed_ = i.failed;  // the first is the cause of the others
    }
  }

  const process_mark mark_;
  std::mutex lock_;
  std::condition_variable ready_;  // for the thread: there is work
  std::condition_variable room_;   // for callers: there is room
  std::deque<item> items_;
  std::atomic<bool> clear_{true};  // whether all of it has run, and without any error
  bool idle_ = false;
  bool busy_ = false;
  bool stopping_ = false;
  bool closed_ = false;
  std::shared_ptr<failure> failed_;  // what a function threw that nobody has been told; the thread's own while busy_
  std::atomic<std::int64_t> waited_ns_{0};
  std::atomic<std::int64_t> waiting_since_ns_{0};
  std::thread worker_;
};

}  // namespace detail
}  // namespace vtier::host
