// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of a simulated device: an address range that host code must not touch, and the same bytes at another
// address for the simulation itself.
//
// A file of its own because it is all that talks to the system: a memfd, mapped twice. A store of host code to the
// device's addresses faults, as on a GPU.

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier::sim::detail {

/// Device memory and which of it is taken.
///
/// Units   bytes; every block is a multiple of 256 bytes and aligned to that
/// Threads one at a time
class device_bytes {
 public:
  explicit device_bytes(std::size_t size_bytes)
      : size_bytes_{align_down(size_bytes, alignment)}, mapped_bytes_{align_up(size_bytes_, page_bytes())} {
    const int file = ::memfd_create("vtier-sim", MFD_CLOEXEC);
    if (file < 0) throw refused();
    if (::ftruncate(file, static_cast<::off_t>(mapped_bytes_)) == 0) {
      device_ = map(file, PROT_NONE);
      host_ = map(file, PROT_READ | PROT_WRITE);
    }
    ::close(file);
    if (device_ == nullptr || host_ == nullptr) {
      unmap();
      throw refused();
    }
    free_.emplace(0, size_bytes_);
  }
  device_bytes(const device_bytes&) = delete;
  device_bytes& operator=(const device_bytes&) = delete;
  ~device_bytes() { unmap(); }

  /// The lowest free block; null where no piece is large enough.
  [[nodiscard]] void* take(std::size_t size_bytes) {
    const std::size_t wanted = align_up(size_bytes, alignment);
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->second < wanted) continue;
      const std::size_t offset = at->first;
      const std::size_t rest = at->second - wanted;
      free_.erase(at);
      if (rest > 0) free_.emplace(offset + wanted, rest);
      used_bytes_ += wanted;
      return device_ + offset;
    }
    return nullptr;
  }

  /// Takes a block back and spoils its bytes.
  void give(void* block, std::size_t size_bytes) {
    const std::size_t size = align_up(size_bytes, alignment);
    const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - device_);
    std::memset(host_ + offset, 0xDB, (std::min)(size, spoiled_bytes_max));
    used_bytes_ -= size;
    auto at = free_.emplace(offset, size).first;
    if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
      at->second += next->second;
      free_.erase(next);
    }
    if (at != free_.begin()) {
      const auto before = std::prev(at);
      if (before->first + before->second == at->first) {
        before->second += at->second;
        free_.erase(at);
      }
    }
  }

  /// Where the simulation itself reaches a byte: the other mapping for device memory, the same place for other memory.
  [[nodiscard]] std::byte* reach(const void* place) const noexcept {
    auto* const p = const_cast<std::byte*>(static_cast<const std::byte*>(place));
    return holds(place) ? host_ + (p - device_) : p;
  }
  [[nodiscard]] bool holds(const void* place) const noexcept {
    const auto* const p = static_cast<const std::byte*>(place);
    return p >= device_ && p < device_ + mapped_bytes_;
  }

  /// Lets code touch device addresses as they are, while a launched function runs, or forbids it again.
  void open(bool yes) const noexcept { ::mprotect(device_, mapped_bytes_, yes ? PROT_READ | PROT_WRITE : PROT_NONE); }

  [[nodiscard]] const void* first() const noexcept { return device_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }

  static constexpr std::size_t alignment = 256;

 private:
  static constexpr std::size_t spoiled_bytes_max = std::size_t{1} << 20U;

  [[nodiscard]] static std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  [[nodiscard]] std::byte* map(int file, int protection) const noexcept {
    void* const at = ::mmap(nullptr, mapped_bytes_, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  void unmap() noexcept {
    if (device_ != nullptr) ::munmap(device_, mapped_bytes_);
    if (host_ != nullptr) ::munmap(host_, mapped_bytes_);
  }
  [[nodiscard]] out_of_memory refused() const {
    return {"sim", size_bytes_, 0,
            "the system gives no address range of " + format_bytes(size_bytes_) + " for a simulated device (" +
                std::strerror(errno) + "): make it smaller"};
  }

  std::size_t size_bytes_;
  std::size_t mapped_bytes_;
  std::size_t used_bytes_ = 0;
  std::byte* device_ = nullptr;
  std::byte* host_ = nullptr;
  std::map<std::size_t, std::size_t> free_;
};

}  // namespace vtier::sim::detail
