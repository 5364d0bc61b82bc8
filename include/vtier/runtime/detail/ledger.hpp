// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tensors may come to need: checked when a tensor is made, so that hour three brings no surprise.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
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
  using evictor<Device, Eviction>::only_tier;

  block_type& create(role what, std::size_t size_bytes, std::optional<placement_rule> rule) {
    if (size_bytes > 0) promise(size_bytes, tiers_of(rule ? *rule : this->limits.place.of(what)));
    block_type& b = this->blocks.add(what, size_bytes);
    if (rule) this->own_rules.emplace(b.id(), *rule);
    this->counted.tensor_bytes += size_bytes;
    ++this->counted.tensor_count;
    this->counted.tensor_peak_bytes = (std::max)(this->counted.tensor_peak_bytes, this->counted.tensor_bytes);
    return b;
  }

  void destroy(block_type& b) noexcept {
    if (b.size_bytes() > 0) {
      const std::size_t need = rounded(b.size_bytes());
      this->promised_bytes -= need;
      bound_tensors& bound = promised_to_.find(tiers_of(this->rule_of(b)))->second;
      bound.bytes -= need;
      if (bound.bytes == 0) bound.largest_bytes = 0;
      if (this->promised_bytes == 0) this->largest_bytes = 0;
    }
    this->own_rules.erase(b.id());
    this->forget_failures(b);
    this->counted.tensor_bytes -= b.size_bytes();
    --this->counted.tensor_count;
    b.dying = true;
    for (std::size_t i = 0; i < b.tier_count(); ++i) this->cancel_reads(b, i);
    this->reclaim(b);
  }

  /// The error of a request that no eviction can serve: what was asked, what is free, who holds the rest.
  [[nodiscard]] out_of_memory no_room(std::size_t where, std::size_t asked_bytes, const char* asked = "tensor") const {
    const auto& t = this->tiers[where];
    std::array<std::size_t, role_count> leased{};
    std::string list;
    std::size_t listed = 0;
    std::size_t staying_bytes = 0;
    for (const auto& [offset, b] : this->blocks.in(where)) {
      const auto& r = b->in(where);
      if (only_tier(*b) == where) staying_bytes += r.size_bytes;
      if (r.leases == 0) continue;
      leased[static_cast<std::size_t>(b->what())] += r.size_bytes;
      if (++listed <= 8) {
        list += (list.empty() ? "" : ", ") + ("#" + std::to_string(b->id()) + " ") + std::string{name(b->what())} +
                " " + format_bytes(b->size_bytes());
      }
    }
    if (listed > 8) list += ", and " + std::to_string(listed - 8) + " more";
    std::string by_role;
    for (const role what : all_roles) {
      const std::size_t bytes = leased[static_cast<std::size_t>(what)];
      if (bytes > 0) by_role += (by_role.empty() ? "" : ", ") + std::string{name(what)} + " " + format_bytes(bytes);
    }
    const std::size_t free = t.map.free_bytes() + (t.budget_bytes() - t.map.capacity_bytes());
    std::string text = t.name() + ": asked " + format_bytes(asked_bytes) + ", free " + format_bytes(free) +
                       " (largest piece " + format_bytes(t.map.largest_free_bytes()) + ") of a budget of " +
                       format_bytes(t.budget_bytes());
    if (t.staging_bytes > 0) text += " with staging of " + format_bytes(t.staging_bytes);
    if (t.reserved_bytes > 0) text += "; reserved: " + format_bytes(t.reserved_bytes);
    text += listed > 0 ? "; leased: " + by_role + " (" + list + ")" : "; nothing is leased";
    if (staying_bytes > 0) text += "; " + format_bytes(staying_bytes) + " are tensors that may live nowhere else";
    if (!t.refusal.empty()) text += "; " + t.refusal;
    if (asked_bytes > t.budget_bytes() - t.staging_bytes) {
      text += std::string{": the "} + asked + " is larger than the tier; raise its budget or split the " + asked;
    } else if (asked_bytes > this->capacities()[where]) {
      text += ": end reservations sooner, or raise the budget";
    } else if (listed > 0) {
      text += ": end leases sooner, raise the budget, or give the tiers below more room";
    } else {
      text += ": raise the budget, or give the tiers below more room";
    }
    return {t.name(), asked_bytes, free, text};
  }

  /// The fastest tier in host memory, else in files, that the block may live in and that could hold it; before it one
  /// in host memory that has the bytes.
  ///
  /// Errors  out_of_memory, usage_error where there is none
  [[nodiscard]] std::size_t host_tier(const block_type& b) const {
    const auto capacities = this->capacities();
    const placement_rule& rule = this->rule_of(b);
    std::optional<std::size_t> found;
    std::optional<std::size_t> too_small;
    for (const memory_kind kind : {memory_kind::host, memory_kind::file}) {
      for (std::size_t i = 0; i < this->tiers.size(); ++i) {
        if (this->tiers[i].memory.kind() != kind || !rule.allows(i)) continue;
        if (b.size_bytes() > capacities[i]) {
          if (!too_small) too_small = i;
        } else if (!found || (kind == memory_kind::host && b.current(i) && !b.current(*found))) {
          found = i;  // where the bytes are already, nothing has to move
        }
      }
      if (found) return *found;
    }
    if (too_small) throw this->no_room(*too_small, b.size_bytes());
    throw usage_error(
        "a lease for the host was asked, but no tier that the tensor may live in is in host memory or files: copy from "
        "a lease on a stream, or allow such a tier");
  }

 protected:
  using gap_list = std::vector<std::vector<std::size_t>>;  // what reservations leave of each tier, piece by piece

  [[nodiscard]] gap_list gaps() const {
    gap_list result;
    for (const auto& t : this->tiers) result.push_back(t.gaps());
    return result;
  }

  /// Whether all tensors that exist keep what they were promised where tiers have only these pieces for them.
  [[nodiscard]] bool keeps_promises(const gap_list& pieces) const {
    if (this->promised_bytes == 0) return true;
    for (const auto& entry : promised_to_) {
      if (!fits(entry.first, 0, 0, pieces)) return false;
    }
    return fits(all_tiers(), 0, 0, pieces) && missing_bytes(this->promised_bytes, this->largest_bytes, pieces);
  }

  /// Reserves the space on the drive that the tensors come to need with these pieces.
  bool provide(std::size_t promised, std::size_t largest, const gap_list& pieces) {
    const auto missing = missing_bytes(promised, largest, pieces);
    return missing && (*missing == 0 || this->grow(lazy_tier(), *missing));
  }
  bool provide(const gap_list& pieces) {
    return this->promised_bytes == 0 || provide(this->promised_bytes, this->largest_bytes, pieces);
  }

 private:
  [[nodiscard]] std::size_t lazy_tier() const noexcept {
    std::size_t lazy = this->tiers.size();
    for (std::size_t i = 0; i < this->tiers.size(); ++i) {
      if (this->tiers[i].memory.properties().lazy) lazy = i;
    }
    return lazy;
  }

  // What of a tier counts: a tensor may leave a rest in every piece, the last but one.
  [[nodiscard]] static std::size_t usable(const std::vector<std::size_t>& pieces, std::size_t largest) noexcept {
    if (pieces.size() == 1) return pieces.front();
    std::size_t sum = 0;
    std::size_t count = 0;
    for (const std::size_t piece : pieces) {
      if (piece < largest) continue;
      sum += piece;
      ++count;
    }
    return count == 0 ? 0 : sum - (count - 1) * largest;
  }

  // Where a tier is in files: the space that it must get beyond what it has; empty where its budget has no room for it.
  // Places are pieces of address space, so each other tier is counted in wholes of the largest tensor, and one more of
  // these belongs to it, because one leaves before another comes.
  [[nodiscard]] std::optional<std::size_t> missing_bytes(std::size_t promised, std::size_t largest,
                                                         const gap_list& pieces) const {
    const std::size_t lazy = lazy_tier();
    if (lazy == this->tiers.size()) return 0;
    std::size_t upper = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!this->tiers[i].memory.properties().lazy) upper += usable(pieces[i], largest) / largest * largest;
    }
    const std::size_t below = promised > upper ? promised - upper : 0;
    const std::size_t wanted = below + (below > 0 || upper - promised < largest ? largest : 0);
    const auto& t = this->tiers[lazy];
    const std::size_t committed = t.map.capacity_bytes();
    if (wanted <= committed) return 0;
    if (align_up(wanted - committed, t.map.granule_bytes()) > t.budget_bytes() - committed) return std::nullopt;
    return wanted - committed;
  }

  [[nodiscard]] std::size_t rounded(std::size_t size_bytes) const {
    std::size_t granule = 1;
    for (const auto& t : this->tiers) granule = (std::max)(granule, t.map.granule_bytes());
    return checked_align_up(size_bytes, granule).value_or(size_bytes);
  }

  // Makes sure before a tensor exists that there will be a place for it. Where a tier is in files, space for all that
  // the others may not be able to hold is reserved now.
  void promise(std::size_t size_bytes, std::uint32_t allowed) {
    const std::size_t need = rounded(size_bytes);
    const auto pieces = gaps();
    const auto capacities = this->capacities();
    const std::size_t largest = (std::max)(this->largest_bytes, need);
    std::size_t largest_capacity = 0;
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      if ((allowed >> i & 1U) != 0) largest_capacity = (std::max)(largest_capacity, capacities[i]);
    }
    const auto promised = checked_add(this->promised_bytes, need);
    if (size_bytes > largest_capacity || !promised) throw refused(size_bytes, allowed, capacities);
    promised_to_.try_emplace(allowed);  // may fail, so before anything has changed
    for (const auto& entry : promised_to_) {
      if (!fits(entry.first, allowed, need, pieces)) throw refused(size_bytes, entry.first, capacities);
    }
    if (!fits(all_tiers(), allowed, need, pieces)) throw refused(size_bytes, all_tiers(), capacities);
    if (!provide(*promised, largest, pieces)) throw refused(size_bytes, allowed, capacities);
    bound_tensors& bound = promised_to_[allowed];
    bound.bytes += need;
    bound.largest_bytes = (std::max)(bound.largest_bytes, need);
    this->promised_bytes = *promised;
    this->largest_bytes = largest;
  }

  // Whether the tiers of a set hold all tensors that are bound to them, a new one of `need` bytes for `allowed` tiers
  // included. With several tiers there must be room to exchange two tensors; a lazy tier sees to that itself.
  [[nodiscard]] bool fits(std::uint32_t set, std::uint32_t allowed, std::size_t need, const gap_list& pieces) const {
    std::size_t bound = 0;
    std::size_t largest = 0;
    const auto count = [&](std::uint32_t their_tiers, std::size_t bytes, std::size_t one_bytes) {
      if ((their_tiers & ~set) != 0) return;
      bound += bytes;
      largest = (std::max)(largest, one_bytes);
    };
    for (const auto& [their_tiers, tensors] : promised_to_) count(their_tiers, tensors.bytes, tensors.largest_bytes);
    count(allowed, need, need);
    if (bound == 0) return true;
    std::size_t whole = 0;  // in wholes of the largest tensor
    std::size_t raw = 0;
    bool first = true;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if ((set >> i & 1U) == 0) continue;
      const std::size_t capacity = usable(pieces[i], largest);
      // Nothing ever has to leave: all are there at once. Those that can also be elsewhere come back to pieces of any
      // order, which takes room for one more.
      const auto elsewhere = [&](std::size_t other) {
        return other != i && (set >> other & 1U) != 0 && this->largest_of(pieces[other]) >= largest;
      };
      bool apart = false;
      for (std::size_t other = 0; other < pieces.size(); ++other) apart = apart || elsewhere(other);
      if (std::exchange(first, false) && bound + (apart ? largest : 0) <= capacity) return true;
      if (this->tiers[i].memory.properties().lazy) return checked_add(raw, capacity).value_or(bound) >= bound;
      raw += capacity;
      whole += capacity / largest * largest;
    }
    return bound + largest <= whole;
  }

  [[nodiscard]] std::uint32_t all_tiers() const noexcept {
    return this->tiers.size() >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << this->tiers.size()) - 1U;
  }

  [[nodiscard]] std::uint32_t tiers_of(const placement_rule& rule) const noexcept {
    return rule.allowed_tiers & all_tiers();
  }

  out_of_memory refused(std::size_t size_bytes, std::uint32_t allowed,
                        const std::vector<std::size_t>& capacities) const {
    std::size_t total = 0;
    std::string list;
    std::string last = "no tier";
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      if ((allowed >> i & 1U) == 0) continue;
      total = checked_add(total, capacities[i]).value_or((std::numeric_limits<std::size_t>::max)());
      last = this->tiers[i].name();
      list += (list.empty() ? "" : ", ") + last + " " + format_bytes(capacities[i]);
      if (!this->tiers[i].refusal.empty()) list += " (" + this->tiers[i].refusal + ")";
    }
    const std::size_t free = total - (std::min)(total, this->promised_bytes);
    return {
        last, size_bytes, free,
        last + ": a tensor of " + format_bytes(size_bytes) + " has no place beside the tensors of " +
            format_bytes(this->promised_bytes) + " that exist; they may live in: " + list +
            " (without staging, and with room to exchange two tensors): raise a budget, add a tier, or free tensors"};
  }

  struct bound_tensors {
    std::size_t bytes = 0;
    std::size_t largest_bytes = 0;
  };
  std::map<std::uint32_t, bound_tensors> promised_to_;  // by the set of tiers that the tensors may live in
};

}  // namespace vtier::detail
