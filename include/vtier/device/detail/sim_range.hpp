// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory of a simulated device that grows where it stands.
//
// A file of its own because a range outlives the device's handles. The world knows which of its bytes exist, so that a
// use of those behind the end is a violation, and so is one that is not over when they are given back.

#include <cstddef>
#include <memory>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/detail/range_steps.hpp>
#include <vtier/device/detail/sim_state.hpp>

namespace vtier::sim::detail {

/// An address range; see the concept `device_range`.
class range {
 public:
  range(std::shared_ptr<device_state> owner, std::size_t size_bytes, std::size_t granule_bytes)
      : owner_{std::move(owner)} {
    const auto steps = vtier::detail::range_steps::of(size_bytes, granule_bytes, device_bytes::alignment);
    if (!steps) throw owner_->no_room(size_bytes);
    steps_ = *steps;
    base_ = owner_->bytes.reserve(steps_.size_bytes);
    owner_->machine->only_allocated(base_, steps_.size_bytes);
  }
  range(range&& other) noexcept
      : owner_{std::move(other.owner_)},
        base_{std::exchange(other.base_, nullptr)},
        steps_{other.steps_},
        end_bytes_{std::exchange(other.end_bytes_, 0)} {}
  range& operator=(range&&) = delete;
  ~range() {
    if (base_ == nullptr) return;
    shrink(0);
    owner_->machine->any_use(base_);
  }

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return steps_.size_bytes; }
  [[nodiscard]] std::size_t granule_bytes() const noexcept { return steps_.granule_bytes; }
  [[nodiscard]] std::size_t end_bytes() const noexcept { return end_bytes_; }

  void grow(std::size_t end_bytes) {
    const std::size_t end = steps_.end_at(end_bytes);
    if (end <= end_bytes_) return;
    owner_->begin();
    const std::size_t added = end - end_bytes_;
    if (owner_->machine->fails(fault::device_memory) || !owner_->bytes.charge(added)) throw owner_->no_room(added);
    std::byte* const first = base_ + end_bytes_;
    move_end(end);
    owner_->machine->forget(first, added);
    owner_->bytes.spoil(first, added, 0xCD);
  }

  void shrink(std::size_t end_bytes) noexcept {
    const std::size_t end = steps_.end_at(end_bytes);
    if (end >= end_bytes_) return;
    owner_->begin();
    const std::size_t removed = end_bytes_ - end;
    owner_->machine->touch(base_ + end, removed, access_kind::write);  // who still uses it has lost
    move_end(end);
    owner_->bytes.spoil(base_ + end, removed, 0xDB);
    owner_->bytes.discharge(removed);
  }

 private:
  // For the world the bytes that exist are one block: work may go from one end to the other.
  void move_end(std::size_t end_bytes) {
    if (end_bytes_ > 0) owner_->machine->freed(base_, end_bytes_);
    if (end_bytes > 0) owner_->machine->allocated(base_, end_bytes, "a range of " + owner_->options.name);
    owner_->bytes.allow(base_, end_bytes);
    end_bytes_ = end_bytes;
  }

  std::shared_ptr<device_state> owner_;
  std::byte* base_ = nullptr;
  vtier::detail::range_steps steps_;
  std::size_t end_bytes_ = 0;
};

}  // namespace vtier::sim::detail
