// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one object that a trainer makes: tiers of memory, fastest first, and the tensors that live in them.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/element.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/shape.hpp>
#include <vtier/device/device.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/policy/eviction.hpp>
#include <vtier/policy/fit.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/policy/plan.hpp>
#include <vtier/policy/schedule_aware.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/residency/tensor.hpp>
#include <vtier/runtime/detail/core.hpp>
#include <vtier/runtime/options.hpp>
#include <vtier/runtime/reservation.hpp>
#include <vtier/runtime/statistics.hpp>
#include <vtier/runtime/timeline.hpp>

namespace vtier {

class health;  // observe/health.hpp
class report;  // observe/report.hpp

namespace detail {

/// What a hierarchy is made of besides its first tier.
template <class P>
concept hierarchy_part = resource<P> || std::same_as<P, options>;

}  // namespace detail

/// Tiers of memory under one scheduler.
///
/// Needs   a device whose streams leases are taken on: that of the hbm tier, or one given first where the fastest tier
///         is host memory. Each tier takes all that is left of its resource's budget
/// Gives   tensors; what the first tier cannot hold is kept in the others, moved in stream order
/// Errors  the constructor: usage_error for limits that do not fit together, out_of_memory, io_error, device_error;
/// then
///         nothing was kept
/// Forks   a forked child may drop its handles, which does nothing; other calls there are usage_errors
/// Threads every member any. The destructor stops the progress thread; tensors and leases that outlive the object
///         keep its memory and go on working, moved by their own calls. Whoever lets the last of them go blocks until
///         file transfers have ended and kernels that used the memory have passed
template <device Device, eviction_policy Eviction = schedule_aware>
class hierarchy {
 public:
  using core_type = detail::core<Device, Eviction>;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  template <element T>
  using tensor = vtier::tensor<T, core_type>;
  using reservation = vtier::reservation<core_type>;

  /// Tiers from fastest to largest, the first being a device's memory; `options` may come last.
  template <detail::hierarchy_part... Parts>
  explicit hierarchy(hbm<Device> first, Parts... parts) : hierarchy{first.on(), first, std::move(parts)...} {}

  /// Tiers without a device's memory of their own: kernels of the device work on the first tier itself.
  template <resource First, detail::hierarchy_part... Parts>
  hierarchy(Device on, First first, Parts... parts) {
    static_assert(1 + sizeof...(Parts) <= 32, "a hierarchy has at most 32 tiers");
    options limits;
    std::vector<std::optional<slab>> made(1 + sizeof...(Parts));
    // Files first: a directory that cannot be used is found before memory is locked for minutes.
    for (const memory_kind kind : {memory_kind::file, memory_kind::device, memory_kind::host}) {
      std::size_t at = 0;
      const auto one = [&](const auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, options>) {
          limits = part;
        } else if (part.kind == kind) {
          made[at].emplace(part.make_slab());
          // A budget is a promise: what the tier cannot have is found out here and not in the middle of a step.
          if (made[at]->properties().grows) made[at]->commit(made[at]->size_bytes());
        }
        ++at;
      };
      one(first);
      (one(parts), ...);
    }
    std::vector<slab> slabs;
    for (auto& m : made) {
      if (m) slabs.push_back(std::move(*m));
    }
    const auto leave = [](core_type* gone) {
      if (gone->here()) delete gone;  // in a forked child it belongs to threads that are not there
    };
    core_ = {new core_type(std::move(on), std::move(slabs), std::move(limits)), leave};
    const auto tell = [&](const auto& part) {
      if constexpr (resource<std::remove_cvref_t<decltype(part)>>) core_->say(part.notes());
    };
    tell(first);
    (tell(parts), ...);
    core_->start_progress();
  }

  hierarchy(const hierarchy&) = delete;
  hierarchy& operator=(const hierarchy&) = delete;

  ~hierarchy() {
    if (core_ != nullptr) core_->stop_progress();
  }

  /// Makes a tensor. It has no bytes anywhere until the first lease that writes.
  ///
  /// Shape   up to 8 extents; zero elements are fine and cost nothing
  /// Errors  usage_error for a shape that 64 bits cannot count; out_of_memory where the tiers cannot hold it beside
  ///         the tensors that exist and beside one more of the largest, with space on the drive reserved for it where
  ///         files will be needed; io_error, device_error
  /// Threads any
  /// Cost    bookkeeping; a tensor that may live in one tier only gets its place there, for which others may have to
  ///         leave, and the host blocks while they are written to files
  template <element T>
  [[nodiscard]] tensor<T> make_tensor(const shape& extents, role what,
                                      std::optional<placement_rule> rule = std::nullopt) {
    return {core_, core_->create(what, extents.bytes(sizeof(T)), rule), extents};
  }

  /// The twin of make_tensor that answers with nothing where there is no room.
  template <element T>
  [[nodiscard]] std::optional<tensor<T>> try_make_tensor(const shape& extents, role what,
                                                         std::optional<placement_rule> rule = std::nullopt) {
    try {
      return make_tensor<T>(extents, what, rule);
    } catch (const out_of_memory&) {
      return std::nullopt;
    }
  }

  /// Asks that a tensor be brought into a tier ahead of need; a hint that never blocks and may be dropped.
  ///
  /// Needs   a tier by number, 0 the fastest
  /// Errors  usage_error for a tier that is not there; what goes wrong later reaches the report
  /// Threads any
  template <element T>
  void prefetch(const tensor<T>& wanted, std::size_t tier = 0) {
    core_->wish(wanted.owned_by(*core_), tier, movement::direction::fetch);
  }

  /// The same with the time by which the bytes should be there. What is needed sooner goes first, a prefetch without a
  /// deadline last, and none pushes out of a tier what a hint has said is needed sooner; a lease still gets its room.
  ///
  /// Units   ns on the device's clock, as `on().now_ns()` gives them; only their order counts
  /// Needs   that the tensor is leased, evicted or the prefetch cancelled some day: until then its bytes hold up
  ///         prefetches that are needed later
  /// Gives   whether it was taken: the list is bounded, and full of more urgent wishes it takes no other
  /// Errors  as above
  /// Threads any
  template <element T>
  bool prefetch(const tensor<T>& wanted, std::size_t tier, std::int64_t deadline_ns) {
    const auto deadline = deadline_ns > 0 ? static_cast<std::uint64_t>(deadline_ns) : std::uint64_t{1};
    return core_->wish(wanted.owned_by(*core_), tier, movement::direction::fetch, deadline);
  }

  /// Takes prefetches of a tensor back, and what was said of its next use. One that reads a file already stops, unless
  /// somebody waits for the tensor; bytes that have arrived stay until others need the room.
  ///
  /// Errors  usage_error for a tensor of another hierarchy
  /// Threads any
  template <element T>
  void cancel_prefetch(const tensor<T>& unwanted) {
    core_->cancel_prefetch(unwanted.owned_by(*core_));
  }

  /// Asks that a tensor leave a tier: dropped there if the newest bytes are elsewhere too, written down first if not. A
  /// hint that never blocks; a tensor under lease stays.
  ///
  /// Errors  as prefetch
  /// Threads any
  template <element T>
  void evict(const tensor<T>& unwanted, std::size_t tier = 0) {
    core_->wish(unwanted.owned_by(*core_), tier, movement::direction::evict);
  }

  /// Writes the newest bytes of a tensor to the slowest tier it may live in, and keeps them where they are.
  ///
  /// Errors  io_error, out_of_memory, device_error; usage_error while a lease on the tensor is in force
  /// Threads any
  /// Cost    the host blocks until the bytes are there
  template <element T>
  void flush(const tensor<T>& kept) {
    core_->flush(kept.owned_by(*core_));
  }

  /// Reserves a share of a tier in memory, evicting for it and waiting if need be.
  ///
  /// Units   bytes, rounded up to the granule of the tier; ns: 0 waits for nothing, but evicts what can leave at once
  /// Gives   bytes that nothing uses any more. Requests for one tier are served in order of asking: a small one that
  ///         comes later waits behind a large one. While one waits, room is gathered for it, which counts as reserved
  /// Errors  out_of_memory at once where tensors that exist would lose the place they were promised even if there were
  ///         no other reservations; when the time is over, with what is free, leased and reserved; usage_error for a
  ///         tier in files or one that is not there; device_error. Nothing is reserved then
  /// Threads any; a thread that waits while it holds what it waits for gets its answer when the time is over
  /// Cost    the host blocks until the bytes are there and earlier uses of them have passed
  [[nodiscard]] reservation reserve(std::size_t tier, std::size_t size_bytes, std::int64_t timeout_ns) {
    return {core_, core_->reserve(tier, size_bytes, timeout_ns)};
  }

  /// Reserves what can be had without waiting and without moving a byte: free bytes and clean copies whose last kernels
  /// have passed.
  ///
  /// Gives   nothing where that is not enough, or where others wait for a reservation in that tier
  /// Errors  usage_error as reserve, device_error
  /// Threads any
  [[nodiscard]] std::optional<reservation> try_reserve(std::size_t tier, std::size_t size_bytes) {
    try {
      return reservation_of(core_->reserve_now(tier, size_bytes, 0));
    } catch (const out_of_memory&) {
      return std::nullopt;
    }
  }

  /// Reserves as many bytes up to size_bytes as try_reserve would give in one piece.
  ///
  /// Gives   at least one granule of the tier, or nothing
  /// Errors  as try_reserve
  /// Threads any
  [[nodiscard]] std::optional<reservation> reserve_up_to(std::size_t tier, std::size_t size_bytes) {
    return reservation_of(core_->reserve_now(tier, size_bytes, 1));
  }

  /// The scope of one training step.
  class step_scope {
   public:
    step_scope(std::shared_ptr<core_type> core, std::string_view name) : core_{std::move(core)} {
      core_->begin_step(name);
    }
    step_scope(const step_scope&) = delete;
    step_scope& operator=(const step_scope&) = delete;
    ~step_scope() { core_->end_step(); }

   private:
    std::shared_ptr<core_type> core_;
  };

  /// Begins a step of a name; it ends with the returned scope.
  ///
  /// The first step of a name is recorded: which leases it takes on streams, in which order, and how long it computes
  /// in between. Of that a plan is made, which later steps of the name follow: what is needed last is evicted first,
  /// what is needed next is fetched ahead, what has changed is written down while the link is idle; prefetch() and
  /// evict() do nothing in the first tier meanwhile. A step that departs from the recorded one is served as it comes,
  /// which the notes of count() say once; where two in a row depart, the next is recorded anew, and after three times
  /// of that in vain none. Where options.plan_steps is off, or the device does not time its events, steps are only
  /// counted.
  ///
  /// Errors  usage_error inside another step; device_error
  /// Cost    the second and third step of a name: the host blocks until the one before is over, and then for up to
  /// about
  ///         a second, while a plan is made. A recorded step records three events for each lease instead of one
  [[nodiscard]] step_scope step(std::string_view name = "step") { return step_scope{core_, name}; }

  /// What was recorded of a kind of step: empty until the step that follows it begins.
  [[nodiscard]] std::optional<step_trace> recorded_step(std::string_view name = "step") const {
    return core_->look([&](const auto& state) { return state.recorded(name); });
  }

  /// The plan that steps of a name follow: empty where there is none. Its bound counts the links whose rate is given in
  /// options.links or was timed; that of files is only estimated, and bounds nothing.
  [[nodiscard]] std::optional<step_plan> plan_of(std::string_view name = "step") const {
    return core_->look([&](const auto& state) { return state.planned(name); });
  }

  /// Whether a step can run within the budgets of this hierarchy, and what is short by how much.
  ///
  /// Errors  usage_error that says what is wrong with the trace
  /// Cost    O(leases)
  [[nodiscard]] step_fit fits(const step_trace& step) const {
    return fit_of(step, core_->look([](const auto& state) { return state.tensor_budgets(); }));
  }

  /// Does what can be done without waiting: for programs that run without the progress thread.
  ///
  /// Gives   whether anything moved
  /// Errors  none; what goes wrong reaches the report
  /// Threads any
  bool poll() { return core_->poll(); }

  /// What has been counted so far, as values.
  [[nodiscard]] statistics count() const { return core_->count(); }

  /// The same in words and tables; needs observe/report.hpp, which tier.hpp includes.
  template <std::same_as<vtier::report> Report = vtier::report>
  [[nodiscard]] Report report() const {
    return Report{count()};
  }

  /// What is wrong with this run or this machine, in words; needs observe/health.hpp, which tier.hpp includes.
  ///
  /// Gives   what is found in everything counted so far, or since an earlier count(): best after a few warm steps
  template <std::same_as<vtier::health> Health = vtier::health>
  [[nodiscard]] Health health() const {
    return Health{count()};
  }
  template <std::same_as<vtier::health> Health = vtier::health>
  [[nodiscard]] Health health(const statistics& before) const {
    return Health{counted_since(before, count())};
  }

  /// What was recorded of single leases, transfers and stalls: nothing unless `options.timeline_events_max` says how
  /// many events are kept. observe/trace.hpp makes a file for Perfetto of it.
  ///
  /// Cost    O(events x log(events)); they are copied under the lock
  [[nodiscard]] vtier::timeline timeline() const { return core_->timeline(); }

  /// Looks for broken rules (bytes shared, budgets exceeded, newest bytes nowhere); a sound hierarchy gives none.
  ///
  /// Cost    O(tensors x tiers), under the lock: for tests and for a bug report
  [[nodiscard]] std::vector<std::string> broken_rules() const { return core_->broken_rules(); }

  [[nodiscard]] std::size_t tier_count() const noexcept { return core_->tier_count(); }
  [[nodiscard]] const Device& on() const noexcept { return core_->on(); }

 private:
  std::optional<reservation> reservation_of(std::optional<typename core_type::share> had) const {
    if (!had) return std::nullopt;
    return reservation{core_, std::move(*had)};
  }

  std::shared_ptr<core_type> core_;
};

template <device Device, class... Parts>
hierarchy(hbm<Device>, Parts...) -> hierarchy<Device>;
template <device Device, resource First, class... Parts>
hierarchy(Device, First, Parts...) -> hierarchy<Device>;

}  // namespace vtier
