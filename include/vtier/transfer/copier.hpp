// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs transfers: copies in stream order between memories, and chunked pipelines between memory and files.
//
// A state machine with no thread of its own: advance() looks at what has ended and starts what can start, and never
// blocks. Each chunk is checked by itself; a short transfer asks for its missing rest; no completion is counted twice.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/timed_device.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/memory/ranges.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/transfer/detail/pieces.hpp>
#include <vtier/transfer/route.hpp>
#include <vtier/transfer/transfer.hpp>

namespace vtier {

/// Runs transfers between slabs.
///
/// Needs   staging memory that the device can copy from and to; one file engine for each tier in files (null elsewhere)
/// Errors  a transfer that fails says so in its own state; the copier goes on
/// Threads one at a time
/// Cost    no allocation for a copy between memories beyond its event; bounded by slots and engine depths otherwise
template <device Device>
class copier {
 public:
  using event = typename Device::event;
  using transfer_type = transfer<event>;
  using handle = std::shared_ptr<transfer_type>;

  copier(Device on, std::byte* staging, staging_shape staging_slots, std::vector<io::engine*> engines)
      : on_{std::move(on)},
        up_{on_.make_stream()},
        down_{on_.make_stream()},
        staging_{staging},
        shape_{staging_slots},
        slots_(staging_slots.slot_count),
        engines_{std::move(engines)},
        refuses_(engines_.size()) {}

  copier(const copier&) = delete;
  copier& operator=(const copier&) = delete;

  /// Cancels what is queued and waits for what is in flight.
  ~copier() {
    try {
      for (const handle& t : active_) cancel(*t);
      std::vector<handle> ended;
      while (!active_.empty() || !pieces_.empty()) {
        if (!advance(ended)) wait(1'000'000);
      }
      on_.synchronize(up_);
      on_.synchronize(down_);
    } catch (...) {  // the device is gone; the drive is not, and has memory of ours until it has answered
      for (io::engine* engine : engines_) detail::drain(engine);
    }
  }

  /// Starts a transfer. Between two memories it is enqueued at once and `state` is done on return; with a file on one
  /// side it proceeds as advance() is called.
  ///
  /// Errors  device_error; then nothing was started
  handle start(transfer_type wanted) {
    auto t = std::make_shared<transfer_type>(std::move(wanted));
    t->way = route_of(t->source.memory->kind(), t->target.memory->kind());
    t->sequence = ++last_sequence_;
    if (t->way.first == hop::device_copy && !t->way.staged) {
      auto& stream = t->target.memory->kind() == memory_kind::device ? up_ : down_;
      for (const event& e : t->source_after) on_.wait(stream, e);
      for (const event& e : t->target_after) on_.wait(stream, e);
      t->finished.reserve(1);
      if (times_copies) t->began = record(on_, stream, true);
      on_.copy(stream, detail::address(t->target, 0), detail::address(t->source, 0), t->size_bytes,
               detail::direction(t->source.memory->kind(), t->target.memory->kind()));
      t->finished.push_back(mark(stream, times_copies));
      t->state = transfer_state::done;
      return t;
    }
    VTIER_ASSERT(!t->way.staged || !slots_.empty(), "a staged transfer in a hierarchy without staging");
    t->chunk_total = chunk_count(t->size_bytes, shape_.chunk_bytes);
    const auto place = std::upper_bound(active_.begin(), active_.end(), t, detail::before<event>);
    active_.insert(place, t);
    return t;
  }

  /// Makes a queued transfer more urgent.
  void hasten(const handle& t, urgency priority) {
    if (t->ended() || priority >= t->priority) return;
    t->priority = priority;
    std::stable_sort(active_.begin(), active_.end(), detail::before<event>);
  }

  /// Lets a transfer end as soon as what it has in flight has ended.
  void cancel(transfer_type& t) noexcept {
    t.cancelled = true;
    t.stopped = true;
  }

  /// Does what can be done without waiting; appends the transfers that have ended.
  ///
  /// Gives   whether anything changed
  bool advance(std::vector<handle>& ended) {
    refuses_.assign(engines_.size(), false);
    bool changed = reap();
    changed = watch_copies() || changed;
    changed = resubmit() || changed;
    changed = issue() || changed;
    for (auto at = active_.begin(); at != active_.end();) {
      transfer_type& t = **at;
      if (t.outstanding == 0 && (t.stopped || t.chunk_next == t.chunk_total)) {
        detail::conclude(t);
        ended.push_back(*at);
        at = active_.erase(at);
        changed = true;
      } else {
        ++at;
      }
    }
    return changed;
  }

  /// Blocks until file I/O has something to tell, or the time has passed; where no drive has anything, for a moment.
  void wait(std::int64_t timeout_ns) {
    constexpr std::int64_t moment_ns = 20'000;
    for (io::engine* engine : engines_) {
      if (engine != nullptr && engine->in_flight() > 0) return engine->wait(timeout_ns);
    }
    on_.pause((std::min)(timeout_ns, moment_ns));
  }

  /// Whether nothing is queued or in flight.
  [[nodiscard]] bool idle() const noexcept { return active_.empty() && pieces_.empty(); }

  /// Whether a write to files is queued or in flight.
  [[nodiscard]] bool writing() const noexcept {
    return std::any_of(active_.begin(), active_.end(),
                       [](const handle& t) { return t->target.memory->kind() == memory_kind::file; });
  }

  bool times_copies = false;  // whether copies between memories are timed

 private:
  using phase = detail::phase;
  using piece = detail::piece<event>;
  static constexpr auto no_slot = detail::no_slot;

  // The event behind a copy that was just enqueued; without one the host waits for the stream before it passes the
  // error on, because nobody would know when its memory is free again.
  event mark(typename Device::stream& stream, bool timed = false) const {
    try {
      return record(on_, stream, timed);
    } catch (...) {
      on_.synchronize(stream);
      throw;
    }
  }

  [[nodiscard]] bool all_passed(std::vector<event>& events) const {
    forget_passed(events, [this](const event& e) { return on_.passed(e); });
    return events.empty();
  }

  std::byte* slot_address(std::size_t slot) const noexcept { return staging_ + slot * shape_.chunk_bytes; }

  // The memory that its present file hop reads into or writes from.
  std::byte* memory_side(const piece& p) const {
    if (p.slot != no_slot) return slot_address(p.slot);
    return detail::address(p.now == phase::reading ? p.owner->target : p.owner->source, p.part.offset_bytes);
  }

  void fail(piece& p, std::exception_ptr why) noexcept {
    if (!p.owner->error) p.owner->error = std::move(why);
    p.owner->stopped = true;
    release(p);
  }

  // The piece is over for its transfer; its slot too.
  void release(piece& p) noexcept {
    if (p.slot != no_slot) slots_[p.slot] = false;
    p.slot = no_slot;
    --p.owner->outstanding;
    p.owner = nullptr;
  }

  bool submit(piece& p) {
    const endpoint& file = detail::file_side(p);
    if (refuses_[file.tier]) return false;
    const file_place place = file.memory->locate(file.offset_bytes + p.part.offset_bytes + p.done_bytes);
    file_request request;
    request.descriptor = place.descriptor;
    request.operation = p.now == phase::reading ? file_operation::read : file_operation::write;
    request.offset_bytes = place.offset_bytes;
    request.memory = {memory_side(p) + p.done_bytes,
                      (std::min)(p.part.padded_bytes - p.done_bytes, place.contiguous_bytes)};
    request.tag = p.tag;
    p.submitted = engines_[file.tier]->try_submit(request);
    refuses_[file.tier] = !p.submitted;
    return p.submitted;
  }

  bool reap() {
    bool changed = false;
    std::array<file_completion, 64> completions;
    for (io::engine* engine : engines_) {
      if (engine == nullptr) continue;
      for (;;) {
        const std::size_t count = engine->reap(completions);
        for (std::size_t i = 0; i < count; ++i) completed(completions[i]);
        changed = changed || count > 0;
        if (count < completions.size()) break;
      }
    }
    return changed;
  }

  void completed(const file_completion& done) {
    const auto at =
        std::find_if(pieces_.begin(), pieces_.end(), [&](const piece& p) { return p.submitted && p.tag == done.tag; });
    if (at == pieces_.end()) return;  // nobody's any more: a completion is counted for its own request only
    piece& p = *at;
    p.submitted = false;
    const endpoint& file = detail::file_side(p);
    const std::size_t wanted = p.part.padded_bytes - p.done_bytes;
    const std::size_t got = done.result > 0 ? static_cast<std::size_t>(done.result) : 0;
    const std::size_t alignment = file.memory->properties().offset_alignment_bytes;
    // Direct I/O goes on at an aligned place only: what lies beyond the last whole unit is asked for again.
    const std::size_t usable =
        p.done_bytes + got >= p.part.padded_bytes ? wanted : align_down(p.done_bytes + got, alignment) - p.done_bytes;
    if (detail::interrupted(p, done.result)) return;  // resubmit() asks again
    if (done.result < 0 || usable == 0) {
      fail(p, detail::transfer_error(p.now == phase::reading, file, p.part.offset_bytes + p.done_bytes, wanted,
                                     done.result));
      pieces_.erase(at);
      return;
    }
    p.done_bytes += usable;
    if (p.done_bytes < p.part.padded_bytes) return;  // resubmit() asks for the rest
    arrived(at);
  }

  // The present file hop of a piece has moved all its bytes.
  void arrived(typename std::vector<piece>::iterator at) {
    piece& p = *at;
    transfer_type& t = *p.owner;
    if (p.now == phase::writing || !t.way.staged) {
      release(p);
      pieces_.erase(at);
      return;
    }
    if (t.way.second == hop::file_write) {  // from file to file: the same slot goes out again
      p.now = phase::writing;
      p.done_bytes = 0;
      return;
    }
    try {
      t.finished.reserve(1);
      for (const event& e : t.target_after) on_.wait(up_, e);
      on_.copy(up_, detail::address(t.target, p.part.offset_bytes), slot_address(p.slot), p.part.size_bytes,
               copy_direction::host_to_device);
      p.copied = mark(up_);
      t.target_after.clear();
      t.finished.assign(1, p.copied);
      p.now = phase::copying_up;
      --t.outstanding;  // in stream order from here on; only the slot waits
      p.owner = nullptr;
    } catch (...) {
      fail(p, std::current_exception());
      pieces_.erase(at);
    }
  }

  bool watch_copies() {
    bool changed = false;
    for (auto at = pieces_.begin(); at != pieces_.end();) {
      if ((at->now != phase::copying_up && at->now != phase::copying_down) || !on_.passed(at->copied)) {
        ++at;
        continue;
      }
      changed = true;
      at->copied = event{};
      if (at->now == phase::copying_down) {
        at->now = phase::writing;
        ++at;
      } else {
        slots_[at->slot] = false;
        at = pieces_.erase(at);
      }
    }
    return changed;
  }

  // Asks for what is missing of pieces that are on their way, the most urgent first.
  bool resubmit() {
    const auto waits = [](const piece& p) {
      return !p.submitted && (p.now == phase::reading || p.now == phase::writing);
    };
    if (std::none_of(pieces_.begin(), pieces_.end(), waits)) return false;
    std::sort(pieces_.begin(), pieces_.end(), detail::goes_before<event>);
    bool changed = false;
    for (auto at = pieces_.begin(); at != pieces_.end();) {
      try {
        if (waits(*at)) changed = submit(*at) || changed;
        ++at;
      } catch (...) {  // the engine itself is broken
        fail(*at, std::current_exception());
        at = pieces_.erase(at);
        changed = true;
      }
    }
    return changed;
  }

  bool issue() {
    bool changed = false;
    for (const handle& t : active_) {
      while (!t->stopped && t->chunk_next < t->chunk_total && issue_chunk(t)) changed = true;
    }
    return changed;
  }

  bool issue_chunk(const handle& t) {
    const bool reads_file = t->way.first == hop::file_read;
    const std::size_t engine_tier = reads_file ? t->source.tier : t->target.tier;
    const io::engine& engine = *engines_[engine_tier];
    const bool full = refuses_[engine_tier] || engine.in_flight() >= engine.depth_max();
    if (t->way.first != hop::device_copy && full) return false;
    // What the host or the file engine touches must be settled; a copy to the device waits in its stream instead.
    if (t->chunk_next == 0 && !all_passed(t->source_after)) return false;
    if (t->chunk_next == 0 && t->target.memory->kind() != memory_kind::device && !all_passed(t->target_after))
      return false;

    pieces_.reserve(pieces_.size() + 1);  // once the engine has a request, nothing may fail
    piece p;
    if (t->way.staged) {
      p.slot = detail::take_slot(slots_, t->priority);
      if (p.slot == no_slot) return false;
    }
    const std::size_t alignment = (std::max)(t->source.memory->properties().offset_alignment_bytes,
                                             t->target.memory->properties().offset_alignment_bytes);
    p.owner = t;
    p.part = chunk_at(t->chunk_next, t->size_bytes, shape_.chunk_bytes, alignment);
    p.tag = ++last_tag_;
    ++t->chunk_next;
    ++t->outstanding;
    try {
      if (t->way.first == hop::device_copy) {
        on_.copy(down_, slot_address(p.slot), detail::address(t->source, p.part.offset_bytes), p.part.size_bytes,
                 copy_direction::device_to_host);
        p.copied = mark(down_);
        p.now = phase::copying_down;
      } else {
        p.now = reads_file ? phase::reading : phase::writing;
        if (!submit(p)) {  // as if it had not been tried: something more urgent may come before the next time
          --t->chunk_next;
          release(p);
          return false;
        }
      }
      t->state = transfer_state::running;
      pieces_.push_back(std::move(p));
    } catch (...) {
      fail(p, std::current_exception());
      return false;
    }
    return true;
  }

  Device on_;
  typename Device::stream up_;
  typename Device::stream down_;
  std::byte* staging_;
  staging_shape shape_;
  std::vector<bool> slots_;  // whether taken
  std::vector<io::engine*> engines_;
  std::vector<bool> refuses_;   // in this round, by tier: it takes no more requests
  std::vector<handle> active_;  // by urgency, then in order of starting
  std::vector<piece> pieces_;
  std::uint64_t last_tag_ = 0;
  std::uint64_t last_sequence_ = 0;
};

}  // namespace vtier
