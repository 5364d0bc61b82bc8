// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reservations: where in a tier they go, who waits for one, and how room comes to be.
//
// Requests for one tier are served in order of asking. The first has a place chosen for it; what is free there is taken
// for it at once and what is not is moved out, so that nobody gets in between. Room that is gathered like this counts
// as reserved already: a tensor is promised no more than what is left.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/runtime/detail/ledger.hpp>

namespace vtier::detail {

/// State that serves reservations.
///
/// Threads every member under `lock`
template <device Device, eviction_policy Eviction>
class reserver : public ledger<Device, Eviction> {
 public:
  using typename ledger<Device, Eviction>::event;
  using typename ledger<Device, Eviction>::block_type;
  using taken = taken_range<event>;

  reserver(Device device, std::vector<slab> slabs, options wanted)
      : ledger<Device, Eviction>{std::move(device), std::move(slabs), std::move(wanted)}, lines_(this->tiers.size()) {}

  /// A caller that waits for a reservation, in line from when it is made until it is destroyed.
  ///
  /// Needs   size_bytes as reservable_bytes() gives it
  class request {
   public:
    request(reserver& of, std::size_t tier, std::size_t size_bytes) : of_{&of}, tier_{tier}, size_bytes_{size_bytes} {
      of.lines_[tier].push_back(this);
    }
    request(const request&) = delete;
    request& operator=(const request&) = delete;
    ~request() { of_->withdraw(*this); }

    std::optional<taken> place;  // once it is served
    std::exception_ptr failure;  // or cannot be

    /// What was served is the caller's from here on.
    [[nodiscard]] taken keep() {
      taken result = std::move(*place);
      place.reset();
      offset_bytes_.reset();
      return result;
    }

   private:
    friend class reserver;
    reserver* of_;
    std::size_t tier_;
    std::size_t size_bytes_;
    std::optional<std::size_t> offset_bytes_;  // where room is being made
    std::vector<taken> gathered_;              // what of that is there
    std::uint64_t seen_ = ~std::uint64_t{0};   // `changes` when it was last looked at without avail
  };

  /// The size that a reservation really takes.
  ///
  /// Errors  usage_error for no bytes, for a tier that is not there, and for one in files, which has no addresses that
  ///         a library could be given; out_of_memory for more than the tier has
  [[nodiscard]] std::size_t reservable_bytes(std::size_t where, std::size_t size_bytes) const {
    if (where >= this->tiers.size()) {
      throw usage_error("a reservation in tier " + std::to_string(where) + " was asked, the hierarchy has " +
                        std::to_string(this->tiers.size()));
    }
    const auto& t = this->tiers[where];
    if (t.memory.kind() == memory_kind::file) {
      throw usage_error(t.name() + ": a tier in files gives no reservations: reserve in one in memory");
    }
    if (size_bytes == 0) throw usage_error(t.name() + ": a reservation of no bytes was asked");
    const auto rounded = checked_align_up(size_bytes, t.map.granule_bytes());
    if (!rounded || *rounded > t.map.capacity_bytes()) throw this->no_room(where, size_bytes, "reservation");
    return *rounded;
  }

  /// Refuses what cannot be had beside the tensors that exist, even were all other reservations gone.
  ///
  /// Errors  out_of_memory
  void check_possible(std::size_t where, std::size_t size_bytes) const {
    const auto& t = this->tiers[where];
    const std::size_t most = t.map.capacity_bytes() - t.staging_bytes;
    const free_range highest{t.map.capacity_bytes() - size_bytes, size_bytes};
    if (size_bytes <= most && keeps_all(where, {}, highest)) return;
    const std::size_t free = t.map.free_bytes();
    throw out_of_memory{t.name(), size_bytes, free,
                        t.name() + ": a reservation of " + format_bytes(size_bytes) +
                            " leaves no place for the tensors of " + format_bytes(this->promised_bytes) +
                            " that exist (free " + format_bytes(free) + ", reserved " + format_bytes(t.reserved_bytes) +
                            " of a budget of " + format_bytes(t.budget_bytes()) +
                            "): raise the budget, give the tiers below more room, or free tensors"};
  }

  /// Takes what can be had without moving a byte: free places and clean copies whose uses are over. `least_bytes` at
  /// least and size_bytes at most; nothing while others wait in line.
  ///
  /// Errors  device_error
  [[nodiscard]] std::optional<taken> reserve_now(std::size_t where, std::size_t size_bytes, std::size_t least_bytes) {
    if (!lines_[where].empty()) return std::nullopt;
    auto& t = this->tiers[where];
    const auto passed = [this](const event& e) { return this->on.passed(e); };
    const auto map = this->stretches(where, {}, t.map.settled_runs(passed));
    const auto usable = [&](const stretch& s) {
      if (s.state == occupancy::free) return true;
      if (s.state != occupancy::stale && s.state != occupancy::duplicate && s.state != occupancy::clean) return false;
      const auto uses = this->blocks.find(s.block)->in(where).uses();
      return std::all_of(uses.begin(), uses.end(), passed);
    };
    const auto found = best_place(map, where, size_bytes, least_bytes, usable);
    if (!found || !this->provide(with(where, t.reserved, *found))) return std::nullopt;
    for (block_type* const b : blocks_within(where, found->offset_bytes, found->size_bytes)) {
      ++this->counted.clean_drop_count;
      this->drop(*b, where);
    }
    const auto entry = t.reserved.emplace(found->offset_bytes, found->size_bytes).first;
    try {
      auto place = t.map.take_at(found->offset_bytes, found->size_bytes, passed);
      VTIER_ASSERT(place && place->uses.empty(), "a place that was found for a reservation is not free");
      this->count_reserved(where, place->size_bytes);
      ++this->changes;
      ++this->counted.reservation_count;
      return place;
    } catch (...) {
      t.reserved.erase(entry);
      throw;
    }
  }

  /// Gives a reservation back; what waits in line is served.
  void give_back(std::size_t where, std::size_t offset_bytes, std::size_t size_bytes,
                 std::vector<event> uses) noexcept {
    auto& t = this->tiers[where];
    t.reserved.erase(offset_bytes);
    t.map.give_back(offset_bytes, size_bytes, std::move(uses));
    this->count_unreserved(where, size_bytes);
    ++this->changes;
    static_cast<void>(serve_reservations());
  }

  /// Does what can be done without waiting for the requests that are next in their lines.
  ///
  /// Gives   whether one was served
  bool serve_reservations() noexcept {
    bool served = false;
    for (auto& line : lines_) {
      while (!line.empty()) {
        request& r = *line.front();
        try {
          if (!advance(r)) break;
          ++this->counted.reservation_count;
        } catch (...) {
          r.failure = std::current_exception();
          leave_place(r);
          ++this->changes;
        }
        line.pop_front();
        served = true;
      }
    }
    return served;
  }

  /// Whether somebody waits in line.
  [[nodiscard]] bool reservations_wait() const noexcept {
    return std::any_of(lines_.begin(), lines_.end(), [](const auto& line) { return !line.empty(); });
  }

 private:
  using typename ledger<Device, Eviction>::gap_list;
  using reserved_map = std::map<std::size_t, std::size_t>;

  // Gathers room for the request that is first in line; says whether it is served.
  bool advance(request& r) {
    if (r.seen_ == this->changes) return false;
    // What is gathered is looked at afresh: where a lease has come in between, another place may be better by now.
    const std::size_t gathered = gathered_bytes(r);
    const auto before = r.offset_bytes_;
    leave_place(r);
    bool waits = false;
    if (const auto offset = choose(r, waits)) gather(r, *offset);
    if (r.place) return true;
    if (gathered > 0 && (before != r.offset_bytes_ || gathered_bytes(r) < gathered)) ++this->changes;
    // Events that pass are no change that anybody notes.
    r.seen_ = waits ? ~std::uint64_t{0} : this->changes;
    return false;
  }

  // Chooses a place and moves out what is there, as far as that goes: best one that waits for nothing but writes, else
  // one from which leases have to go first.
  std::optional<std::size_t> choose(request& r, bool& waits) {
    const std::size_t where = r.tier_;
    if (!possible_now(r)) return std::nullopt;  // other reservations have to go first
    const typename ledger<Device, Eviction>::clearing guard{this->clearing_, where};
    std::vector<std::uint64_t> stuck;
    bool packed = false;
    for (;;) {
      const auto map = this->stretches(where, stuck);
      const auto place = [&](const auto& usable) {
        return best_place(map, where, r.size_bytes_, r.size_bytes_, usable);
      };
      auto found = place([](const stretch& s) { return s.state != occupancy::held; });
      if (!found && !packed && movable_bytes(map) >= r.size_bytes_) {
        packed = true;
        waits = this->pack(where, r.size_bytes_, urgency::demand);
        if (waits) return std::nullopt;
        continue;
      }
      if (!found) {
        found = place([&](const stretch& s) { return s.state != occupancy::held || awaited(s, where, stuck); });
      }
      if (!found || !this->provide(with(where, this->tiers[where].reserved, *found))) return std::nullopt;
      const std::size_t known = stuck.size();
      for (block_type* const b : blocks_within(where, found->offset_bytes, found->size_bytes)) {
        if (b->in(where).absent() || in_use(*b, where)) continue;
        const room_state left = this->push_out(*b, where, urgency::demand);
        if (left == room_state::ready || left == room_state::pending) continue;
        stuck.push_back(b->id());
        break;
      }
      if (stuck.size() == known) return found->offset_bytes;
    }
  }

  // Takes what is free of the place; with all of it the request is served.
  void gather(request& r, std::size_t offset_bytes) {
    auto& t = this->tiers[r.tier_];
    const auto passed = [this](const event& e) { return this->on.passed(e); };
    t.reserved.emplace(offset_bytes, r.size_bytes_);
    r.offset_bytes_ = offset_bytes;
    const std::size_t end = offset_bytes + r.size_bytes_;
    for (const free_range& run : t.map.free_runs()) {
      const std::size_t first = (std::max)(run.offset_bytes, offset_bytes);
      const std::size_t last = (std::min)(run.offset_bytes + run.size_bytes, end);
      if (first >= last) continue;
      r.gathered_.reserve(r.gathered_.size() + 1);
      auto piece = t.map.take_at(first, last - first, passed);
      VTIER_ASSERT(piece, "a free run could not be taken");
      this->count_reserved(r.tier_, piece->size_bytes);
      r.gathered_.push_back(std::move(*piece));
    }
    if (gathered_bytes(r) < r.size_bytes_) return;
    VTIER_ASSERT(r.gathered_.size() == 1, "a whole free range came in pieces");
    r.place = std::move(r.gathered_.front());
    r.gathered_.clear();
  }

  // Gives back what is gathered.
  void leave_place(request& r) noexcept {
    auto& t = this->tiers[r.tier_];
    for (taken& piece : r.gathered_) {
      t.map.give_back(piece.offset_bytes, piece.size_bytes, std::move(piece.uses));
      this->count_unreserved(r.tier_, piece.size_bytes);
    }
    r.gathered_.clear();
    if (r.offset_bytes_) t.reserved.erase(*r.offset_bytes_);
    r.offset_bytes_.reset();
  }

  void withdraw(request& r) noexcept {
    std::erase(lines_[r.tier_], &r);
    if (r.place) {  // served, but the caller did not wait for its events
      const taken gone = std::move(*r.place);
      r.offset_bytes_.reset();
      give_back(r.tier_, gone.offset_bytes, gone.size_bytes, gone.uses);
    } else {
      if (!r.gathered_.empty()) ++this->changes;
      leave_place(r);
    }
  }

  [[nodiscard]] static std::size_t gathered_bytes(const request& r) noexcept {
    std::size_t sum = 0;
    for (const taken& piece : r.gathered_) sum += piece.size_bytes;
    return sum;
  }

  // A place for a reservation at an end of a run of usable stretches, from the highest run on, so that what comes and
  // goes keeps one piece: all of size_bytes where that can be had, else the most.
  template <class Usable>
  [[nodiscard]] std::optional<free_range> best_place(const std::vector<stretch>& map, std::size_t where,
                                                     std::size_t size_bytes, std::size_t least_bytes,
                                                     const Usable& usable) const {
    const auto& t = this->tiers[where];
    const std::size_t granule = t.map.granule_bytes();
    const auto keeps = [&](std::size_t offset, std::size_t size) {
      return keeps_all(where, t.reserved, free_range{offset, size});
    };
    std::optional<free_range> best;
    for (std::size_t last = map.size(); last > 0;) {
      if (!usable(map[last - 1])) {
        --last;
        continue;
      }
      std::size_t first = last;
      while (first > 0 && usable(map[first - 1])) --first;
      const std::size_t begin = map[first].offset_bytes;
      const std::size_t end = map[last - 1].offset_bytes + map[last - 1].size_bytes;
      last = first;
      for (const bool high : {true, false}) {
        std::size_t most = (std::min)(end - begin, size_bytes);
        const std::size_t need = best ? best->size_bytes + granule : least_bytes;
        if (most < need) break;
        const auto at = [&](std::size_t size) { return high ? end - size : begin; };
        if (!keeps(at(most), most)) {  // less may do
          std::size_t known = need - granule;
          while (most - known > granule) {
            const std::size_t middle = known + align_down((most - known) / 2, granule);
            (middle > 0 && keeps(at(middle), middle) ? known : most) = middle;
          }
          most = known;
        }
        if (most >= need) best = free_range{at(most), most};
        if (best && best->size_bytes == size_bytes) return best;
      }
    }
    return best;
  }

  // What stays for tensors in all tiers beside one more reservation in one of them.
  [[nodiscard]] gap_list with(std::size_t where, const reserved_map& others, const free_range& one) const {
    gap_list pieces = this->gaps();
    reserved_map reserved = others;
    reserved.emplace(one.offset_bytes, one.size_bytes);
    pieces[where] = this->tiers[where].gaps(reserved);
    return pieces;
  }

  // Whether every tensor keeps its promised place beside one more reservation, and every tier that it fits in.
  [[nodiscard]] bool keeps_all(std::size_t where, const reserved_map& others, const free_range& one) const {
    const std::size_t before = this->largest_of(this->tiers[where].gaps(others));
    const gap_list pieces = with(where, others, one);
    const std::size_t after = this->largest_of(pieces[where]);
    bool keeps = true;
    this->blocks.for_each([&](const block_type& b) {
      const bool loses = b.size_bytes() > after && b.size_bytes() <= before;
      if (loses && !b.dying && this->rule_of(b).allows(where)) keeps = false;
    });
    return keeps && this->keeps_promises(pieces);
  }

  // Whether there is a place for a request that takes none from another reservation, whatever uses it now.
  [[nodiscard]] bool possible_now(const request& r) const {
    const auto& t = this->tiers[r.tier_];
    std::vector<stretch> map;
    std::size_t at = t.staging_bytes;
    for (const auto& [offset, size] : t.reserved) {
      map.push_back({at, offset - at, 0, 0, occupancy::free});
      map.push_back({offset, size, 0, 0, occupancy::held});
      at = offset + size;
    }
    map.push_back({at, t.map.capacity_bytes() - at, 0, 0, occupancy::free});
    return best_place(map, r.tier_, r.size_bytes_, r.size_bytes_,
                      [](const stretch& s) { return s.state == occupancy::free; })
        .has_value();
  }

  // Whether a held stretch is a tensor that will be free to go.
  [[nodiscard]] bool awaited(const stretch& s, std::size_t where, const std::vector<std::uint64_t>& stuck) {
    const block_type* const b = this->blocks.find(s.block);
    return b != nullptr && in_use(*b, where) && std::find(stuck.begin(), stuck.end(), s.block) == stuck.end();
  }

  // Whether a tensor is where it is for a lease, a transfer or a caller that waits, and may leave after that.
  [[nodiscard]] bool in_use(const block_type& b, std::size_t where) const {
    const auto& r = b.in(where);
    return this->only_tier(b) != where && (r.leases > 0 || r.filling() || b.wanted > 0);
  }

  [[nodiscard]] std::vector<block_type*> blocks_within(std::size_t where, std::size_t offset_bytes,
                                                       std::size_t size_bytes) const {
    std::vector<block_type*> result;
    for (const auto& [offset, b] : this->blocks.in(where)) {
      if (offset < offset_bytes + size_bytes && offset + b->in(where).size_bytes > offset_bytes) result.push_back(b);
    }
    return result;
  }

  std::vector<std::deque<request*>> lines_;  // who waits, by tier, in order of asking
};

}  // namespace vtier::detail
