// SPDX-License-Identifier: Apache-2.0
#pragma once

// One tier played through in virtual time, lap after lap, with every decision made on the way: who leaves, what comes
// back when, what is written down early. A plan is the decisions of the last lap.
//
// Work is in the order of the program, as streams have it. Room that nobody has is used at once. Beyond that a fetch
// starts when the link could not bring all that is due behind it in time if it waited any longer, and only what is
// needed later makes way for it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/room_profile.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier::detail {

/// How a schedule chooses.
///
/// Units   factors; margin_ns: how much earlier than needed a fetch starts
struct schedule_knobs {
  double clean_weight = 1.0;    // how much sooner than a dirty tensor a clean one may be needed and still go first
  double unread_weight = 1.0;   // the same for what will be overwritten
  double margin_ns = 0.0;
  bool early_writes = true;
};

/// Something that a tier does at a tick.
struct tier_action {
  enum class kind : std::uint8_t { evict, write_back, fetch };
  kind what = kind::evict;
  std::uint32_t tensor = 0;
  std::uint32_t tick = 0;
  std::uint32_t due = 0;   // fetch: the tick of the use that it is for
  std::uint32_t laps = 0;  // fetch: 1 where that is in the next lap
};

/// What a lap did and took.
///
/// Units   ns; bytes
struct tier_schedule {
  double ns = 0.0;
  double up_bytes = 0.0;
  double down_bytes = 0.0;
  double peak_bytes = 0.0;
  double stall_ns = 0.0;
  std::vector<tier_action> actions;  // in order
};

/// Plays a tier.
class tier_player {
 public:
  tier_player(const std::vector<step_tensor>& tensors, const tier_uses& in, const std::vector<char>& kept,
              std::int64_t capacity, const link_rates& rates, const schedule_knobs& knobs)
      : tensors_{tensors},
        in_{in},
        kept_{kept},
        capacity_{capacity},
        rates_{rates},
        knobs_{knobs},
        lateness_{2 * in.uses.size() + 1},
        begins_(in.tick_count(), no_use),
        ends_(in.tick_count(), no_use),
        behind_(in.uses.size(), no_use),
        ahead_(in.uses.size(), no_use),
        state_(tensors.size()),
        evicted_(in.idle.size(), 0) {
    for (std::uint32_t i = 0; i < in.uses.size(); ++i) {
      begins_[in.uses[i].begin] = i;
      ends_[in.uses[i].end] = i;
    }
    for (std::uint32_t i = 0; i < in.idle.size(); ++i) {
      behind_[in.idle[i].before] = i;
      ahead_[in.idle[i].after] = i;
    }
    room_.push({0.0, capacity_});
    // Before the first lap everything that stays is below.
    std::vector<char> seen(tensors.size(), 0);
    for (std::uint32_t i = 0; i < in.uses.size(); ++i) {
      const tier_use& u = in.uses[i];
      if (seen[u.tensor] != 0) continue;
      seen[u.tensor] = 1;
      if (u.reads && !tensors[u.tensor].born) miss(u.tensor, i);
    }
  }

  /// Plays so many laps and gives the last.
  tier_schedule play(std::size_t laps) {
    double began = 0.0;
    for (std::size_t lap = 0; lap < laps; ++lap) {
      to_ = {};
      early_.assign(in_.uses.size(), 0);
      for (std::size_t i = 0; knobs_.early_writes && i < in_.idle.size(); ++i) {
        if (evicted_[i] != 0 && in_.idle[i].segment != no_use) early_[in_.idle[i].segment] = 1;
      }
      std::fill(evicted_.begin(), evicted_.end(), 0);
      play_lap();
      to_.ns = now_ - began;
      began = now_;
    }
    return std::move(to_);
  }

 private:
  using freed = std::pair<double, std::int64_t>;       // when, bytes
  using due_tensor = std::pair<std::uint64_t, std::uint32_t>;  // position of the next use, tensor
  enum class loose_class : std::uint8_t { clean, dirty, unread, none };

  struct tensor_state {
    bool here = false;
    bool clean = false;
    bool missing = false;         // a read is due that has no bytes yet
    std::uint32_t version = 0;
    std::uint32_t interval = no_use;  // the idle interval it is in, while it may be let go
    loose_class loose = loose_class::none;
    std::uint64_t due = 0;        // position of its next use, if missing or loose
    double arrival = 0.0;         // when its bytes are here
    double below = 0.0;           // when its bytes are below
    double idle_since = 0.0;
  };

  [[nodiscard]] std::int64_t size(std::uint32_t t) const { return static_cast<std::int64_t>(tensors_[t].size_bytes); }
  [[nodiscard]] double up_ns(std::uint32_t t) const { return static_cast<double>(size(t)) / rates_.up; }

  // Positions: uses of this lap, then those of the next.
  [[nodiscard]] std::int64_t deadline_ns(std::uint64_t position) const {
    const std::size_t n = in_.uses.size();
    const std::int64_t at = in_.tick_ns[in_.uses[position % n].begin];
    return position < n ? at : at + in_.duration_ns;
  }

  void miss(std::uint32_t tensor, std::uint64_t position) {
    tensor_state& s = state_[tensor];
    s.missing = true;
    s.due = position;
    missing_.insert({position, tensor});
    add_lateness(position, static_cast<std::int64_t>(up_ns(tensor)), deadline_ns(position));
  }
  void found(std::uint32_t tensor) {
    tensor_state& s = state_[tensor];
    if (!s.missing) return;
    s.missing = false;
    missing_.erase({s.due, tensor});
    add_lateness(s.due, -static_cast<std::int64_t>(up_ns(tensor)), -deadline_ns(s.due));
  }

  // lateness_ has at each missing position: the time that all transfers up to it take, less its deadline. Positions
  // that miss nothing lie far below.
  static constexpr std::int64_t far = std::int64_t{1} << 60;
  void add_lateness(std::uint64_t position, std::int64_t transfer_ns, std::int64_t deadline) {
    lateness_.add(position, 2 * in_.uses.size() + 1, transfer_ns);
    const bool enters = transfer_ns >= 0 && deadline >= 0;
    lateness_.add(position, position + 1, (enters ? far : -far) - deadline);
  }

  [[nodiscard]] bool must_start(std::int64_t compute_ns) const {
    if (missing_.empty()) return false;
    const std::int64_t late = lateness_.most(0, 2 * in_.uses.size() + 1) - far + compute_ns;
    const double backlog = (std::max)(0.0, up_free_ - now_);
    return static_cast<double>(late) + backlog + knobs_.margin_ns >= 0.0;
  }

  void play_lap() {
    for (std::uint32_t t = 0; t < in_.tick_count(); ++t) {
      tick_ = t;
      now_ += static_cast<double>(in_.tick_ns[t] - (t == 0 ? 0 : in_.tick_ns[t - 1]));
      write_in_background();
      if (begins_[t] != no_use) begin(begins_[t]);
      if (ends_[t] != no_use) end(ends_[t]);
      start_fetches();
    }
    now_ += static_cast<double>(in_.duration_ns - in_.tick_ns.back());
    next_lap();
  }

  // What was due in the next lap is due in this one.
  void next_lap() {
    const std::size_t n = in_.uses.size();
    const auto shift = [&](std::set<due_tensor>& all) {
      std::set<due_tensor> shifted;
      for (const auto& [position, tensor] : all) {
        VTIER_ASSERT(position >= n, "a use was passed over");
        shifted.insert({position - n, tensor});
        state_[tensor].due = position - n;
      }
      all = std::move(shifted);
    };
    for (auto& all : loose_) shift(all);
    const std::set<due_tensor> before = std::exchange(missing_, {});
    lateness_ = room_profile{2 * n + 1};
    for (const auto& [position, tensor] : before) miss(tensor, position - n);
  }

  void begin(std::uint32_t which) {
    const tier_use& u = in_.uses[which];
    tensor_state& s = state_[u.tensor];
    const double before = now_;
    unloose(u.tensor);
    if (!s.here) {
      if (u.reads) {
        make_room(u.tensor, which, true);
        fetch(u.tensor);
      } else {
        make_room(u.tensor, which, true);
        s.arrival = take_room(size(u.tensor));
        s.here = true;
      }
    }
    ++s_uses(u.tensor);
    now_ = (std::max)(now_, s.arrival);
    to_.stall_ns += now_ - before;
    if (u.writes) {
      s.clean = false;
      ++s.version;
    }
  }

  std::uint32_t& s_uses(std::uint32_t tensor) {
    if (open_.size() < state_.size()) open_.resize(state_.size(), 0);
    return open_[tensor];
  }

  void end(std::uint32_t which) {
    const tier_use& u = in_.uses[which];
    tensor_state& s = state_[u.tensor];
    s.idle_since = now_;
    if (early_[which] != 0 && !s.clean) background_.push_back({u.tensor, s.version});
    if (--s_uses(u.tensor) > 0) return;
    const std::uint32_t behind = behind_[which];
    if (behind == no_use) {  // the last use of a tensor of the step
      room_.push({now_, size(u.tensor)});
      held_ -= size(u.tensor);
      s.here = false;
      return;
    }
    if (kept_[behind] != 0) return;
    const idle_interval& idle = in_.idle[behind];
    s.interval = behind;
    s.due = idle.after > which ? idle.after : idle.after + in_.uses.size();
    s.loose = !idle.fetched ? loose_class::unread : s.clean ? loose_class::clean : loose_class::dirty;
    if (s.loose == loose_class::unread && s.clean) return evict(u.tensor);  // costs nothing
    loose_[static_cast<std::size_t>(s.loose)].insert({s.due, u.tensor});
  }

  void unloose(std::uint32_t tensor) {
    tensor_state& s = state_[tensor];
    if (s.loose == loose_class::none) return;
    loose_[static_cast<std::size_t>(s.loose)].erase({s.due, tensor});
    s.loose = loose_class::none;
  }

  void cleaned(std::uint32_t tensor) {
    tensor_state& s = state_[tensor];
    s.clean = true;
    if (s.loose == loose_class::unread) return evict(tensor);
    if (s.loose != loose_class::dirty) return;
    unloose(tensor);
    s.loose = loose_class::clean;
    loose_[0].insert({s.due, tensor});
  }

  void evict(std::uint32_t tensor) {
    tensor_state& s = state_[tensor];
    const idle_interval& idle = in_.idle[s.interval];
    evicted_[s.interval] = 1;
    unloose(tensor);
    to_.actions.push_back({tier_action::kind::evict, tensor, tick_, 0, 0});
    if (!s.clean) write_down(tensor, now_);
    room_.push({(std::max)({s.idle_since, s.below, s.arrival}), size(tensor)});
    held_ -= size(tensor);
    s.here = false;
    if (idle.fetched) miss(tensor, s.due);
  }

  // Evicts until there is room; for a fetch ahead only what is needed later.
  bool make_room(std::uint32_t tensor, std::uint64_t position, bool demanded) {
    while (held_ + size(tensor) > capacity_) {
      double best_score = -1.0;
      std::uint32_t best = no_use;
      for (std::size_t c = 0; c < 3; ++c) {
        if (loose_[c].empty()) continue;
        const auto& [due, candidate] = *loose_[c].rbegin();
        if (!demanded && due <= position) continue;
        const double weight = c == 0 ? knobs_.clean_weight : c == 2 ? knobs_.unread_weight : 1.0;
        const double distance = static_cast<double>(due) - static_cast<double>(first_position());
        if (distance * weight > best_score) {
          best_score = distance * weight;
          best = candidate;
        }
      }
      if (best == no_use) {
        VTIER_ASSERT(!demanded, "a plan holds more than its tier has");
        return false;
      }
      evict(best);
    }
    return true;
  }

  [[nodiscard]] std::size_t first_position() const { return tick_ * in_.uses.size() / in_.tick_count(); }

  void start_fetches() {
    while (!missing_.empty()) {
      const auto [position, tensor] = *missing_.begin();
      if (held_ + size(tensor) > capacity_) {
        if (!must_start(in_.tick_ns[tick_]) || !make_room(tensor, position, false)) return;
      }
      const std::size_t n = in_.uses.size();
      to_.actions.push_back({tier_action::kind::fetch, tensor, tick_, in_.uses[position % n].begin,
                             static_cast<std::uint32_t>(position / n)});
      fetch(tensor);
      // Until its use it may make way for what is due sooner.
      state_[tensor].due = position;
      state_[tensor].interval = ahead_[position % n];
      state_[tensor].loose = loose_class::clean;
      loose_[0].insert({position, tensor});
    }
  }

  void fetch(std::uint32_t tensor) {
    tensor_state& s = state_[tensor];
    found(tensor);
    const double room = take_room(size(tensor));
    s.arrival = move(up_free_, rates_.up, (std::max)({room, s.below, now_}), static_cast<double>(size(tensor)));
    to_.up_bytes += static_cast<double>(size(tensor));
    s.here = true;
    s.clean = true;
  }

  // Takes room that was freed first, and says when all of it is free.
  double take_room(std::int64_t bytes) {
    held_ += bytes;
    to_.peak_bytes = (std::max)(to_.peak_bytes, static_cast<double>(held_));
    double when = 0.0;
    while (bytes > 0) {
      VTIER_ASSERT(!room_.empty(), "a plan holds more than its tier has");
      auto [at, free] = room_.top();
      room_.pop();
      when = (std::max)(when, at);
      if (free > bytes) room_.push({at, free - bytes});
      bytes -= (std::min)(bytes, free);
    }
    return when;
  }

  double move(double& link_free, double rate, double ready, double bytes) {
    const double start = (std::max)(link_free, ready);
    both_free_ = (std::max)(both_free_, start) + bytes / rates_.both;
    return link_free = (std::max)(start + bytes / rate, both_free_);
  }

  void write_down(std::uint32_t tensor, double ready) {
    tensor_state& s = state_[tensor];
    s.below = move(down_free_, rates_.down, ready, static_cast<double>(size(tensor)));
    to_.down_bytes += static_cast<double>(size(tensor));
    s.clean = true;
  }

  // Background writes that the link has had the time to begin by now.
  void write_in_background() {
    while (!background_.empty() && down_free_ < now_) {
      const auto [tensor, version] = background_.front();
      background_.pop_front();
      tensor_state& s = state_[tensor];
      if (version != s.version || s.clean || !s.here) continue;
      to_.actions.push_back({tier_action::kind::write_back, tensor, tick_, 0, 0});
      write_down(tensor, (std::max)(down_free_, s.idle_since));
      cleaned(tensor);
    }
  }

  const std::vector<step_tensor>& tensors_;
  const tier_uses& in_;
  const std::vector<char>& kept_;
  std::int64_t capacity_;
  link_rates rates_;
  schedule_knobs knobs_;
  room_profile lateness_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint32_t> behind_;
  std::vector<std::uint32_t> ahead_;
  std::vector<tensor_state> state_;
  std::vector<char> evicted_;
  std::vector<char> early_;
  std::vector<std::uint32_t> open_;
  std::set<due_tensor> missing_;
  std::set<due_tensor> loose_[3];
  std::deque<std::pair<std::uint32_t, std::uint32_t>> background_;  // tensor, version
  std::priority_queue<freed, std::vector<freed>, std::greater<>> room_;
  tier_schedule to_;
  std::int64_t held_ = 0;
  std::uint32_t tick_ = 0;
  double now_ = 0.0;
  double up_free_ = 0.0;
  double down_free_ = 0.0;
  double both_free_ = 0.0;
};

}  // namespace vtier::detail
