// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tensors may come to need: checked when a tensor is made, so that hour three brings no surprise.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/detail/evictor.hpp>

namespace vtier::detail {

/// State that knows which tensors there are.
///
/// Threads every member under `lock`
template <device Device, eviction_policy Eviction>
class ledger : public evictor<Device, Eviction> {
 public:
  using typename evictor<Device, Eviction>::block_type;
  using evictor<Device, Eviction>::evictor;

  block_type& create(role what, std::size_t size_bytes, std::optional<placement_rule> rule) {
    if (size_bytes > 0) promise(size_bytes, rule ? *rule : this->limits.place.of(what));
    block_type& b = this->blocks.add(what, size_bytes);
    if (rule) this->own_rules.emplace(b.id(), *rule);
    this->counted.tensor_bytes += size_bytes;
    ++this->counted.tensor_count;
    this->counted.tensor_peak_bytes = (std::max)(this->counted.tensor_peak_bytes, this->counted.tensor_bytes);
    return b;
  }

  void destroy(block_type& b) noexcept {
    this->own_rules.erase(b.id());
    this->forget_failures(b);
    this->counted.tensor_bytes -= b.size_bytes();
    --this->counted.tensor_count;
    this->promised_bytes -= rounded(b.size_bytes());
    b.dying = true;
    for (std::size_t i = 0; i < b.tier_count(); ++i) this->cancel_reads(b, i);
    this->reclaim(b);
  }

 private:
  [[nodiscard]] std::size_t rounded(std::size_t size_bytes) const {
    std::size_t granule = 1;
    for (const auto& t : this->tiers) granule = (std::max)(granule, t.map.granule_bytes());
    return checked_align_up(size_bytes, granule).value_or(size_bytes);
  }

  // Makes sure before a tensor exists that there will be a place for it. Where a tier is in files, space for all that
  // the others may not be able to hold is reserved now: places are pieces of address space, so each tier is counted in
  // wholes of the largest tensor, and one more of these belongs to it, because one leaves before another comes.
  void promise(std::size_t size_bytes, const placement_rule& rule) {
    const std::size_t need = rounded(size_bytes);
    const auto capacities = this->capacities();
    const std::size_t largest = (std::max)(this->largest_bytes, need);
    std::size_t total = 0;
    std::size_t upper = 0;
    std::size_t largest_capacity = 0;
    std::size_t lazy = this->tiers.size();
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      total = checked_add(total, capacities[i]).value_or((std::numeric_limits<std::size_t>::max)());
      if (rule.allows(i)) largest_capacity = (std::max)(largest_capacity, capacities[i]);
      if (this->tiers[i].memory.properties().lazy) {
        lazy = i;
      } else {
        upper += capacities[i] / largest * largest;
      }
    }
    const auto promised = checked_add(this->promised_bytes, need);
    if (size_bytes > largest_capacity || !promised || *promised > total) throw refused(size_bytes, total, capacities);
    if (lazy < this->tiers.size()) {
      const std::size_t below = *promised > upper ? *promised - upper : 0;
      const std::size_t wanted = below + (below > 0 || upper - *promised < largest ? largest : 0);
      const std::size_t committed = this->tiers[lazy].map.capacity_bytes();
      if (wanted > committed && !this->grow(lazy, wanted - committed)) throw refused(size_bytes, total, capacities);
    }
    this->promised_bytes = *promised;
    this->largest_bytes = largest;
  }

  out_of_memory refused(std::size_t size_bytes, std::size_t total, const std::vector<std::size_t>& capacities) const {
    std::string list;
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      list += (list.empty() ? "" : ", ") + this->tiers[i].name() + " " + format_bytes(capacities[i]);
      if (!this->tiers[i].refusal.empty()) list += " (" + this->tiers[i].refusal + ")";
    }
    const std::size_t free = total - (std::min)(total, this->promised_bytes);
    const std::string which = this->tiers.back().name();
    return {which, size_bytes, free,
            which + ": a tensor of " + format_bytes(size_bytes) + " fits in no tier beside the tensors of " +
                format_bytes(this->promised_bytes) + " that exist (" + list +
                " without staging): raise a budget, add a tier, or free tensors"};
  }
};

}  // namespace vtier::detail
