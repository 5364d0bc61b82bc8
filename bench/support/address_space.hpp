// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that is addresses and nothing else, as device memory is to the host: what an allocator that never touches its
// blocks can be measured on, with terabytes of them on any machine.
//
// Addresses are reserved without access rights, so a touch is a crash and never a page that somebody pays for. What the
// allocator above takes is counted, as it would have to be paid for on a device.

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier::bench {

/// Addresses that nobody may touch.
///
/// Units   bytes
class address_range {
 public:
  /// Errors  std::system_error
  explicit address_range(std::size_t size_bytes) : size_bytes_{size_bytes} {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const got = ::mmap(nullptr, size_bytes, PROT_NONE, flags, -1, 0);
    if (got == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "addresses for a bench");
    base_ = static_cast<std::byte*>(got);
  }
  address_range(const address_range&) = delete;
  address_range& operator=(const address_range&) = delete;
  ~address_range() { ::munmap(base_, size_bytes_); }

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  std::size_t size_bytes_;
  std::byte* base_ = nullptr;
};

/// A resource of addresses.
///
/// Units   bytes; whole pages of 4 KiB are charged to the budget
/// Errors  out_of_memory from the budget or where the system has no addresses
/// Threads any
class address_space {
 public:
  static constexpr memory_kind kind = memory_kind::device;

  explicit address_space(std::size_t budget_bytes) : state_{std::make_shared<state>(budget_bytes)} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    if (!is_power_of_two(alignment_bytes) || alignment_bytes > page_bytes) {
      throw usage_error(name() + ": addresses come aligned to 4096 bytes, asked " + std::to_string(alignment_bytes));
    }
    if (size_bytes == 0) return nullptr;
    const auto charged = checked_align_up(size_bytes, page_bytes);
    if (!charged || !state_->limit.try_take(*charged)) throw state_->limit.exceeded(size_bytes);
    void* got = nullptr;
    try {
      const std::scoped_lock hold{state_->lock};
      got = state_->cut(*charged);
    } catch (const std::system_error&) {
    }
    if (got == nullptr) {
      state_->limit.give_back(*charged);
      throw state_->limit.exceeded(size_bytes);
    }
    state_->committed_bytes += *charged;
    return got;
  }

  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    const std::size_t charged = align_up(size_bytes, page_bytes);
    {
      const std::scoped_lock hold{state_->lock};
      state_->returned[charged].push_back(pointer);
    }
    state_->committed_bytes -= charged;
    state_->limit.give_back(charged);
  }

  /// Gives the rest of the budget as one range; slab::commit is counted and does nothing.
  [[nodiscard]] slab make_slab() const { return std::move(make_slabs(1).front()); }

  /// Gives the rest of the budget as several ranges, each as long as all of it.
  [[nodiscard]] std::vector<slab> make_slabs(std::size_t count) const {
    const std::size_t rest = state_->limit.take_rest();
    const std::shared_ptr<void> charge{nullptr, [owner = state_, rest](void*) { owner->limit.give_back(rest); }};
    if (rest == 0) throw usage_error(name() + ": nothing is left of its budget");
    slab_properties properties;
    properties.name = name();
    properties.kind = kind;
    properties.size_bytes = align_down(rest, 256);
    properties.lazy = true;
    std::vector<slab> result;
    while (result.size() < count) {
      result.emplace_back(properties, std::make_unique<backing>(charge, state_, rest));
    }
    return result;
  }

  [[nodiscard]] bool grows() const noexcept { return true; }

  [[nodiscard]] const std::string& name() const noexcept { return state_->limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return state_->limit.free_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }

  /// The bytes that were asked to exist: by slab::commit, and by allocations that live.
  [[nodiscard]] std::size_t committed_bytes() const noexcept { return state_->committed_bytes; }

  friend bool operator==(const address_space& a, const address_space& b) noexcept { return a.state_ == b.state_; }

 private:
  static constexpr std::size_t page_bytes = 4096;

  struct state {
    explicit state(std::size_t budget_bytes) : limit{"addresses", budget_bytes} {}

    // Single allocations come out of one range, and what is given back serves requests of the same size: many mappings
    // of their own would meet the kernel's limit on their number. Null where the range is used up.
    void* cut(std::size_t size_bytes) {
      auto& fitting = returned[size_bytes];
      if (!fitting.empty()) {
        void* const got = fitting.back();
        fitting.pop_back();
        return got;
      }
      constexpr std::size_t most_bytes = std::size_t{64} << 40U;  // in one piece a program has little more
      if (!range) range.emplace(limit.limit_bytes() > most_bytes / 2 ? most_bytes : 2 * limit.limit_bytes());
      if (size_bytes > range->size_bytes() - cut_bytes) return nullptr;
      cut_bytes += size_bytes;
      return range->base() + cut_bytes - size_bytes;
    }

    budget limit;
    std::atomic<std::size_t> committed_bytes{0};
    std::mutex lock;
    std::optional<address_range> range;
    std::size_t cut_bytes = 0;
    std::unordered_map<std::size_t, std::vector<void*>> returned;  // by size
  };

  struct backing final : vtier::detail::slab_backing {
    backing(std::shared_ptr<void> charged, std::shared_ptr<state> from, std::size_t size_bytes)
        : charge{std::move(charged)}, owner{std::move(from)}, range{size_bytes} {}
    ~backing() override { owner->committed_bytes -= committed; }
    std::byte* base() override { return range.base(); }
    void commit(std::size_t end_bytes) override {
      if (end_bytes <= committed) return;
      owner->committed_bytes += end_bytes - committed;
      committed = end_bytes;
    }
    void shrink(std::size_t end_bytes) noexcept override {
      if (end_bytes >= committed) return;
      owner->committed_bytes -= committed - end_bytes;
      committed = end_bytes;
    }
    std::shared_ptr<void> charge;
    std::shared_ptr<state> owner;
    address_range range;
    std::size_t committed = 0;
  };

  std::shared_ptr<state> state_;
};

static_assert(resource<address_space>);

}  // namespace vtier::bench
