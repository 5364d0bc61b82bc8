// SPDX-License-Identifier: Apache-2.0
#pragma once

// All blocks of a hierarchy, and for each tier the blocks that have a place there, in order of address.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/residency/block.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// The blocks of a hierarchy.
///
/// Threads the hierarchy's lock
/// Cost    O(log n)
template <class Event>
class table {
 public:
  using block_type = block<Event>;

  explicit table(std::size_t tier_count) : by_address_(tier_count) {}

  /// Adds a block; its address does not change until it is removed.
  block_type& add(role what, std::size_t size_bytes) {
    const std::uint64_t id = ++last_id_;
    auto owner = std::make_unique<block_type>(id, what, size_bytes, by_address_.size());
    block_type& added = *owner;
    blocks_.emplace(id, std::move(owner));
    return added;
  }

  /// Removes a block that has no place in any tier.
  void remove(block_type& gone) noexcept {
    for (std::size_t tier = 0; tier < by_address_.size(); ++tier) {
      VTIER_ASSERT(gone.in(tier).absent(), "a block was removed that still has a place");
    }
    blocks_.erase(gone.id());
  }

  /// The block of that number, null where it is gone.
  [[nodiscard]] block_type* find(std::uint64_t id) noexcept {
    const auto at = blocks_.find(id);
    return at == blocks_.end() ? nullptr : at->second.get();
  }

  /// Notes that a block has got a place in a tier.
  ///
  /// Needs   a place that no other block has (asserted)
  void placed(std::size_t tier, block_type& b) {
    const bool added = by_address_[tier].emplace(b.in(tier).offset_bytes, &b).second;
    VTIER_ASSERT(added, "two blocks in one place");
  }

  /// Notes that a block leaves its place in a tier.
  ///
  /// Needs   that it was placed there (asserted)
  void left(std::size_t tier, const block_type& b) noexcept {
    const auto at = by_address_[tier].find(b.in(tier).offset_bytes);
    VTIER_ASSERT(at != by_address_[tier].end() && at->second == &b, "a block left a place that it does not have");
    by_address_[tier].erase(at);
  }

  /// Gives a block another place in a tier where it has one.
  ///
  /// Needs   a place that no other block has (asserted)
  void moved(std::size_t tier, block_type& b, std::size_t offset_bytes) noexcept {
    auto node = by_address_[tier].extract(b.in(tier).offset_bytes);
    VTIER_ASSERT(!node.empty() && node.mapped() == &b, "a block was moved from a place that it does not have");
    node.key() = offset_bytes;
    b.in(tier).offset_bytes = offset_bytes;
    const bool added = by_address_[tier].insert(std::move(node)).inserted;
    VTIER_ASSERT(added, "two blocks in one place");
  }

  /// The blocks of a tier in order of address.
  [[nodiscard]] const std::map<std::size_t, block_type*>& in(std::size_t tier) const noexcept {
    return by_address_[tier];
  }

  /// All blocks, in no order.
  template <class Function>
  void for_each(Function&& function) const {
    for (const auto& entry : blocks_) function(*entry.second);
  }

  [[nodiscard]] std::size_t size() const noexcept { return blocks_.size(); }

  /// The number of the block that was added last; numbers rise.
  [[nodiscard]] std::uint64_t last_id() const noexcept { return last_id_; }

 private:
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::unique_ptr<block_type>> blocks_;
  std::vector<std::map<std::size_t, block_type*>> by_address_;
};

}  // namespace vtier
