// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the handles of a hierarchy call: acquire, release, create, destroy, prefetch, evict, flush.
//
// Handles share the core, so tensors and leases may outlive the hierarchy object. One lock covers all state; a caller
// that has to wait drives the state machine itself and sleeps between looks, without the lock.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/detail/inspect.hpp>
#include <vtier/runtime/detail/scheduler.hpp>
#include <vtier/runtime/prefetch_queue.hpp>
#include <vtier/runtime/progress.hpp>
#include <vtier/topology/sysfs.hpp>

namespace vtier::detail {

/// The state and the verbs of a hierarchy.
///
/// Threads every public member any; they take the lock themselves
template <device Device, eviction_policy Eviction>
class core {
 public:
  using block_type = block<typename Device::event>;
  using event = typename Device::event;
  using stream_ref = typename Device::stream_ref;

  /// What a lease holds.
  struct grant {
    block_type* owned = nullptr;
    std::size_t tier = 0;
    access mode = access::read;
    void* pointer = nullptr;
    std::optional<stream_ref> stream;  // empty: a lease of the host
    std::int64_t began_ns = 0;         // where a timeline is recorded
    step_mark step;
  };

  /// What a reservation holds.
  struct share {
    std::size_t tier = 0;
    std::size_t offset_bytes = 0;
    std::size_t size_bytes = 0;
    std::byte* pointer = nullptr;
    std::string name;  // of the tier
  };

  core(Device on, std::vector<slab> slabs, options limits)
      : state_{std::move(on), std::move(slabs), std::move(limits)} {}

  /// Starts the thread that moves things between calls.
  void start_progress() {
    if (!state_.limits.progress_thread) return;
    std::vector<unsigned> cpus = state_.limits.progress_cpus;
    for (const auto& t : state_.tiers) {
      const auto& p = t.memory.properties();
      if (cpus.empty() && p.kind == memory_kind::host && p.node) cpus = cpus_of_memory(*p.node);
    }
    thread_ = std::make_unique<progress>([this] { return work(); }, std::move(cpus), state_.remarks);
  }

  /// Stops it; from here on things move during calls only.
  void stop_progress() noexcept {
    if (!here()) return;
    std::unique_ptr<progress> gone;  // joined without the lock, which the thread may be waiting for
    const std::scoped_lock hold{state_.lock};
    gone.swap(thread_);
    state_.lock.unlock();
    gone.reset();
    state_.lock.lock();
  }

  grant acquire(block_type& b, access mode, stream_ref stream) { return take(b, mode, 0, std::move(stream)); }
  grant acquire(block_type& b, access mode, on_host_t) { return take(b, mode, host_tier(b), std::nullopt); }

  template <class Where>
  std::optional<grant> try_acquire(block_type& b, access mode, Where where) {
    try {
      return acquire(b, mode, std::move(where));
    } catch (const out_of_memory&) {
      return std::nullopt;
    }
  }

  void release(grant& g) noexcept {
    if (!here()) return;
    std::optional<event> after;
    bool timed = g.step.recorded != no_use;
    if (g.stream) {
      after = end_of_work(*g.stream, timed);
      if (!after) return;  // the device is gone: the bytes stay where they are, leased for good
    }
    const std::scoped_lock hold{state_.lock};
    block_type& b = *g.owned;
    state_.record.lease(b, g.tier, g.mode, !g.stream, g.began_ns, state_.on);
    b.end_lease(g.tier, g.mode, timed ? after : std::move(after));
    ++state_.changes;
    if (g.step.step != 0) state_.lease_ended(g.step, b, timed ? std::move(after) : std::nullopt);
    state_.reclaim(b);
    if (state_.reservations_wait()) static_cast<void>(state_.serve_reservations());
    if (thread_ && (state_.reservations_wait() || state_.wants_drain())) thread_->wake();
  }

  share reserve(std::size_t tier, std::size_t size_bytes, std::int64_t timeout_ns) {
    check_process();
    std::unique_lock hold{state_.lock};
    return share_of(tier, state_.reserve(hold, tier, size_bytes, timeout_ns));
  }

  /// Empty where not even least_bytes (0: all of them) are there for the taking.
  std::optional<share> reserve_now(std::size_t tier, std::size_t size_bytes, std::size_t least_bytes) {
    check_process();
    const std::scoped_lock hold{state_.lock};
    static_cast<void>(round("a reservation"));
    const std::size_t all = tier < state_.tiers.size() ? state_.tiers[tier].map.capacity_bytes() : size_bytes;
    const std::size_t most = state_.reservable_bytes(tier, least_bytes == 0 ? size_bytes : (std::min)(size_bytes, all));
    auto place = state_.reserve_now(
        tier, most, least_bytes == 0 ? most : align_up(least_bytes, state_.tiers[tier].map.granule_bytes()));
    if (!place) return std::nullopt;
    return share_of(tier, std::move(*place));
  }

  void release(const share& gone, std::span<const stream_ref> streams) noexcept {
    if (!here()) return;
    std::vector<event> after;
    for (const stream_ref& stream : streams) {
      auto end = end_of_work(stream);
      if (!end) return;  // the device is gone: the bytes stay reserved for good
      try {
        after.push_back(std::move(*end));
      } catch (...) {
        say_error("ending a reservation; it stays", std::current_exception());
        return;
      }
    }
    const std::scoped_lock hold{state_.lock};
    state_.give_back(gone.tier, gone.offset_bytes, gone.size_bytes, std::move(after));
    if (thread_ && state_.wants_drain()) thread_->wake();
  }

  block_type& create(role what, std::size_t size_bytes, std::optional<placement_rule> rule) {
    check_process();
    std::unique_lock hold{state_.lock};
    block_type& b = state_.create(what, size_bytes, rule);
    // What can live in one tier only can never make way there: its place is found now or never.
    if (const auto only = state_.only_tier(b)) {
      try {
        const want keep{state_, b};
        state_.bring(hold, b, access::write, *only);
      } catch (...) {
        state_.destroy(b);
        throw;
      }
    }
    return b;
  }

  void destroy(block_type& b) noexcept {
    if (!here()) return;
    const std::scoped_lock hold{state_.lock};
    state_.queue.forget(b.id());
    state_.tensor_dies(b);
    state_.destroy(b);
  }

  bool wish(block_type& b, std::size_t tier, movement::direction way, std::uint64_t deadline = no_deadline) {
    check_process();
    const std::scoped_lock hold{state_.lock};
    const bool taken = state_.wish(b, tier, way, deadline);
    static_cast<void>(round("a hint"));
    if (thread_) thread_->wake();
    return taken;
  }

  void cancel_prefetch(block_type& b) {
    check_process();
    const std::scoped_lock hold{state_.lock};
    state_.cancel_prefetch(b);
    static_cast<void>(round("a hint"));
    if (thread_) thread_->wake();
  }

  void flush(block_type& b) {
    check_process();
    std::unique_lock hold{state_.lock};
    state_.flush(hold, b);
  }

  bool poll() noexcept { return here() && work() == progress_state::moved; }

  [[nodiscard]] std::size_t tier_count() const noexcept { return state_.tiers.size(); }
  [[nodiscard]] const Device& on() const noexcept { return state_.on; }

  void begin_step(std::string_view name) {
    check_process();
    std::unique_lock hold{state_.lock};
    state_.begin_step(hold, name);
  }

  void end_step() noexcept {
    if (!here()) return;
    const std::scoped_lock hold{state_.lock};
    state_.end_step();
  }

  template <class Function>
  [[nodiscard]] auto look(Function&& function) {
    check_process();
    const std::scoped_lock hold{state_.lock};
    return function(std::as_const(state_));
  }

  [[nodiscard]] statistics count() {
    check_process();
    const std::scoped_lock hold{state_.lock};
    statistics result = count_of<Device>(state_);
    state_.count_steps(result);
    if (thread_) result.progress_cpus = thread_->bound();
    return result;
  }

  [[nodiscard]] vtier::timeline timeline() {
    check_process();
    std::unique_lock hold{state_.lock};
    vtier::timeline result = timeline_of<Device>(state_);
    hold.unlock();
    in_order_of_begin(result);
    return result;
  }

  [[nodiscard]] std::vector<std::string> broken_rules() {
    check_process();
    const std::scoped_lock hold{state_.lock};
    return broken_rules_of<Device>(state_);
  }

  void say(const std::vector<std::string>& remarks) {
    for (const std::string& remark : remarks) state_.remarks.say(remark);
  }

  /// Whether this is the process that the hierarchy was made in, and not a forked child of it.
  [[nodiscard]] bool here() const noexcept { return mark_.here(); }

 private:
  void check_process() const {
    if (!here()) {
      throw usage_error(
          "this process was forked from the one that made the hierarchy, whose threads and device it does not have: "
          "make a hierarchy of its own after the fork, or start the child by exec");
    }
  }

  [[nodiscard]] std::size_t host_tier(const block_type& b) {
    if (b.size_bytes() == 0) return 0;
    check_process();
    const std::scoped_lock hold{state_.lock};
    return state_.host_tier(b);
  }

  // The event that marks the end of a lease or a reservation. Where the device gives none, the host waits for the
  // stream instead; empty where even that fails.
  std::optional<event> end_of_work(const stream_ref& stream) noexcept {
    bool timed = false;
    return end_of_work(stream, timed);
  }
  std::optional<event> end_of_work(const stream_ref& stream, bool& timed) noexcept {
    try {
      return vtier::record(state_.on, stream, timed);
    } catch (...) {
      timed = false;
      try {
        say_error("ending a lease", std::current_exception());
        state_.on.synchronize(stream);
        return event{};
      } catch (...) {
        say_error("ending a lease; its tensor stays leased", std::current_exception());
        return std::nullopt;
      }
    }
  }

  void say_error(const char* when, const std::exception_ptr& what) noexcept {
    const std::scoped_lock hold{state_.lock};
    state_.report_error(when, what);
  }

  grant take(block_type& b, access mode, std::size_t where, std::optional<stream_ref> stream) {
    check_process();
    std::unique_lock hold{state_.lock};
    const want keep{state_, b};
    const bool timed = stream && where == 0 && state_.times();
    const std::int64_t asked_ns = timed ? state_.on.now_ns() : 0;
    std::int64_t had_ns = asked_ns;
    std::optional<event> before, after;
    if (!thread_) state_.pump();
    ++state_.counted.lease_count;
    state_.check_compatible(b, mode);
    if (!state_.rule_of(b).allows(where) && b.size_bytes() > 0) {
      throw usage_error(
          "tensor #" + std::to_string(b.id()) + " (" + std::string{name(b.what())} + ", " +
          format_bytes(b.size_bytes()) + ") may not live in " + state_.tiers[where].name() +
          ", where leases on a stream are: allow that tier in its placement_rule, or take a lease on_host");
    }
    if (b.size_bytes() > 0) {
      const bool was_prefetched = b.in(where).prefetched;
      if (b.current(where) || (!reads(mode) && b.in(where).resident())) {
        ++state_.counted.hit_count;
        if (was_prefetched) ++state_.counted.prefetch_hit_count;
      }
      if (!state_.queue.empty()) state_.queue.forget(b.id());  // what was wished is overtaken by what is done
      if (stream && where == 0 && b.in(0).absent()) state_.lease_comes(b, mode);
      state_.bring(hold, b, mode, where);
      // A lease of the host begins when all earlier uses of the place have passed; meanwhile things may change again.
      while (!stream) {
        std::vector<event> uses = writes(mode) ? b.in(where).uses() : b.in(where).written;
        std::erase_if(uses, [this](const event& e) { return state_.passed(e); });
        if (uses.empty()) break;
        state_.settle(hold, b, where, std::move(uses));
        state_.bring(hold, b, mode, where);
      }
    }
    auto& r = b.in(where);
    r.written.reserve(1);  // so that the end of the lease needs no memory
    state_.expect_use_of(r);
    if (timed) {
      had_ns = state_.on.now_ns();
      before = vtier::record(state_.on, *stream, true);
    }
    if (stream) {
      for (const event& e : r.written) state_.on.wait(*stream, e);
      if (writes(mode)) {
        for (const event& e : r.readers) state_.on.wait(*stream, e);
      }
    }
    if (timed) after = vtier::record(state_.on, *stream, true);
    std::byte* const pointer = state_.address(b, where);
    if (b.leases() == 0) b.leased_since_ns = state_.on.now_ns();
    b.begin_lease(where, mode, ++state_.tick);
    ++state_.changes;
    if (writes(mode)) {
      // What is being written down from elsewhere is old by now.
      for (std::size_t i = 0; i < b.tier_count(); ++i) {
        if (b.in(i).transfers_out > 0) state_.cancel_reads(b, i);
      }
    }
    grant given{&b, where, mode, pointer, std::move(stream), state_.record.now_ns(state_.on), {}};
    if (given.stream && where == 0) {
      given.step = state_.lease_began(b, mode, std::move(before), std::move(after), had_ns - asked_ns);
    }
    return given;
  }

  share share_of(std::size_t tier, taken_range<event> place) const {
    const auto& t = state_.tiers[tier];
    return {tier, place.offset_bytes, place.size_bytes, t.memory.base() + place.offset_bytes, t.name()};
  }

  progress_state work() noexcept {
    const std::scoped_lock hold{state_.lock};
    return round("work between calls");
  }

  // One round on nobody's behalf, under the lock: what goes wrong reaches the report.
  progress_state round(const char* what) noexcept {
    try {
      if (state_.pump()) return progress_state::moved;
      const bool idle = state_.queue.empty() && state_.moving->idle() && !state_.reservations_wait();
      return idle ? progress_state::idle : progress_state::waiting;
    } catch (...) {
      state_.report_error(what, std::current_exception());
      return progress_state::waiting;
    }
  }

  const process_mark mark_;
  scheduler<Device, Eviction> state_;
  std::unique_ptr<progress> thread_;
};

}  // namespace vtier::detail
