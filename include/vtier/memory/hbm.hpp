// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device's own memory, under a budget: the fastest tier.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// Limits of an `hbm` resource.
struct hbm_options {
  std::size_t budget = 0;    // bytes
  std::string name = "hbm";  // in messages and reports
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
  /// Errors  out_of_memory where the device has less free; usage_error where nothing is left
  [[nodiscard]] slab make_slab() const {
    const std::size_t rest = state_->limit.take_rest();
    const std::size_t size = align_down(rest, alignment_bytes_max);
    state_->limit.give_back(rest - size);
    if (size == 0) {
      throw usage_error(name() + ": nothing is left of its budget of " + format_bytes(state_->limit.limit_bytes()) +
                        ", a tier needs at least 256 bytes");
    }
    std::unique_ptr<backing> owner;
    try {
      owner = std::make_unique<backing>(state_, size);
    } catch (...) {
      state_->limit.give_back(size);
      throw;
    }
    slab_properties properties;
    properties.name = name();
    properties.kind = kind;
    properties.size_bytes = size;
    properties.place = state_->on.name();
    return {std::move(properties), std::move(owner)};
  }

  [[nodiscard]] const Device& on() const noexcept { return state_->on; }
  [[nodiscard]] const std::string& name() const noexcept { return state_->limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return state_->limit.free_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return state_->limit.limit_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return state_->limit.peak_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }

  friend bool operator==(const hbm& a, const hbm& b) noexcept { return a.state_ == b.state_; }

 private:
  struct state {
    state(Device d, const hbm_options& options) : on{std::move(d)}, limit{options.name, options.budget} {}
    Device on;
    budget limit;
  };

  class backing final : public detail::slab_backing {
   public:
    backing(std::shared_ptr<state> owner, std::size_t size_bytes)
        : owner_{std::move(owner)}, size_bytes_{size_bytes}, pointer_{owner_->on.allocate(size_bytes)} {}
    ~backing() override {
      owner_->on.deallocate(pointer_, size_bytes_);
      owner_->limit.give_back(size_bytes_);
    }
    std::byte* base() override { return static_cast<std::byte*>(pointer_); }

   private:
    std::shared_ptr<state> owner_;
    std::size_t size_bytes_;
    void* pointer_;
  };

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
