// SPDX-License-Identifier: Apache-2.0
#pragma once

// Making room: the map of a tier for the policy, and what is done with the victims it names.
//
// make_room() does what can be done without waiting and says how things stand; whoever needs the room asks again. So
// there are no chains of continuations, and every caller, the progress thread included, runs the same few lines.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/policy/eviction.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/runtime/detail/packer.hpp>
#include <vtier/runtime/detail/windows.hpp>

namespace vtier::detail {

/// How an attempt to make room stands: there it is; writes to files are making it; other callers that wait keep what
/// would have to leave; leases keep it.
enum class room_state { ready, pending, contended, impossible };

/// State that can move and evict.
///
/// Threads every member under `lock`
template <device Device, eviction_policy Eviction>
class evictor : public packer<Device> {
 public:
  using typename packer<Device>::event;
  using typename packer<Device>::block_type;
  using packer<Device>::packer;
  using packer<Device>::rule_of;
  using packer<Device>::only_tier;

  struct room {
    room_state state = room_state::impossible;
    std::optional<taken_range<event>> place;  // where ready
  };

  /// Takes a place in a tier for a block, evicting what the policy names. A block that can go nowhere else from there
  /// gets the highest place that can be had, so that those which stay leave one piece to those which come and go.
  ///
  /// Gives   ready with a place; pending while writes to files make room, ask again; contended while callers that wait
  ///         keep it, ask again, but not for ever; impossible while leases hold so much that nothing would help
  /// Errors  device_error
  room make_room(const block_type& wanting, std::size_t where, urgency priority) {
    const std::size_t size_bytes = wanting.size_bytes();
    if (size_bytes > this->tiers[where].budget_bytes()) return {};
    const range_end end = only_tier(wanting) == where ? range_end::highest : range_end::lowest;
    if (where == 0 && wanting.wanted_offset_bytes != block_type::no_offset) {
      if (auto taken = take_wanted(wanting, priority)) return {room_state::ready, std::move(taken)};
    }
    if (end == range_end::lowest) {
      if (auto taken = this->take_place(where, size_bytes)) return {room_state::ready, std::move(taken)};
    }
    // Each victim asks again for room further down: an answer holds for larger blocks too, until something changes.
    refusal& before = refusals_[where];
    if (before.changes == this->changes && before.clearing == clearing_ && before.pushes_wanted == pushes_wanted &&
        before.serving == this->serving && size_bytes >= before.size_bytes) {
      return {before.state, std::nullopt};
    }
    const clearing guard{clearing_, where};
    const std::size_t rounded = align_up(size_bytes, this->tiers[where].map.granule_bytes());
    std::vector<std::uint64_t> stuck;  // victims for which no tier below has room at present
    bool contended = false;
    bool packed = false;
    for (;;) {
      const auto map = stretches(where, stuck);
      const auto window = end == range_end::highest ? highest_window(map, rounded) : policy_.choose(map, rounded);
      if (!window) {
        if (in_motion(where)) return {room_state::pending, std::nullopt};
        if (!std::exchange(packed, true) && movable_bytes(map) >= rounded) {
          if (pack(where, rounded, priority)) return {room_state::pending, std::nullopt};
          continue;
        }
        contended = contended || stays_for_others(wanting, where);
        before = {contended ? room_state::contended : room_state::impossible,
                  this->changes,
                  size_bytes,
                  clearing_ & ~(std::uint32_t{1} << where),
                  pushes_wanted,
                  this->serving};
        return {before.state, std::nullopt};
      }
      bool waits = false;
      bool blocked = false;
      for (std::size_t i = window->first; i < window->last && !blocked; ++i) {
        if (map[i].state == occupancy::free) continue;
        block_type& victim = *this->blocks.find(map[i].block);
        switch (push_out(victim, where, priority)) {
          case room_state::ready: break;
          case room_state::pending: waits = true; break;
          case room_state::contended: contended = true; [[fallthrough]];
          case room_state::impossible:
            stuck.push_back(victim.id());
            blocked = true;
            break;
        }
      }
      if (blocked) continue;  // another window, without this victim
      if (auto taken = this->take_place(where, size_bytes, end)) return {room_state::ready, std::move(taken)};
      if (waits) return {room_state::pending, std::nullopt};
    }
  }

  /// Moves a block out of a tier: drops the replica where the newest bytes are elsewhere too, else moves them away
  /// first.
  ///
  /// Gives   ready once the block has left; pending while a write to files is under way; contended and impossible while
  ///         no tier below has room, or a lease or a transfer holds the replica
  room_state push_out(block_type& b, std::size_t where, urgency priority) {
    auto& r = b.in(where);
    if (r.absent()) return room_state::ready;
    if (r.filling() || r.leases > 0 || only_tier(b) == where) return room_state::impossible;
    if (r.transfers_out > 0) {
      for (std::size_t i = where + 1; i < b.tier_count(); ++i) {
        if (b.in(i).filling()) this->hasten_fill(b, i, priority);
      }
      return room_state::pending;
    }
    if (b.sole(where)) {
      const room_state went = move_away(b, where, priority);
      // What was written down for the sake of its place leaves at once when that is done: until then the copy below is
      // free for the taking by others that need room there, and two of them could take turns for ever.
      if (went == room_state::pending && r.transfers_out > 0) r.leaving = true;
      if (went != room_state::ready) return went;
    } else {
      ++this->counted.clean_drop_count;
    }
    this->drop(b, where);
    return room_state::ready;
  }

  /// Copies the newest bytes from a tier to one below it, or where none has room to a free place above.
  ///
  /// Gives   ready where they are there already or come in stream order; pending while they are written to files or
  ///         room is made for them; contended or impossible where no tier below has room
  room_state move_away(block_type& b, std::size_t where, urgency priority) {
    bool contended = false;
    for (const std::size_t below : tiers_below(where, b.size_bytes(), rule_of(b), this->capacities())) {
      if (b.in(below).filling()) return room_state::pending;
      if (b.in(below).absent()) {
        ++b.wanted;  // making room below must not push this very block around
        room made;
        try {
          made = make_room(b, below, priority);
        } catch (...) {
          --b.wanted;
          throw;
        }
        --b.wanted;
        if (made.state == room_state::pending) return room_state::pending;
        contended = contended || made.state == room_state::contended;
        if (made.state != room_state::ready) continue;
        this->place(b, below, std::move(*made.place));
      } else if (b.in(below).leases > 0) {
        continue;
      } else if (!b.in(below).idle()) {
        return room_state::pending;  // an old version is on its way from there
      }
      return this->start_move(b, where, below, priority) ? room_state::ready : room_state::pending;
    }
    // Nothing below has room: up again, but only into room that nobody has, and only for a caller that wants this very
    // tier. Where room is being made further up, what goes up would come down again, for ever.
    if (clearing_ != std::uint32_t{1} << where) return contended ? room_state::contended : room_state::impossible;
    for (std::size_t above = where; above-- > 0;) {
      if (!rule_of(b).allows(above)) continue;
      if (b.in(above).absent()) {
        auto taken = this->take_place(above, b.size_bytes());
        if (!taken) continue;
        this->place(b, above, std::move(*taken));
      } else if (!b.in(above).idle()) {
        continue;
      }
      return this->start_move(b, where, above, priority) ? room_state::ready : room_state::pending;
    }
    return contended ? room_state::contended : room_state::impossible;
  }

  /// Writes least recently used dirty blocks of host tiers to files, so that evictions find clean victims.
  ///
  /// Gives   whether a write was started
  bool write_ahead() {
    if (this->limits.clean_share <= 0.0 || this->moving->writing()) return false;
    for (std::size_t where = 0; where + 1 < this->tiers.size(); ++where) {
      auto& t = this->tiers[where];
      if (t.memory.kind() != memory_kind::host || this->tiers[where + 1].memory.kind() != memory_kind::file ||
          this->tiers[where + 1].write_back_paused) {
        continue;
      }
      std::size_t ready_bytes = t.map.free_bytes();
      block_type* oldest = nullptr;
      for (const auto& [offset, b] : this->blocks.in(where)) {
        const auto& r = b->in(where);
        if (!r.idle() || b->wanted > 0 || b->dying) continue;
        if (!b->sole(where)) {
          ready_bytes += r.size_bytes;
        } else if (!oldest || r.last_use < oldest->in(where).last_use) {
          oldest = b;
        }
      }
      const auto share = static_cast<std::size_t>(this->limits.clean_share * static_cast<double>(t.budget_bytes()));
      if (ready_bytes >= share || oldest == nullptr) continue;
      // Only into room that nobody has: to push a clean copy out for it would make one clean and another dirty.
      if (!rule_of(*oldest).allows(where + 1)) continue;
      if (oldest->in(where + 1).absent()) {
        auto taken = this->take_place(where + 1, oldest->size_bytes());
        if (!taken) continue;
        this->place(*oldest, where + 1, std::move(*taken));
      } else if (!oldest->in(where + 1).idle()) {
        continue;
      }
      this->start_move(*oldest, where, where + 1, urgency::write_back);
      return true;
    }
    return false;
  }

  bool pushes_wanted = false;  // whether blocks that callers wait for may be moved down for another caller

 protected:
  // The place in the first tier that a plan has for a block; what is there against the plan leaves if it can.
  std::optional<taken_range<event>> take_wanted(const block_type& wanting, urgency priority) {
    auto& map = this->tiers.front().map;
    const auto passed = [this](const event& e) { return this->on.passed(e); };
    const std::size_t first = wanting.wanted_offset_bytes;
    const std::size_t size = align_up(wanting.size_bytes(), map.granule_bytes());
    if (auto taken = map.take_at(first, size, passed)) return taken;
    std::vector<block_type*> there;
    for (const auto& [offset, b] : this->blocks.in(0)) {
      if (offset >= first + size) break;
      if (offset + b->in(0).size_bytes <= first) continue;
      if (occupancy_of(*b, 0) == occupancy::held) return std::nullopt;
      there.push_back(b);
    }
    const clearing guard{clearing_, 0};
    for (block_type* const b : there) {
      if (push_out(*b, 0, priority) != room_state::ready) return std::nullopt;
    }
    return map.take_at(first, size, passed);
  }

  // Notes that room is being made in a tier.
  class clearing {
   public:
    clearing(std::uint32_t& tiers, std::size_t where) noexcept : tiers_{&tiers}, before_{tiers} {
      tiers |= std::uint32_t{1} << where;
    }
    clearing(const clearing&) = delete;
    clearing& operator=(const clearing&) = delete;
    ~clearing() { *tiers_ = before_; }

   private:
    std::uint32_t* tiers_;
    std::uint32_t before_;
  };

  // Moves what stays in a tier out of the midst of what comes and goes; says whether events or writes must pass first.
  bool pack(std::size_t where, std::size_t size_bytes, urgency priority) {
    bool waits = false;
    if (this->tiers[where].memory.kind() == memory_kind::file) return false;  // a tier in files grows instead
    if (this->tiers[where].memory.kind() == memory_kind::host) {
      // No window is wide enough: so much is freed anywhere, and the rest moves together.
      auto map = stretches(where, {});
      std::sort(map.begin(), map.end(), [](const stretch& a, const stretch& b) { return a.last_use < b.last_use; });
      for (const stretch& s : map) {
        if (this->tiers[where].map.free_bytes() >= size_bytes) break;
        if (s.state == occupancy::free || s.state == occupancy::held) continue;
        waits = push_out(*this->blocks.find(s.block), where, priority) == room_state::pending || waits;
      }
      return this->slide_down(where) || waits;
    }
    for (block_type* const b : this->movable_blocks(where)) {
      if (!b->in(where).idle()) continue;  // it has left to make way for another
      if (only_tier(*b) == where && !clear_above(*b, where, priority, waits)) continue;
      this->move_up(*b, where);
    }
    return waits;
  }

  // Frees the highest window that a block would fit in, where that is above it.
  bool clear_above(const block_type& b, std::size_t where, urgency priority, bool& waits) {
    const auto map = stretches(where, {});
    const auto window = highest_window(map, b.in(where).size_bytes);
    if (!window || map[window->first].offset_bytes < b.in(where).offset_bytes) return false;
    bool free = true;
    for (std::size_t i = window->first; i < window->last; ++i) {
      if (map[i].state == occupancy::free) continue;
      const room_state left = push_out(*this->blocks.find(map[i].block), where, priority);
      waits = waits || left == room_state::pending;
      free = free && left == room_state::ready;
    }
    return free;
  }

  // Whether a block in a tier stays for a caller that waits or for its next use, and for nothing that lasts.
  [[nodiscard]] bool stays_for_others(const block_type& wanting, std::size_t where) const {
    const auto& placed = this->blocks.in(where);
    return std::any_of(placed.begin(), placed.end(), [&](const auto& entry) {
      const bool stays = entry.second->wanted > 0 || needed_sooner(*entry.second);
      return entry.second != &wanting && stays && entry.second->in(where).leases == 0;
    });
  }

  [[nodiscard]] std::vector<stretch> stretches(std::size_t where, const std::vector<std::uint64_t>& stuck) const {
    return stretches(where, stuck, this->tiers[where].map.free_runs());
  }
  [[nodiscard]] std::vector<stretch> stretches(std::size_t where, const std::vector<std::uint64_t>& stuck,
                                               const std::vector<free_range>& free) const {
    const auto& t = this->tiers[where];
    std::vector<stretch> result;
    result.reserve(this->blocks.in(where).size() + 2 * free.size() + 1);
    auto next_free = free.begin();
    std::size_t at = 0;
    const auto add_free_until = [&](std::size_t end) {
      for (; next_free != free.end() && next_free->offset_bytes < end; ++next_free) {
        if (next_free->offset_bytes > at) {  // staging: taken, and nobody's
          result.push_back({at, next_free->offset_bytes - at, 0, 0, occupancy::held, unknown_use});
        }
        result.push_back({next_free->offset_bytes, next_free->size_bytes, 0, 0, occupancy::free, unknown_use});
        at = next_free->offset_bytes + next_free->size_bytes;
      }
      if (at < end) result.push_back({at, end - at, 0, 0, occupancy::held, unknown_use});
      at = end;
    };
    for (const auto& [offset, b] : this->blocks.in(where)) {
      add_free_until(offset);
      const auto& r = b->in(where);
      const bool unmovable = std::find(stuck.begin(), stuck.end(), b->id()) != stuck.end();
      const occupancy found = unmovable ? occupancy::held : occupancy_of(*b, where);
      result.push_back({offset, r.size_bytes, r.last_use, b->id(), found, b->next_use});
      at = offset + r.size_bytes;
    }
    add_free_until(t.map.capacity_bytes());
    return result;
  }

  [[nodiscard]] occupancy occupancy_of(const block_type& b, std::size_t where) const noexcept {
    const auto& r = b.in(where);
    const bool wanted = b.wanted > 0 && !pushes_wanted;
    if (r.leases > 0 || r.filling() || only_tier(b) == where) return occupancy::held;
    if (wanted) return occupancy::held;
    const auto other = b.newest(where);
    if (r.idle() && !b.current(where)) return occupancy::stale;
    if (r.idle() && other && *other < where) return occupancy::duplicate;
    if (needed_sooner(b)) return occupancy::held;
    if (r.transfers_out > 0) return occupancy::leaving;
    return other ? occupancy::clean : occupancy::dirty;
  }

  // Whether a block is used sooner than what is being fetched ahead of need: that would only have it fetched in turn.
  [[nodiscard]] bool needed_sooner(const block_type& b) const noexcept {
    return this->serving > 0 && b.next_use != unknown_use && b.next_use <= this->serving;
  }

  // Whether something is under way in a tier that may free a place.
  [[nodiscard]] bool in_motion(std::size_t where) const {
    const auto& placed = this->blocks.in(where);
    return std::any_of(placed.begin(), placed.end(), [&](const auto& entry) {
      const auto& r = entry.second->in(where);
      return r.transfers_out > 0 || (r.filling() && entry.second->wanted == 0);
    });
  }

  std::uint32_t clearing_ = 0;  // tiers in which room is being made, as bits
  Eviction policy_{};

 private:
  // The last answer that there is no room in a tier.
  struct refusal {
    room_state state = room_state::impossible;
    std::uint64_t changes = ~std::uint64_t{0};
    std::size_t size_bytes = 0;
    std::uint32_t clearing = 0;
    bool pushes_wanted = false;
    std::uint64_t serving = 0;
  };
  std::array<refusal, 32> refusals_{};
};

}  // namespace vtier::detail
