// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a plan of one tier takes: its laps in virtual time, on links that each do one transfer after the other.
//
// Work is in the order of the program, as streams have it: a fetch is issued at its tick, and runs when the link has
// done what was issued before, when the room that it was given is free, and when its bytes are below. The host is taken
// to be as far ahead of the device as it likes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/tier_plan.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier::detail {

/// What a lap took.
///
/// Units   ns; bytes
struct replay_result {
  double ns = 0.0;
  double up_bytes = 0.0;
  double down_bytes = 0.0;
  std::vector<double> stall_ns;  // of each use: how long it waited
};

/// What is done when in a lap.
///
/// Units   ticks; ns since the lap began
enum class replay_action_kind : std::uint8_t { fetch, drop, evict, write_back };  // evict: written, then dropped
struct replay_action {
  std::uint32_t tick = 0;  // behind the use that begins or ends there
  replay_action_kind what = replay_action_kind::fetch;
  std::uint32_t tensor = 0;
  double done_ns = 0.0;  // when its bytes are where they go
};

/// A lap in detail.
struct replay_log {
  std::vector<replay_action> actions;  // in the order in which they are given to the links
  std::vector<double> tick_ns;         // when each tick came
};

/// Plays laps of a plan.
class tier_replay {
 public:
  tier_replay(const std::vector<step_tensor>& tensors, const tier_uses& in, std::int64_t capacity,
              const link_rates& rates)
      : tensors_{&tensors}, in_{&in}, capacity_{capacity}, rates_{rates} {
    const std::size_t ticks = in.tick_count();
    begins_.assign(ticks, no_use);
    ends_.assign(ticks, no_use);
    for (std::uint32_t i = 0; i < in.uses.size(); ++i) {
      begins_[in.uses[i].begin] = i;
      ends_[in.uses[i].end] = i;
    }
    behind_.assign(in.uses.size(), no_use);
    for (std::uint32_t i = 0; i < in.idle.size(); ++i) behind_[in.idle[i].before] = i;
  }

  /// Plays three laps and gives the last, in detail where that is asked for: the first begins with all links idle.
  replay_result play(const tier_plan& plan, replay_log* log = nullptr) {
    // What a use writes and a later interval lets go is written down while the link has nothing better to do.
    early_.assign(in_->uses.size(), 0);
    for (std::size_t i = 0; i < in_->idle.size(); ++i) {
      const idle_interval& idle = in_->idle[i];
      if (plan.kept[i] == 0 && !idle.worthless && idle.segment != no_use && idle.before != idle.segment) {
        early_[idle.segment] = 1;
      }
    }
    std::vector<std::vector<std::uint32_t>> starts(in_->tick_count());
    for (std::uint32_t i = 0; i < plan.fetches.size(); ++i) starts[plan.fetches[i].start].push_back(i);
    reset(plan);
    replay_result result;
    double began = 0.0;
    for (int lap = 0; lap < 3; ++lap) {
      result = {};
      result.stall_ns.assign(in_->uses.size(), 0.0);
      log_ = lap == 2 ? log : nullptr;
      lap_began_ = now_;
      this->lap(plan, starts, result);
      result.ns = now_ - began;
      began = now_;
    }
    return result;
  }

 private:
  using freed = std::pair<double, std::int64_t>;  // when, bytes

  void reset(const tier_plan& plan) {
    now_ = up_free_ = down_free_ = both_free_ = 0.0;
    background_.clear();
    room_ = {};
    arrival_.assign(tensors_->size(), 0.0);
    below_.assign(tensors_->size(), 0.0);
    idle_since_.assign(tensors_->size(), 0.0);
    clean_.assign(tensors_->size(), 0);
    version_.assign(tensors_->size(), 0);
    here_.assign(tensors_->size(), 0);
    open_.assign(tensors_->size(), 0);
    std::int64_t held = 0;
    for (std::size_t i = 0; i < in_->idle.size(); ++i) {
      const idle_interval& idle = in_->idle[i];
      if (plan.kept[i] != 0 && idle.end <= idle.begin) enter(idle.tensor, held);
    }
    for (const planned_fetch& f : plan.fetches) {
      if (f.laps > 0) enter(in_->idle[f.interval].tensor, held);
    }
    room_.push({0.0, capacity_ - held});
  }

  void enter(std::uint32_t tensor, std::int64_t& held) {
    here_[tensor] = 1;
    held += size(tensor);
  }

  [[nodiscard]] std::int64_t size(std::uint32_t tensor) const {
    return static_cast<std::int64_t>((*tensors_)[tensor].size_bytes);
  }

  // Takes room that was freed first, and says when all of it is free.
  double take_room(std::int64_t bytes) {
    double when = 0.0;
    while (bytes > 0 && !room_.empty()) {
      auto [at, free] = room_.top();
      room_.pop();
      when = (std::max)(when, at);
      if (free > bytes) room_.push({at, free - bytes});
      bytes -= (std::min)(bytes, free);
    }
    VTIER_ASSERT(bytes <= 0, "a plan holds more than its tier has");
    return when;
  }

  double move(double& link_free, double rate, double ready, double bytes) {
    const double start = (std::max)(link_free, ready);
    double end = start + bytes / rate;
    both_free_ = (std::max)(both_free_, start) + bytes / rates_.both;
    end = (std::max)(end, both_free_);
    link_free = end;
    return end;
  }

  void lap(const tier_plan& plan, const std::vector<std::vector<std::uint32_t>>& starts, replay_result& to) {
    for (std::size_t t = 0; t < in_->tick_count(); ++t) {
      now_ += static_cast<double>(in_->tick_ns[t] - (t == 0 ? 0 : in_->tick_ns[t - 1]));
      tick_ = static_cast<std::uint32_t>(t);
      if (begins_[t] != no_use) begin(begins_[t], to);
      if (ends_[t] != no_use) end(ends_[t], plan, to);
      if (log_ != nullptr) log_->tick_ns.push_back(now_ - lap_began_);
      for (const std::uint32_t f : starts[t]) fetch(in_->idle[plan.fetches[f].interval].tensor, to);
    }
    now_ += static_cast<double>(in_->duration_ns - (in_->tick_ns.empty() ? 0 : in_->tick_ns.back()));
  }

  // Background writes that the link has had the time to begin by now.
  void write_in_background(replay_result& to) {
    while (!background_.empty() && down_free_ < now_) {
      const auto [tensor, version] = background_.front();
      background_.pop_front();
      if (version != version_[tensor] || clean_[tensor] != 0 || here_[tensor] == 0) continue;
      write_down(tensor, (std::max)(down_free_, idle_since_[tensor]), to);
      log(replay_action_kind::write_back, tensor, below_[tensor]);
    }
  }

  void log(replay_action_kind what, std::uint32_t tensor, double done) {
    if (log_ != nullptr) log_->actions.push_back({tick_, what, tensor, done - lap_began_});
  }

  void write_down(std::uint32_t tensor, double ready, replay_result& to) {
    below_[tensor] = move(down_free_, rates_.down, ready, static_cast<double>(size(tensor)));
    to.down_bytes += static_cast<double>(size(tensor));
    clean_[tensor] = 1;
  }

  void begin(std::uint32_t which, replay_result& to) {
    write_in_background(to);
    const tier_use& u = in_->uses[which];
    const double before = now_;
    if (here_[u.tensor] == 0) {
      if (u.reads) {
        fetch(u.tensor, to);  // planned for this very tick, or the first lap
      } else {
        arrival_[u.tensor] = take_room(size(u.tensor));
        here_[u.tensor] = 1;
      }
    }
    ++open_[u.tensor];
    now_ = (std::max)(now_, arrival_[u.tensor]);
    to.stall_ns[which] = now_ - before;
    if (u.writes) {
      clean_[u.tensor] = 0;
      ++version_[u.tensor];
    }
  }

  void end(std::uint32_t which, const tier_plan& plan, replay_result& to) {
    write_in_background(to);
    const tier_use& u = in_->uses[which];
    idle_since_[u.tensor] = now_;
    if (early_[which] != 0) background_.push_back({u.tensor, version_[u.tensor]});
    if (--open_[u.tensor] > 0) return;
    const std::uint32_t behind = behind_[which];
    if (behind != no_use && plan.kept[behind] != 0) return;
    double free_at = (std::max)(now_, below_[u.tensor]);
    const bool dead = behind == no_use;  // the last use of a tensor of the step
    const bool worthless = dead || in_->idle[behind].worthless;
    const bool written = !worthless && clean_[u.tensor] == 0;
    if (written) {
      write_down(u.tensor, now_, to);
      free_at = below_[u.tensor];
    }
    if (!dead) log(written ? replay_action_kind::evict : replay_action_kind::drop, u.tensor, free_at);
    room_.push({free_at, size(u.tensor)});
    here_[u.tensor] = 0;
  }

  void fetch(std::uint32_t tensor, replay_result& to) {
    if (here_[tensor] != 0) return;
    const double room = take_room(size(tensor));
    arrival_[tensor] = move(up_free_, rates_.up, (std::max)(room, below_[tensor]), static_cast<double>(size(tensor)));
    to.up_bytes += static_cast<double>(size(tensor));
    here_[tensor] = 1;
    clean_[tensor] = 1;
    log(replay_action_kind::fetch, tensor, arrival_[tensor]);
  }

  const std::vector<step_tensor>* tensors_;
  const tier_uses* in_;
  std::int64_t capacity_;
  link_rates rates_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint32_t> behind_;  // the idle interval that a use leads to

  replay_log* log_ = nullptr;
  std::uint32_t tick_ = 0;
  double lap_began_ = 0.0;
  double now_ = 0.0;
  double up_free_ = 0.0;
  double down_free_ = 0.0;
  double both_free_ = 0.0;
  std::priority_queue<freed, std::vector<freed>, std::greater<>> room_;
  std::vector<double> arrival_;
  std::vector<double> below_;
  std::vector<double> idle_since_;
  std::vector<char> clean_;
  std::vector<char> early_;
  std::vector<std::uint32_t> version_;
  std::deque<std::pair<std::uint32_t, std::uint32_t>> background_;  // tensor, version
  std::vector<char> here_;
  std::vector<std::uint32_t> open_;  // uses in force
};

}  // namespace vtier::detail
