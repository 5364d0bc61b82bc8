// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moving blocks between tiers: what a transfer does to the two replicas it joins, when it starts and when it ends.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/runtime/detail/state.hpp>

namespace vtier::detail {

/// State that can move.
///
/// Threads every member under `lock`
template <device Device>
class mover : public state<Device> {
 public:
  using typename state<Device>::event;
  using typename state<Device>::block_type;
  using state<Device>::state;

  /// Starts a copy of the newest bytes of a block from one tier to another, where it has a place.
  ///
  /// Needs   the source current and without a lease that writes; the target placed, idle and not current
  /// Gives   true where the target is current already (a copy in stream order), false where it comes later
  /// Errors  device_error; then nothing has changed
  bool start_move(block_type& b, std::size_t from, std::size_t to, urgency priority) {
    auto& source = b.in(from);
    auto& target = b.in(to);
    VTIER_ASSERT(from != to && b.current(from) && !b.current(to) && target.idle(),
                 "a transfer between replicas that are not ready for it");
    this->expect_use_of(source);  // once a copy is enqueued, nothing may fail
    std::vector<event> arrival;
    arrival.reserve(1);
    transfer<event> t;
    t.source = {&this->tiers[from].memory, from, source.offset_bytes};
    t.target = {&this->tiers[to].memory, to, target.offset_bytes};
    t.size_bytes = b.size_bytes();
    t.priority = priority;
    t.source_after = source.written;
    t.target_after = target.uses();
    t.owner = ++last_flight_;
    t.deadline = serving;
    ++this->changes;
    auto handle = this->moving->start(std::move(t));
    auto& link = this->moved[from * this->tiers.size() + to];
    link.start(b, from, to, this->counted.step_count);
    if (to < from) source.prefetched = false;  // it was of use
    if (handle->ended()) {
      arrival.push_back(handle->finished.front());
      if (handle->began) this->speeds.started(from, to, b.size_bytes(), *handle->began, arrival.front());
      source.readers.push_back(arrival.front());
      target.fill_in_order(b.version(), std::move(arrival));
      this->record.enqueued(b, from, to, priority, this->on);
      return true;
    }
    target.begin_fill(b.version());
    ++source.transfers_out;
    link.begin(this->on.now_ns());
    this->flights.insert_or_assign(handle->owner, flight<Device>{handle, &b, from, to, this->record.now_ns(this->on)});
    return false;
  }

  /// Copies a block's bytes to another place in the same tier, in stream order.
  ///
  /// Needs   a tier in memory; a place that does not overlap with its own, and what must pass before that is written
  /// Gives   what must pass before the bytes are read there
  /// Errors  device_error; then nothing was started
  std::vector<event> copy_within(const block_type& b, std::size_t where, std::size_t offset_bytes,
                                 const std::vector<event>& target_after) {
    transfer<event> t;
    t.source = {&this->tiers[where].memory, where, b.in(where).offset_bytes};
    t.target = {&this->tiers[where].memory, where, offset_bytes};
    t.size_bytes = b.size_bytes();
    t.source_after = b.in(where).written;
    t.target_after = target_after;
    return this->moving->start(std::move(t))->finished;
  }

  /// Takes note of transfers that have ended.
  ///
  /// Gives   whether anything changed
  bool collect() {
    ended_.clear();
    const bool changed = this->moving->advance(ended_);
    for (const auto& handle : ended_) conclude(*handle);
    return changed;
  }

  /// Makes the transfers that fill a replica more urgent.
  void hasten_fill(const block_type& b, std::size_t to, urgency priority) {
    for (auto& entry : this->flights) {
      if (entry.second.owner == &b && entry.second.to == to) this->moving->hasten(entry.second.handle, priority);
    }
  }

  /// Stops the transfers that read a replica, as soon as what they have in flight is over.
  void cancel_reads(const block_type& b, std::size_t from) {
    for (auto& entry : this->flights) {
      if (entry.second.owner == &b && entry.second.from == from) this->moving->cancel(*entry.second.handle);
    }
  }

  /// Stops the fetches ahead of need that bring a block up from files, as soon as what they have in flight is over.
  void cancel_prefetches(const block_type& b) {
    for (auto& entry : this->flights) {
      const auto& f = entry.second;
      if (f.owner != &b || f.to > f.from || f.handle->priority != urgency::prefetch) continue;
      this->moving->cancel(*f.handle);
    }
  }

  /// Removes a block whose tensor is gone, once nothing refers to it any more.
  void reclaim(block_type& b) {
    if (!b.dying || b.leases() > 0 || b.wanted > 0) return;
    for (std::size_t i = 0; i < b.tier_count(); ++i) {
      if (b.in(i).filling() || b.in(i).transfers_out > 0) return;
    }
    for (std::size_t i = 0; i < b.tier_count(); ++i) {
      if (!b.in(i).absent()) this->drop(b, i);
    }
    this->blocks.remove(b);
  }

  std::uint64_t serving = 0;  // the deadline of the fetch ahead of need that is being served; 0: none is

  /// Counts the writes to files that have failed; a waiter that sees it move asks for write_failure().
  [[nodiscard]] std::uint64_t write_failure_count() const noexcept { return write_failures_; }
  [[nodiscard]] std::exception_ptr write_failure() const noexcept { return write_failure_; }

  /// Whether the last write to some file tier failed.
  [[nodiscard]] bool writing_fails() const {
    return std::any_of(this->tiers.begin(), this->tiers.end(), [](const auto& t) { return t.write_back_paused; });
  }

  /// The error of the last failed fetch of a block, once.
  [[nodiscard]] std::exception_ptr take_fetch_failure(const block_type& b) noexcept {
    const auto at = fetch_failures_.find(b.id());
    if (at == fetch_failures_.end()) return nullptr;
    auto why = at->second;
    fetch_failures_.erase(at);
    return why;
  }

  /// Nobody waits for a block any more: an error that was kept for a waiter goes to the report.
  void untold(const block_type& b) noexcept {
    if (fetch_failures_.empty()) return;
    if (auto why = take_fetch_failure(b)) this->report_error("a fetch", why);
  }

  /// The errors of failed fetches of a block are nobody's business any more.
  void forget_failures(const block_type& b) noexcept {
    if (!fetch_failures_.empty()) fetch_failures_.erase(b.id());
  }

 private:
  void conclude(const transfer<event>& t) {
    ++this->changes;
    const auto at = this->flights.find(t.owner);
    VTIER_ASSERT(at != this->flights.end(), "a transfer ended that nobody had started");
    const flight<Device> f = at->second;
    this->flights.erase(at);
    this->moved[f.from * this->tiers.size() + f.to].end(this->on.now_ns());
    block_type& b = *f.owner;
    this->record.transfer(b, f.from, f.to, f.began_ns, t.priority, t.state, this->on);
    --b.in(f.from).transfers_out;
    std::vector<event> after = t.finished;
    if (t.state == transfer_state::done) {
      b.in(f.to).finish_fill(std::move(after));
      this->tiers[f.to].write_back_paused = false;
      const auto& source = b.in(f.from);
      if (source.leaving && source.idle() && b.wanted == 0 && !b.dying && !b.sole(f.from)) this->drop(b, f.from);
    } else {
      after.insert(after.end(), t.target_after.begin(), t.target_after.end());
      b.in(f.to).abandon_fill(std::move(after));
      b.in(f.from).leaving = false;
      if (t.error) failed(f, b, t.error);
    }
    reclaim(b);
  }

  void failed(const flight<Device>& f, const block_type& b, const std::exception_ptr& why) {
    const bool writes = this->tiers[f.to].memory.kind() == memory_kind::file;
    if (writes) {
      ++write_failures_;
      write_failure_ = why;
      this->tiers[f.to].write_back_paused = true;
    } else if (b.wanted > 0) {
      fetch_failures_.insert_or_assign(b.id(), why);  // somebody waits for it and will throw it
      return;
    }
    this->report_error(writes ? "a write" : "a fetch", why);
  }

  std::uint64_t last_flight_ = 0;
  std::vector<typename copier<Device>::handle> ended_;
  std::uint64_t write_failures_ = 0;
  std::exception_ptr write_failure_;
  std::map<std::uint64_t, std::exception_ptr> fetch_failures_;
};

}  // namespace vtier::detail
