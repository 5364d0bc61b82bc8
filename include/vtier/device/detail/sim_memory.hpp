// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of a simulated device: address ranges that host code must not touch, and the same bytes at other addresses
// for the simulation itself.
//
// A file of its own because it is all that talks to the system: memfds, mapped twice. A store of host code to the
// device's addresses faults, as on a GPU.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier::sim::detail {

/// The same bytes at two addresses: the device's, and the simulation's own.
class twin_bytes {
 public:
  /// Needs   alignment_bytes a power of two, for the device's address
  explicit twin_bytes(std::size_t size_bytes, std::size_t alignment_bytes = 1)
      : mapped_bytes_{align_up(size_bytes, page_bytes())} {
    const int file = ::memfd_create("vtier-sim", MFD_CLOEXEC);
    if (file < 0) throw refused();
    if (::ftruncate(file, static_cast<::off_t>(mapped_bytes_)) == 0) {
      device_ = map(file, PROT_NONE, alignment_bytes);
      host_ = map(file, PROT_READ | PROT_WRITE, 1);
    }
    ::close(file);
    if (device_ == nullptr || host_ == nullptr) {
      unmap();
      throw refused();
    }
  }
  twin_bytes(const twin_bytes&) = delete;
  twin_bytes& operator=(const twin_bytes&) = delete;
  ~twin_bytes() { unmap(); }

  [[nodiscard]] std::byte* device() const noexcept { return device_; }
  [[nodiscard]] std::byte* host() const noexcept { return host_; }
  [[nodiscard]] bool holds(const void* place) const noexcept {
    const auto* const p = static_cast<const std::byte*>(place);
    return p >= device_ && p < device_ + mapped_bytes_;
  }
  /// Lets code touch device addresses as they are, or forbids it again.
  void open(bool yes) const noexcept { open(device_, mapped_bytes_, yes); }
  static void open(std::byte* first, std::size_t size_bytes, bool yes) noexcept {
    ::mprotect(first, size_bytes, yes ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

 private:
  [[nodiscard]] static std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  [[nodiscard]] std::byte* map(int file, int protection, std::size_t alignment_bytes) const noexcept {
    const std::size_t more = alignment_bytes > page_bytes() ? alignment_bytes : 0;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const all = ::mmap(nullptr, mapped_bytes_ + more, PROT_NONE, flags, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    auto* const start = static_cast<std::byte*>(all);
    const std::size_t skip = more == 0 ? 0 : (~reinterpret_cast<std::uintptr_t>(all) + 1) & (alignment_bytes - 1);
    if (skip > 0) ::munmap(start, skip);
    if (more > skip) ::munmap(start + skip + mapped_bytes_, more - skip);
    if (::mmap(start + skip, mapped_bytes_, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0) !=
        MAP_FAILED) {
      return start + skip;
    }
    ::munmap(start + skip, mapped_bytes_);
    return nullptr;
  }
  void unmap() noexcept {
    if (device_ != nullptr) ::munmap(device_, mapped_bytes_);
    if (host_ != nullptr) ::munmap(host_, mapped_bytes_);
  }
  [[nodiscard]] out_of_memory refused() const {
    return {"sim", mapped_bytes_, 0,
            "the system gives no address range of " + format_bytes(mapped_bytes_) + " for a simulated device (" +
                std::strerror(errno) + "): make it smaller"};
  }

  std::size_t mapped_bytes_;
  std::byte* device_ = nullptr;
  std::byte* host_ = nullptr;
};

/// Device memory and which of it is taken: blocks of one address range, and further ranges whose bytes count as far as
/// somebody says that they exist.
///
/// Units   bytes; every block is a multiple of 256 bytes and aligned to that
/// Threads one at a time
class device_bytes {
 public:
  explicit device_bytes(std::size_t size_bytes) : size_bytes_{align_down(size_bytes, alignment)}, blocks_{size_bytes_} {
    free_.emplace(0, size_bytes_);
  }
  device_bytes(const device_bytes&) = delete;
  device_bytes& operator=(const device_bytes&) = delete;

  /// The lowest free block; null where no piece is large enough.
  [[nodiscard]] void* take(std::size_t size_bytes) {
    const std::size_t wanted = align_up(size_bytes, alignment);
    if (wanted > size_bytes_ - used_bytes_) return nullptr;
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->second < wanted) continue;
      const std::size_t offset = at->first;
      const std::size_t rest = at->second - wanted;
      free_.erase(at);
      if (rest > 0) free_.emplace(offset + wanted, rest);
      used_bytes_ += wanted;
      return blocks_.device() + offset;
    }
    return nullptr;
  }

  /// Takes a block back and spoils its bytes.
  void give(void* block, std::size_t size_bytes) {
    const std::size_t size = align_up(size_bytes, alignment);
    const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - blocks_.device());
    spoil(block, size, 0xDB);
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

  /// Another address range, behind which there is no memory yet. It stays as long as the device, so that work that
  /// comes too late for it is told of and does not crash.
  [[nodiscard]] std::byte* reserve(std::size_t size_bytes, std::size_t alignment_bytes = 1) {
    ranges_.push_back(std::make_unique<twin_bytes>(size_bytes, alignment_bytes));
    return ranges_.back()->device();
  }

  /// Counts memory as taken, wherever it is to be seen; false where there is not so much.
  [[nodiscard]] bool charge(std::size_t size_bytes) noexcept {
    if (size_bytes > size_bytes_ - used_bytes_) return false;
    used_bytes_ += size_bytes;
    return true;
  }
  void discharge(std::size_t size_bytes) noexcept { used_bytes_ -= size_bytes; }

  /// Says how far addresses of a range may be touched, from a place where they may or may not be; 0: not at all.
  void allow(std::byte* first, std::size_t size_bytes) {
    if (size_bytes == 0) {
      allowed_.erase(first);
    } else {
      allowed_[first] = size_bytes;
    }
  }

  /// Writes over bytes that nobody may count on, or the first of them.
  void spoil(const void* first, std::size_t size_bytes, int value) const noexcept {
    std::memset(reach(first), value, (std::min)(size_bytes, spoiled_bytes_max));
  }

  /// Where the simulation itself reaches a byte: the other mapping for device memory, the same place for other memory.
  [[nodiscard]] std::byte* reach(const void* place) const noexcept {
    auto* const p = const_cast<std::byte*>(static_cast<const std::byte*>(place));
    const twin_bytes* const in = twin_of(place);
    return in == nullptr ? p : in->host() + (p - in->device());
  }
  [[nodiscard]] bool holds(const void* place) const noexcept { return twin_of(place) != nullptr; }

  /// Lets code touch device addresses as they are, while a launched function runs, or forbids it again.
  void open(bool yes) const noexcept {
    blocks_.open(yes);
    for (const auto& [first, size] : allowed_) twin_bytes::open(first, size, yes);
  }

  [[nodiscard]] const void* first() const noexcept { return blocks_.device(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }

  static constexpr std::size_t alignment = 256;

 private:
  static constexpr std::size_t spoiled_bytes_max = std::size_t{1} << 20U;

  [[nodiscard]] const twin_bytes* twin_of(const void* place) const noexcept {
    if (blocks_.holds(place)) return &blocks_;
    for (const auto& r : ranges_) {
      if (r->holds(place)) return r.get();
    }
    return nullptr;
  }

  std::size_t size_bytes_;
  std::size_t used_bytes_ = 0;
  twin_bytes blocks_;
  std::map<std::size_t, std::size_t> free_;
  std::vector<std::unique_ptr<twin_bytes>> ranges_;
  std::map<std::byte*, std::size_t> allowed_;
};

}  // namespace vtier::sim::detail
