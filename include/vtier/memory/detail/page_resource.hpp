// SPDX-License-Identifier: Apache-2.0
#pragma once

// A resource over host pages: what `numa` and `pinned` share.
//
// They differ in the pages they ask for (locked or not) and in who gives them (the system, or a device's runtime). The
// way to get and to return pages is a pair of functions in the shared state.

#include <sys/mman.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/detail/pages.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/topology/memory_limit.hpp>
#include <vtier/topology/numa.hpp>

namespace vtier::detail {

/// Shared state of a host resource.
struct page_state {
  page_state(page_request r, std::size_t budget_bytes) : request{std::move(r)}, limit{request.name, budget_bytes} {
    request.budget_bytes = budget_bytes;
    const auto allowed = group_memory_limit(request.roots);
    if (allowed && budget_bytes > allowed->size_bytes) {
      remarks.say(request.name + ": its budget of " + format_bytes(budget_bytes) + " is more than the " +
                  format_bytes(allowed->size_bytes) + " that this process's group may use (" + allowed->file +
                  "): not all of it can be had");
    }
  }

  page_request request;
  budget limit;
  notes remarks;
  // Where a device's runtime gives the memory; empty otherwise.
  std::function<void*(std::size_t)> device_allocate;
  std::function<void(void*, std::size_t)> device_deallocate;

  void* map(std::size_t size_bytes, std::size_t alignment_bytes) {
    if (!device_allocate) return map_pages(size_bytes, alignment_bytes, request, remarks);
    if (alignment_bytes > page_bytes()) {
      throw usage_error(request.name + ": the device's runtime aligns host memory to " + format_bytes(page_bytes()) +
                        ", asked " + format_bytes(alignment_bytes));
    }
    check_pages(size_bytes, request);
    return device_allocate(pages_size(size_bytes));
  }
  void unmap(void* pointer, std::size_t size_bytes) noexcept {
    if (device_deallocate) {
      device_deallocate(pointer, pages_size(size_bytes));
    } else {
      unmap_pages(pointer, size_bytes);
    }
  }
};

/// The slab of a host resource: its pages and its share of the budget, both returned together. Drives write into it, so
/// that a forked child does not get it: there nothing is returned either, the addresses may be somebody else's.
class page_slab final : public slab_backing {
 public:
  page_slab(std::shared_ptr<page_state> state, std::size_t size_bytes)
      : state_{std::move(state)}, size_bytes_{size_bytes} {
    pointer_ = state_->map(size_bytes_, page_bytes());
    if (!state_->device_allocate) keep_from_children(pointer_, size_bytes_);
  }
  ~page_slab() override {
    if (!home_.here()) return;
    state_->unmap(pointer_, size_bytes_);
    state_->limit.give_back(size_bytes_);
  }
  std::byte* base() override { return static_cast<std::byte*>(pointer_); }
  // New pages come at the next touch, bound as the old ones. Locked pages stay: the system refuses to take them, and
  // those of a device's runtime are not asked for.
  void shrink(std::size_t end_bytes) noexcept override {
    const std::size_t end = align_up(end_bytes, page_bytes());
    if (end >= size_bytes_ || state_->device_allocate || !home_.here()) return;
    ::madvise(base() + end, size_bytes_ - end, MADV_DONTNEED);
  }

 private:
  process_mark home_;
  std::shared_ptr<page_state> state_;
  std::size_t size_bytes_;
  void* pointer_;
};

/// The members that `numa` and `pinned` have in common; see the concept `resource` for what they mean.
class page_resource {
 public:
  static constexpr memory_kind kind = memory_kind::host;

  /// Gives whole pages.
  ///
  /// Units   bytes; whole pages are charged to the budget
  /// Errors  out_of_memory, usage_error; nothing is charged then
  /// Cost    a dozen system calls for each, among them the reading of limits; use `pool` for many
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    check_alignment(name(), alignment_bytes);
    if (size_bytes == 0) return nullptr;
    const std::size_t charged = pages_size(size_bytes);
    if (charged == 0) throw state_->limit.exceeded(size_bytes);
    if (!state_->limit.try_take(charged)) throw state_->limit.exceeded(size_bytes);
    try {
      return state_->map(size_bytes, alignment_bytes);
    } catch (...) {
      state_->limit.give_back(charged);
      throw;
    }
  }

  /// Takes pages back.
  ///
  /// Needs   the numbers that they were asked with
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    state_->unmap(pointer, size_bytes);
    state_->limit.give_back(pages_size(size_bytes));
  }

  /// Gives the rest of the budget as one range; where pages are locked they are there at once.
  ///
  /// Errors  out_of_memory where the machine has less; usage_error where nothing is left
  [[nodiscard]] slab make_slab() const {
    const std::size_t rest = state_->limit.take_rest();
    const std::size_t size = align_down(rest, page_bytes());
    state_->limit.give_back(rest - size);
    if (size == 0) {
      throw usage_error(name() + ": nothing is left of its budget of " + format_bytes(state_->limit.limit_bytes()) +
                        ", a tier needs at least one page");
    }
    std::unique_ptr<page_slab> backing;
    try {
      backing = std::make_unique<page_slab>(state_, size);
    } catch (...) {
      state_->limit.give_back(size);
      throw;
    }
    const auto& node = state_->request.node;
    if (node) {
      const auto share = page_node_share(backing->base(), size, *node);
      if (share && *share < 1.0) {
        state_->remarks.say(name() + ": " + std::to_string(static_cast<int>(*share * 100.0)) +
                            " % of its pages are on NUMA node " + std::to_string(*node) + ", the rest elsewhere");
      }
    }
    slab_properties properties;
    properties.name = name();
    properties.kind = memory_kind::host;
    properties.size_bytes = size;
    properties.registered = static_cast<bool>(state_->device_allocate);
    properties.node = node;
    properties.place = node ? "NUMA node " + std::to_string(*node) : "no particular NUMA node";
    return {std::move(properties), std::move(backing)};
  }

  [[nodiscard]] const std::string& name() const noexcept { return state_->limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return state_->limit.free_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return state_->limit.limit_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return state_->limit.peak_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->remarks.list(); }

  friend bool operator==(const page_resource& a, const page_resource& b) noexcept { return a.state_ == b.state_; }

 protected:
  explicit page_resource(std::shared_ptr<page_state> state) : state_{std::move(state)} {}
  page_state& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<page_state> state_;
};

}  // namespace vtier::detail
