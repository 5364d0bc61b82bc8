// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether this is still the process that something was made in: a forked child has the memory of its parent, but none
// of its threads, and must not touch what they hold.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// A mark that a forked child does not see.
///
/// Threads any
/// Cost    one page; here() is a load where the kernel can empty a page at a fork (Linux 4.14), else a system call
/// Source  madvise(2), MADV_WIPEONFORK
class process_mark {
 public:
  process_mark() noexcept : process_{::getpid()}, size_bytes_{static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))} {
#ifdef MADV_WIPEONFORK
    void* const page = ::mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (::madvise(page, size_bytes_, MADV_WIPEONFORK) != 0) {
      ::munmap(page, size_bytes_);
      return;
    }
    page_ = static_cast<volatile char*>(page);
    *page_ = 1;
#endif
  }
  process_mark(const process_mark&) = delete;
  process_mark& operator=(const process_mark&) = delete;
  ~process_mark() {
    if (page_ != nullptr) ::munmap(const_cast<char*>(page_), size_bytes_);
  }

  /// Whether the caller is in the process that made the mark.
  [[nodiscard]] bool here() const noexcept { return page_ != nullptr ? *page_ != 0 : process_ == ::getpid(); }

  /// Refuses to go on in a forked child.
  ///
  /// Needs   what it is that was made before the fork, for the message
  /// Errors  usage_error
  void check(const char* what) const {
    if (here()) return;
    throw usage_error(std::string{what} + " was made in process " + std::to_string(process_) +
                      ", and this is a forked child of it, which has none of its threads: make one here, after the "
                      "fork, or let the child exec");
  }

 private:
  ::pid_t process_;
  std::size_t size_bytes_;
  volatile char* page_ = nullptr;
};

namespace detail {

/// Gives advice on the whole pages of a range; what the system refuses stays as it was.
inline void advise_pages(void* first, std::size_t size_bytes, int advice) noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t skip = (page - reinterpret_cast<std::uintptr_t>(first) % page) % page;
  if (skip >= size_bytes) return;
  const std::size_t whole = (size_bytes - skip) / page * page;
  if (whole > 0) static_cast<void>(::madvise(static_cast<std::byte*>(first) + skip, whole, advice));
}

}  // namespace detail

/// Keeps the whole pages of a range out of forked children. Memory that a drive writes by itself must be: after a fork
/// the first of the two processes to write to a page gets another one, and what is in flight arrives in the old.
///
/// Needs   nothing in these pages that a child uses; a child must not touch or unmap them
/// Errors  none: where the system refuses, the pages are in children as all others are
/// Threads any
/// Source  open(2) on O_DIRECT and fork, madvise(2), MADV_DONTFORK
inline void keep_from_children(void* first, std::size_t size_bytes) noexcept {
  detail::advise_pages(first, size_bytes, MADV_DONTFORK);
}

/// Takes that back, before the pages serve something else.
inline void share_with_children(void* first, std::size_t size_bytes) noexcept {
  detail::advise_pages(first, size_bytes, MADV_DOFORK);
}

}  // namespace vtier
