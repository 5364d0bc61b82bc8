// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device's own memory, under a budget: the fastest tier.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/growable_device.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// Limits of an `hbm` resource.
struct hbm_options {
  std::size_t budget = 0;    // bytes
  std::string name = "hbm";  // in messages and reports
  bool grows = true;         // a slab's memory comes as it is committed, where the device can do that, else at once
  std::size_t granule_bytes = 0;  // by what it comes at least; 0: a 1024th of the slab, or what the device needs
};

/// Device memory, also in stream order.
///
/// Units   bytes; every allocation is charged in multiples of 256
/// Gives   a resource whose pointers are for the device's kernels and copies
/// Errors  out_of_memory from the budget or from the device; usage_error for an alignment above 256
/// Threads any
template <device Device>
class hbm {
 public:
  using stream_ref = typename Device::stream_ref;
  static constexpr memory_kind kind = memory_kind::device;
  static constexpr std::size_t alignment_bytes_max = 256;

  hbm(Device on, const hbm_options& options) : state_{std::make_shared<state>(std::move(on), options)} {}

  /// Gives device bytes; the host may block as long as the device's runtime does.
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    return take(size_bytes, alignment_bytes, [&](std::size_t charged) { return state_->on.allocate(charged); });
  }

  /// Takes device bytes back at once: nothing on the device uses them any more.
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    state_->on.deallocate(pointer, align_up(size_bytes, alignment_bytes_max));
    state_->limit.give_back(align_up(size_bytes, alignment_bytes_max));
  }

  /// Gives device bytes for work enqueued on `stream` from now on; the host does not block.
  [[nodiscard]] void* allocate(stream_ref stream, std::size_t size_bytes, std::size_t alignment_bytes) const {
    return take(size_bytes, alignment_bytes, [&](std::size_t charged) { return state_->on.allocate(stream, charged); });
  }

  /// Takes device bytes back once `stream` has passed this point.
  void deallocate(stream_ref stream, void* pointer, std::size_t size_bytes,
                  std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    state_->on.deallocate(stream, pointer, align_up(size_bytes, alignment_bytes_max));
    state_->limit.give_back(align_up(size_bytes, alignment_bytes_max));
  }

  /// Gives the rest of the budget as one range.
  ///
  /// Gives   a slab that grows, of a device that has address ranges: its memory comes with commit() and goes with
  ///         shrink(), in granules, the last of which may go beyond the budget by less than one (2 MiB on CUDA, where a
  ///         large allocation is rounded up to that too). Else, and where the rest is less than a granule, all of it
  ///         is allocated now; a note says so where the device is to blame
  /// Errors  out_of_memory where the device has less free, now or from commit(); usage_error where nothing is left
  [[nodiscard]] slab make_slab() const { return std::move(make_slabs(1).front()); }

  /// Gives the rest of the budget as several ranges, each as long as all of it; one where memory does not grow. It is
  /// charged until the last of them is gone.
  ///
  /// Needs   count > 0. Together no more is committed than one of them holds
  /// Errors  as make_slab()
  [[nodiscard]] std::vector<slab> make_slabs(std::size_t count) const {
    const std::size_t rest = state_->limit.take_rest();
    const std::size_t size = align_down(rest, alignment_bytes_max);
    state_->limit.give_back(rest - size);
    if (size == 0) {
      throw usage_error(name() + ": nothing is left of its budget of " + format_bytes(state_->limit.limit_bytes()) +
                        ", a tier needs at least 256 bytes");
    }
    const std::shared_ptr<void> charge{nullptr, [owner = state_, size](void*) { owner->limit.give_back(size); }};
    slab_properties properties;
    properties.name = name();
    properties.kind = kind;
    properties.size_bytes = size;
    properties.place = state_->on.name();
    std::vector<slab> result;
    std::string unable = state_->options.grows ? "its device" : "";
    if constexpr (growable_device<Device>) {
      while (state_->options.grows && result.size() < count) {
        auto range = make_range(size);
        unable = range ? "" : "the driver of " + state_->on.name();
        if (!range || range->granule_bytes() > size) break;
        properties.grows = true;
        properties.granule_bytes = range->granule_bytes();
        result.emplace_back(properties, std::make_unique<growing<typename Device::range>>(charge, std::move(*range)));
      }
    }
    if (!result.empty()) return result;
    if (!unable.empty()) {
      state_->remarks.say(name() + ": " + unable + " has no memory that grows; a slab takes all of its " +
                          format_bytes(size) + " at once");
    }
    result.emplace_back(properties, std::make_unique<backing>(charge, state_, size));
    return result;
  }

  /// Whether a slab of what is left of the budget would grow.
  ///
  /// Errors  as make_slab()
  /// Cost    that of a few addresses from the device
  [[nodiscard]] bool grows() const {
    if constexpr (growable_device<Device>) {
      const std::size_t size = align_down(free_bytes(), alignment_bytes_max);
      if (!state_->options.grows || size == 0) return false;
      const auto range = make_range(size);
      return range && range->granule_bytes() <= size;
    } else {
      return false;
    }
  }

  [[nodiscard]] const Device& on() const noexcept { return state_->on; }
  [[nodiscard]] const std::string& name() const noexcept { return state_->limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return state_->limit.free_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return state_->limit.limit_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return state_->limit.peak_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->remarks.list(); }

  friend bool operator==(const hbm& a, const hbm& b) noexcept { return a.state_ == b.state_; }

 private:
  struct state {
    state(Device d, const hbm_options& wanted) : on{std::move(d)}, options{wanted}, limit{wanted.name, wanted.budget} {}
    Device on;
    hbm_options options;
    budget limit;
    vtier::notes remarks;
  };

  class backing final : public detail::slab_backing {
   public:
    backing(std::shared_ptr<void> charge, std::shared_ptr<state> owner, std::size_t size_bytes)
        : charge_{std::move(charge)},
          owner_{std::move(owner)},
          size_bytes_{size_bytes},
          pointer_{owner_->on.allocate(size_bytes)} {}
    ~backing() override { owner_->on.deallocate(pointer_, size_bytes_); }
    std::byte* base() override { return static_cast<std::byte*>(pointer_); }

   private:
    std::shared_ptr<void> charge_;
    std::shared_ptr<state> owner_;
    std::size_t size_bytes_;
    void* pointer_;
  };

  template <class Range>
  class growing final : public detail::slab_backing {
   public:
    growing(std::shared_ptr<void> charge, Range range) : charge_{std::move(charge)}, range_{std::move(range)} {}
    std::byte* base() override { return range_.base(); }
    void commit(std::size_t end_bytes) override { range_.grow(end_bytes); }
    void shrink(std::size_t end_bytes) noexcept override { range_.shrink(end_bytes); }

   private:
    std::shared_ptr<void> charge_;  // goes after the range
    Range range_;
  };

  [[nodiscard]] auto make_range(std::size_t size_bytes) const requires growable_device<Device> {
    constexpr std::size_t steps_max = 1024;
    const std::size_t wanted = state_->options.granule_bytes;
    return state_->on.make_range(size_bytes, wanted != 0 ? wanted : size_bytes / steps_max);
  }

  template <class Allocate>
  void* take(std::size_t size_bytes, std::size_t alignment_bytes, Allocate&& from_device) const {
    detail::check_alignment(name(), alignment_bytes);
    if (alignment_bytes > alignment_bytes_max) {
      throw usage_error(name() + ": device memory is aligned to 256 bytes, asked " + std::to_string(alignment_bytes));
    }
    if (size_bytes == 0) return nullptr;
    const auto charged = checked_align_up(size_bytes, alignment_bytes_max);
    if (!charged) throw state_->limit.exceeded(size_bytes);
    if (!state_->limit.try_take(*charged)) throw state_->limit.exceeded(size_bytes);
    try {
      return from_device(*charged);
    } catch (...) {
      state_->limit.give_back(*charged);
      throw;
    }
  }

  std::shared_ptr<state> state_;
};

}  // namespace vtier
