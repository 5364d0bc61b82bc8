// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moving blocks within a tier, so that free pieces become one; and which blocks can only do that.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/runtime/detail/mover.hpp>

namespace vtier::detail {

/// State that can move blocks within a tier.
///
/// Threads every member under `lock`
template <device Device>
class packer : public mover<Device> {
 public:
  using typename mover<Device>::event;
  using typename mover<Device>::block_type;
  using mover<Device>::mover;

  /// The rule of a block: its own, or that of its role.
  [[nodiscard]] const placement_rule& rule_of(const block_type& b) const {
    const auto at = own_rules.find(b.id());
    return at == own_rules.end() ? this->limits.place.of(b.what()) : at->second;
  }

  /// The one tier that a block may live in, where that is one and holds a fixed number of bytes.
  [[nodiscard]] std::optional<std::size_t> only_tier(const block_type& b) const {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < this->tiers.size(); ++i) {
      if (!rule_of(b).allows(i) || b.size_bytes() > this->tiers[i].budget_bytes()) continue;
      if (found) return std::nullopt;
      found = i;
    }
    const bool keeps = found && b.size_bytes() > 0 && !this->tiers[*found].memory.properties().lazy;
    return keeps ? found : std::nullopt;
  }

  /// Moves the blocks of a host tier together. The host moves the bytes itself: that cannot fail half-way, which no
  /// copy of a device onto itself can promise.
  ///
  /// Gives   whether blocks stayed apart for events that will pass
  /// Errors  device_error; then some have moved and nothing is lost
  bool slide_down(std::size_t where) {
    auto& t = this->tiers[where];
    const auto passed = [this](const event& e) { return this->on.passed(e); };
    bool waits = false;
    for (block_type* const b : blocks_in(where)) {
      auto& r = b->in(where);
      if (!r.idle()) continue;
      forget_passed(r.written, passed);
      forget_passed(r.readers, passed);
      if (!r.written.empty() || !r.readers.empty()) {
        waits = true;
        continue;
      }
      const auto target = t.map.slide_down(r.offset_bytes, r.size_bytes, passed);
      if (!target) continue;
      std::memmove(t.memory.base() + *target, t.memory.base() + r.offset_bytes, b->size_bytes());
      this->blocks.moved(where, *b, *target);
      ++this->changes;
    }
    return t.map.waits(passed) || waits;
  }

  /// Moves a block within a device's tier to the highest free piece above it, in stream order.
  ///
  /// Errors  device_error; then it is where it was
  void move_up(block_type& b, std::size_t where) {
    auto& t = this->tiers[where];
    auto& r = b.in(where);
    const auto passed = [this](const event& e) { return this->on.passed(e); };
    auto taken = t.map.take(r.size_bytes, passed, range_end::highest);
    if (!taken) return;
    const bool above = taken->offset_bytes > r.offset_bytes;
    std::vector<event> arrival;
    try {
      if (above && b.current(where)) arrival = this->copy_within(b, where, taken->offset_bytes, taken->uses);
    } catch (...) {
      t.map.give_back(taken->offset_bytes, taken->size_bytes, std::move(taken->uses));
      throw;
    }
    if (!above) return t.map.give_back(taken->offset_bytes, taken->size_bytes, std::move(taken->uses));
    const std::size_t old_offset = r.offset_bytes;
    std::vector<event> old_uses = r.uses();
    old_uses.insert(old_uses.end(), arrival.begin(), arrival.end());
    r.written = b.current(where) ? std::move(arrival) : std::move(taken->uses);
    r.readers.clear();
    this->blocks.moved(where, b, taken->offset_bytes);
    ++this->changes;
    t.map.give_back(old_offset, r.size_bytes, std::move(old_uses));
  }

  /// The blocks in a tier that nothing holds at present, from the highest on.
  [[nodiscard]] std::vector<block_type*> movable_blocks(std::size_t where) const {
    std::vector<block_type*> result = blocks_in(where);
    std::erase_if(result, [&](const block_type* b) { return !b->in(where).idle(); });
    std::reverse(result.begin(), result.end());
    return result;
  }

  std::map<std::uint64_t, placement_rule> own_rules;

 private:
  [[nodiscard]] std::vector<block_type*> blocks_in(std::size_t where) const {
    std::vector<block_type*> result;
    for (const auto& entry : this->blocks.in(where)) result.push_back(entry.second);
    return result;
  }
};

}  // namespace vtier::detail
