// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of a host device: pages, their limit, and the events that bytes wait for before they are free.
//
// A file of its own because a device's memory outlives its handles and its streams: whoever still has to give a block
// back shares it.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <vtier/core/bytes.hpp>
#include <vtier/core/clock.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/device/detail/launch_failure.hpp>
#include <vtier/device/device.hpp>

namespace vtier::host {

/// Limits of a `host::device`.
struct device_options {
  std::size_t memory_bytes = 0;  // 0: the machine's physical memory
  std::string name = "host";     // in messages and reports
};

namespace detail {

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

/// The size of a page of the system, in bytes.
[[nodiscard]] inline std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Gives memory, huge pages where it is big; null and errno where the system has none.
///
/// Needs   alignment_bytes a power of two, at most a huge page
[[nodiscard]] inline void* take_pages(std::size_t size_bytes, std::size_t alignment_bytes) noexcept {
  if (size_bytes < huge_page_bytes) {
    void* const block = ::operator new (size_bytes, std::align_val_t{alignment_bytes}, std::nothrow);
    if (block == nullptr) errno = ENOMEM;
    return block;
  }
  // Older kernels do not align a mapping to huge pages by themselves: map one more and cut both ends off.
  const auto size = checked_align_up(size_bytes, page_bytes());
  const auto reserved = size ? checked_add(*size, huge_page_bytes) : std::nullopt;
  if (!reserved) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const mapped =
      ::mmap(nullptr, *reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const std::size_t before = (~reinterpret_cast<std::uintptr_t>(mapped) + 1) & (huge_page_bytes - 1);
  std::byte* const block = static_cast<std::byte*>(mapped) + before;
  if (before != 0) ::munmap(mapped, before);
  if (before != huge_page_bytes) ::munmap(block + *size, huge_page_bytes - before);
  ::madvise(block, *size, MADV_HUGEPAGE);  // a wish: without it the pages are only slower
  return block;
}

/// Takes back what take_pages gave for the same size and alignment.
inline void give_pages(void* block, std::size_t size_bytes, std::size_t alignment_bytes) noexcept {
  if (size_bytes < huge_page_bytes) {
    ::operator delete (block, std::align_val_t{alignment_bytes});
  } else {
    ::munmap(block, align_up(size_bytes, page_bytes()));
  }
}

/// What a launched function threw, until one caller has been told.
struct failure {
  std::exception_ptr cause;
  std::atomic<bool> told{false};
};

/// What the copies of an event share.
class mark {
 public:
  explicit mark(bool timed = false) noexcept : timed_{timed} {}

  [[nodiscard]] bool passed() const noexcept { return passed_.load(std::memory_order_acquire) != 0; }

  /// Blocks until passed. std::atomic::wait spins for a moment and then sleeps, as suits a machine with few cores.
  void wait() const noexcept {
    while (!passed()) passed_.wait(0, std::memory_order_acquire);
  }

  void pass(std::shared_ptr<failure> failed = nullptr) noexcept {
    failed_ = std::move(failed);
    if (timed_) passed_ns_ = steady_clock{}.now_ns();
    passed_.store(1, std::memory_order_release);
    passed_.notify_all();
  }

  [[nodiscard]] bool timed() const noexcept { return timed_; }

  /// When it passed, where it is timed.
  ///
  /// Needs   passed()
  [[nodiscard]] std::int64_t passed_ns() const noexcept { return passed_ns_; }

  /// Throws what a function launched before the event has thrown, once.
  ///
  /// Needs   passed()
  void tell() const {
    if (failed_ == nullptr || failed_->told.exchange(true)) return;
    throw vtier::detail::launch_failure("host device", failed_->cause);
  }

 private:
  std::atomic<std::uint32_t> passed_{0};  // 32 bits: what a futex holds
  std::shared_ptr<failure> failed_;       // written before passed_, read after it
  std::int64_t passed_ns_ = 0;            // likewise
  bool timed_;
};

/// A device's memory under its limit, and the blocks whose release waits in some stream.
class memory {
 public:
  explicit memory(const device_options& options) : name_{options.name}, limit_bytes_{options.memory_bytes} {
    if (limit_bytes_ == 0) limit_bytes_ = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes();
  }

  /// Gives a block. With `after`, bytes whose release is queued count as free, and `after` is what to wait for first:
  /// pages are touched only then, so that the limit holds for what is really used.
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::vector<std::shared_ptr<mark>>* after) {
    home_.check(name_.c_str());
    {
      const std::scoped_lock hold{lock_};
      std::size_t room_bytes = free_bytes();
      if (size_bytes > room_bytes && after != nullptr) {
        // Used bytes can be above the limit here by what is queued for release.
        std::size_t queued_bytes = limit_bytes_;
        for (const release& r : queued_) queued_bytes += r.size_bytes;
        room_bytes = queued_bytes > used_bytes_ ? queued_bytes - used_bytes_ : 0;
        for (const release& r : queued_) after->push_back(r.done);
      }
      if (size_bytes > room_bytes) throw no_room(size_bytes);
      used_bytes_ += size_bytes;
    }
    if (void* const block = take_pages(size_bytes, alignment_bytes)) return block;
    const std::string reason = std::generic_category().message(errno);
    const std::scoped_lock hold{lock_};
    used_bytes_ -= size_bytes;
    throw out_of_memory(name_, size_bytes, free_bytes(),
                        name_ + ": the system gives no " + format_bytes(size_bytes) + " (" + reason +
                            ") although the device's limit has " + format_bytes(free_bytes()) +
                            " free; lower memory_bytes to what the machine has");
  }

  /// Notes that the block behind `done` will be free; nothing where that has happened already.
  void expect(const std::shared_ptr<mark>& done, std::size_t size_bytes) noexcept {
    const std::scoped_lock hold{lock_};
    try {
      if (!done->passed()) queued_.push_back({done, size_bytes});
    } catch (...) {  // forgotten: its bytes count as free only once they are
    }
  }

  void deallocate(void* block, std::size_t size_bytes, mark* done) noexcept {
    if (!home_.here()) return;  // in a forked child the lock may be held by a thread that is not there
    give_pages(block, size_bytes, alignment_bytes);
    const std::scoped_lock hold{lock_};
    VTIER_ASSERT(used_bytes_ >= size_bytes, "more device memory was freed than allocated: was the size another one?");
    used_bytes_ -= size_bytes;
    if (done == nullptr) return;
    std::erase_if(queued_, [&](const release& r) { return r.done.get() == done; });
    done->pass();  // under the lock, so that expect() sees either both or none
  }

  /// Counts bytes whose pages somebody else sees to.
  void take(std::size_t size_bytes) {
    home_.check(name_.c_str());
    const std::scoped_lock hold{lock_};
    if (size_bytes > free_bytes()) throw no_room(size_bytes);
    used_bytes_ += size_bytes;
  }
  void give(std::size_t size_bytes) noexcept {
    const std::scoped_lock hold{lock_};
    used_bytes_ -= size_bytes;
  }

  [[nodiscard]] device_memory now() const {
    home_.check(name_.c_str());
    const std::scoped_lock hold{lock_};
    return {free_bytes(), limit_bytes_};
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const process_mark& home() const noexcept { return home_; }

 private:
  struct release {
    std::shared_ptr<mark> done;
    std::size_t size_bytes;
  };

  static constexpr std::size_t alignment_bytes = 256;

  [[nodiscard]] std::size_t free_bytes() const noexcept {
    return limit_bytes_ > used_bytes_ ? limit_bytes_ - used_bytes_ : 0;
  }

  [[nodiscard]] out_of_memory no_room(std::size_t size_bytes) const {
    return {name_, size_bytes, free_bytes(),
            name_ + ": asked " + format_bytes(size_bytes) + ", free " + format_bytes(free_bytes()) + " of " +
                format_bytes(limit_bytes_) + "; free a block or make the device with more memory_bytes"};
  }

  process_mark home_;
  std::string name_;
  std::size_t limit_bytes_;
  mutable std::mutex lock_;
  std::size_t used_bytes_ = 0;
  std::vector<release> queued_;
};

}  // namespace detail
}  // namespace vtier::host
