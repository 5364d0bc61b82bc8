// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory of a host device that grows where it stands: addresses that nobody may touch, and pages for the first of them.
//
// A file of its own because it is all that the host device does with the rights of pages.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <sys/mman.h>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/detail/host_memory.hpp>
#include <vtier/device/detail/range_steps.hpp>

namespace vtier::host::detail {

/// An address range; see the concept `device_range`.
///
/// Gives   pages that count against the device's limit once they exist, and are had from the system when first touched
class range {
 public:
  /// Errors  out_of_memory where the system has no addresses
  range(std::shared_ptr<memory> owner, std::size_t size_bytes, std::size_t granule_bytes) : owner_{std::move(owner)} {
    owner_->home().check(owner_->name().c_str());
    const auto steps = vtier::detail::range_steps::of(size_bytes, granule_bytes, page_bytes());
    if (!steps) throw refused(size_bytes, "no system has so many addresses");
    steps_ = *steps;
    const std::size_t size = steps_.size_bytes;
    void* const mapped =
        ::mmap(nullptr, size + huge_page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw refused(size_bytes, std::generic_category().message(errno));
    // Whole huge pages, where there are any: both ends are cut off.
    const std::size_t before = (~reinterpret_cast<std::uintptr_t>(mapped) + 1) & (huge_page_bytes - 1);
    base_ = static_cast<std::byte*>(mapped) + before;
    if (before != 0) ::munmap(mapped, before);
    if (before != huge_page_bytes) ::munmap(base_ + size, huge_page_bytes - before);
    ::madvise(base_, size, MADV_HUGEPAGE);  // a wish
  }
  range(range&& other) noexcept
      : owner_{std::move(other.owner_)},
        base_{std::exchange(other.base_, nullptr)},
        steps_{other.steps_},
        end_bytes_{std::exchange(other.end_bytes_, 0)} {}
  range& operator=(range&&) = delete;
  ~range() {
    if (base_ == nullptr || !owner_->home().here()) return;
    ::munmap(base_, steps_.size_bytes);
    owner_->give(end_bytes_);
  }

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return steps_.size_bytes; }
  [[nodiscard]] std::size_t granule_bytes() const noexcept { return steps_.granule_bytes; }
  [[nodiscard]] std::size_t end_bytes() const noexcept { return end_bytes_; }

  void grow(std::size_t end_bytes) {
    const std::size_t end = steps_.end_at(end_bytes);
    if (end <= end_bytes_) return;
    const std::size_t added = end - end_bytes_;
    owner_->take(added);
    if (::mprotect(base_ + end_bytes_, added, PROT_READ | PROT_WRITE) != 0) {
      const std::string reason = std::generic_category().message(errno);
      owner_->give(added);
      throw refused(added, reason);
    }
    end_bytes_ = end;
  }

  void shrink(std::size_t end_bytes) noexcept {
    const std::size_t end = steps_.end_at(end_bytes);
    if (end >= end_bytes_ || !owner_->home().here()) return;
    // New pages without rights in their place, in one act.
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (::mmap(base_ + end, end_bytes_ - end, PROT_NONE, flags, -1, 0) == MAP_FAILED) return;  // all stays
    ::madvise(base_ + end, end_bytes_ - end, MADV_HUGEPAGE);
    owner_->give(end_bytes_ - end);
    end_bytes_ = end;
  }

 private:
  [[nodiscard]] out_of_memory refused(std::size_t size_bytes, const std::string& reason) const {
    return {owner_->name(), size_bytes, owner_->now().free_bytes,
            owner_->name() + ": the system gives no " + format_bytes(size_bytes) + " (" + reason +
                ") although the device's limit has " + format_bytes(owner_->now().free_bytes) +
                " free; lower memory_bytes to what the machine has"};
  }

  std::shared_ptr<memory> owner_;
  std::byte* base_ = nullptr;
  vtier::detail::range_steps steps_;
  std::size_t end_bytes_ = 0;
};

}  // namespace vtier::host::detail
