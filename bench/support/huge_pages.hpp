// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plain memory for the limit's side of a comparison: huge pages where the system gives them, touched before any clock
// runs, and without a line of the library under test.

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <system_error>

namespace vtier::bench {

/// Anonymous memory aligned to 2 MiB, filled with one byte value.
///
/// Errors  std::system_error where the system has none
class huge_pages {
 public:
  explicit huge_pages(std::size_t size_bytes, std::byte value = std::byte{1})
      : size_bytes_{size_bytes}, mapped_bytes_{(size_bytes + 2 * page_bytes - 1) / page_bytes * page_bytes} {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    mapped_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "memory for a bench");
    ::madvise(mapped_, mapped_bytes_, MADV_HUGEPAGE);  // a wish: without it both sides are slower
    const std::size_t skip = (~reinterpret_cast<std::uintptr_t>(mapped_) + 1) & (page_bytes - 1);
    data_ = static_cast<std::byte*>(mapped_) + skip;
    std::memset(data_, std::to_integer<int>(value), size_bytes_);
  }
  huge_pages(const huge_pages&) = delete;
  huge_pages& operator=(const huge_pages&) = delete;
  ~huge_pages() { ::munmap(mapped_, mapped_bytes_); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_bytes_; }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_, size_bytes_}; }

 private:
  static constexpr std::size_t page_bytes = std::size_t{2} << 20U;

  std::size_t size_bytes_;
  std::size_t mapped_bytes_;
  void* mapped_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace vtier::bench
