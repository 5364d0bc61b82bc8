// SPDX-License-Identifier: Apache-2.0
#pragma once

// Steps: the first of a name is recorded, a plan is made of it, and later ones follow that as long as they are like it.
//
// A plan is followed in the order of the program: what it says for a moment is enqueued when the caller comes there,
// and the streams see to the rest. A step that departs from the recorded one is served as if nothing were known; the
// next begins anew, and where that departs too, the one after it is recorded.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/clock.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/timed_device.hpp>
#include <vtier/policy/plan.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/runtime/detail/schedule.hpp>
#include <vtier/runtime/detail/surveyor.hpp>

namespace vtier::detail {

/// State that records steps and follows plans.
///
/// Threads every member under `lock`, which begin_step gives up while it waits or plans
template <device Device, eviction_policy Eviction>
class scheduler : public surveyor<Device, Eviction> {
 public:
  using typename surveyor<Device, Eviction>::block_type;
  using typename surveyor<Device, Eviction>::event;
  using surveyor<Device, Eviction>::surveyor;

  /// Errors  usage_error inside another step; device_error where the recorded step has failed on the device
  void begin_step(std::unique_lock<std::mutex>& hold, std::string_view name) {
    if (stepping_) throw usage_error("a step began inside another: end the first before the next begins");
    stepping_ = true;
    try {
      prepare(hold, name);
    } catch (...) {
      leave_step();
      throw;
    }
    step_began_ns_ = this->on.now_ns();
  }

  void end_step() noexcept {
    const std::int64_t took = this->on.now_ns() - step_began_ns_;
    ++this->counted.step_count;
    this->counted.step_ns += took;
    this->record.step(this->counted.step_count, step_began_ns_, this->on);
    if (active_ != nullptr) {
      ++active_->step_count;
      active_->last_step_ns = took;
      try {
        conclude_step();
      } catch (...) {
        this->report_error("the end of a step", std::current_exception());
      }
    }
    leave_step();
  }

  /// As driver::wish; while a plan is followed nothing is moved into or out of the first tier against it.
  bool wish(block_type& b, std::size_t tier, movement::direction way, std::uint64_t deadline) {
    if (tier == 0 && follow_.under_way()) return true;
    return surveyor<Device, Eviction>::wish(b, tier, way, deadline);
  }

  /// Whether a lease that begins now on a stream is to be timed.
  [[nodiscard]] bool times() const noexcept { return recording_ != nullptr; }

  /// A lease on a stream is asked for, and the tensor is in no place of the first tier: it is to get the plan's.
  void lease_comes(block_type& b, access mode) noexcept {
    const auto lease = follow_.under_way() ? follow_.next_lease(b, mode) : std::nullopt;
    if (lease) b.wanted_offset_bytes = placed(active_->plan->lease_places[*lease]);
  }

  /// A lease on a stream has begun in the first tier; `after` is empty where it is not timed.
  step_mark lease_began(block_type& b, access mode, std::optional<event> before, std::optional<event> after,
                        std::int64_t blocked_ns) noexcept {
    step_mark mark;
    if (active_ == nullptr) aligned_ = nullptr;
    if (active_ == nullptr || b.size_bytes() == 0) return mark;
    mark.step = serial_;
    try {
      if (recording_ != nullptr && after) {
        mark.recorded = recording_->began(b, mode, std::move(before), std::move(*after), blocked_ns);
      }
      if (!follow_.under_way()) return mark;
      if (const auto lease = follow_.begins(b, mode)) {
        mark.followed = *lease;
        act();
      } else {
        depart("a lease on " + std::string{vtier::name(b.what())} + " #" + std::to_string(b.id()) + " of " +
               format_bytes(b.size_bytes()));
      }
    } catch (...) {
      give_up("following a step", std::current_exception());
    }
    return mark;
  }

  /// A lease with that mark has ended.
  void lease_ended(const step_mark& mark, block_type& b, std::optional<event> after) noexcept {
    if (active_ == nullptr || mark.step != serial_) return;
    try {
      if (recording_ != nullptr && mark.recorded != no_use) recording_->ended(mark.recorded, std::move(after));
      if (!follow_.under_way()) return;
      if (mark.followed == no_use || !follow_.ends(mark.followed)) {
        return depart("the end of a lease on " + std::string{vtier::name(b.what())} + " #" + std::to_string(b.id()));
      }
      const schedule<Device>& s = *active_;
      const std::uint32_t next = s.next_begin[mark.followed];
      const std::uint32_t tensor = s.trace.leases[mark.followed].tensor;
      b.next_use = next != no_use                 ? point(next)
                   : s.trace.tensors[tensor].born ? unknown_use
                                                  : point(s.first_begin[tensor], 1);
      act();
    } catch (...) {
      give_up("following a step", std::current_exception());
    }
  }

  /// A tensor is about to go.
  void tensor_dies(const block_type& b) noexcept {
    if (recording_ != nullptr) recording_->died(b);
  }

  /// What was recorded under a name, empty where nothing was or its times are not read yet.
  [[nodiscard]] std::optional<step_trace> recorded(std::string_view name) const {
    const auto at = schedules_.find(name);
    if (at == schedules_.end() || at->second.timed_count == 0) return std::nullopt;
    return at->second.trace;
  }
  [[nodiscard]] std::optional<step_plan> planned(std::string_view name) const {
    const auto at = schedules_.find(name);
    return at == schedules_.end() ? std::nullopt : at->second.plan;
  }

  /// Adds what is known of steps and of the speed of copies.
  void count_steps(statistics& to) const {
    for (const auto& [name, s] : schedules_) {
      schedule_statistics one;
      one.name = name;
      one.planned = s.plan.has_value();
      one.step_count = s.step_count;
      one.deviation_count = s.departure_count;
      one.last_step_ns = s.last_step_ns;
      one.compute_ns = s.trace.duration_ns;
      one.plan_ns = s.plan_ns;
      if (s.plan) {
        one.bound_ns = static_cast<std::int64_t>(s.plan->bound.ns());
        one.planned_ns = static_cast<std::int64_t>(s.plan->step_ns);
      }
      to.schedules.push_back(std::move(one));
    }
    for (link_statistics& l : to.links) {
      if (l.limit_bytes_per_ns <= 0.0) l.limit_bytes_per_ns = this->speeds.of(l.from, l.to).value_or(0.0);
    }
  }

 private:
  static constexpr std::uint32_t timed_steps = 2;     // the first is also the one in which everything is slow once
  static constexpr std::uint32_t departures_max = 2;  // in a row, before a step is recorded anew
  static constexpr std::uint32_t renewals_max = 3;    // without a step that was followed, before that is given up

  // A moment of this step, or of a later one, on the device's clock as far as that can be foreseen.
  [[nodiscard]] std::uint64_t point(std::uint32_t moment, int steps_ahead = 0) const noexcept {
    const std::int64_t step_ns = static_cast<std::int64_t>(active_->plan->step_ns);
    return static_cast<std::uint64_t>(follow_began_ns_ + steps_ahead * step_ns + active_->trace.moment_ns[moment]);
  }

  void prepare(std::unique_lock<std::mutex>& hold, std::string_view name) {
    if (!this->limits.plan_steps || this->tiers.size() < 2) return;
    if constexpr (timed_device<Device>) {
      auto found = schedules_.find(name);
      if (found == schedules_.end()) found = schedules_.emplace(std::string{name}, schedule<Device>{}).first;
      schedule<Device>& s = found->second;
      s.name = found->first;
      if (s.pending) read_times(hold, s);
      // Rates are those of the recorded step: what is measured all the time would mean a new plan all the time.
      if (s.timed_count > 0 && (s.is_new || this->budgets_now(s) != s.limits.budget_bytes)) make(hold, s);
      ++serial_;
      active_ = &s;
      if (s.departed_count >= departures_max) {
        forget(s);
        if (++s.renewed_count == renewals_max) {
          this->remarks.say("the step \"" + s.name +
                            "\" is another one each time (or its leases come from several threads): it is not planned; "
                            "give each kind a name of its own");
        }
      }
      if (s.renewed_count >= renewals_max) return;
      if (s.timed_count < timed_steps) {
        recording_ =
            std::make_unique<step_recording<Device>>(this->tiers.front().map.granule_bytes(), this->blocks.last_id());
        this->moving->times_copies = true;
      }
      const bool aligned = std::exchange(aligned_, nullptr) == &s;
      if (!s.plan) return;
      follow_.granule_bytes = this->tiers.front().map.granule_bytes();
      follow_.start(s, this->blocks.last_id());
      follow_began_ns_ = (std::max)(this->on.now_ns(), follow_began_ns_ + static_cast<std::int64_t>(s.plan->step_ns));
      if (!aligned) align(s);
    } else {
      this->remarks.say("this device does not time its events: steps are not planned");
    }
  }

  // No step is under way any more.
  void leave_step() noexcept {
    stepping_ = false;
    active_ = nullptr;
    recording_ = nullptr;
    this->moving->times_copies = false;
    follow_.stop();
  }

  // What was recorded becomes a trace.
  void read_times(std::unique_lock<std::mutex>& hold, schedule<Device>& s) requires timed_device<Device> {
    const std::unique_ptr<step_recording<Device>> done = std::move(s.pending);
    const std::vector<event> marks = done->marks();
    hold.unlock();
    try {
      for (const event& e : marks) this->on.synchronize(e);
    } catch (...) {
      hold.lock();
      throw;
    }
    hold.lock();
    this->speeds.settle(this->on);
    s.trace = done->trace(this->on);
    s.blocks = done->blocks();
    s.modes = done->modes();
    s.plan.reset();
    s.is_new = true;
    ++s.timed_count;
  }

  void make(std::unique_lock<std::mutex>& hold, schedule<Device>& s) {
    s.limits = this->limits_now(s);
    s.is_new = false;
    s.plan.reset();
    s.first_byte = this->first_piece(s).first;
    if (s.trace.leases.empty()) return forget(s);
    const step_limits known{s.limits.budget_bytes, this->known_links()};
    hold.unlock();  // nobody else touches this schedule while its step begins
    std::optional<step_plan> made;
    std::string why;
    const std::int64_t began_ns = steady_clock{}.now_ns();
    try {
      made = make_plan(s.trace, s.limits);
      made->bound = lower_bound(s.trace, known);
    } catch (const usage_error& e) {
      why = e.what();
    } catch (...) {
      hold.lock();
      throw;
    }
    hold.lock();
    s.plan_ns = steady_clock{}.now_ns() - began_ns;
    aligned_ = nullptr;
    if (made) return s.take(std::move(*made));
    this->remarks.say("the step \"" + s.name + "\" is not planned: " + why);
  }

  void forget(schedule<Device>& s) {  // it is recorded as if it were new
    s.plan.reset();
    s.timed_count = 0;
    s.departed_count = 0;
  }

  // Brings the first tier to where the plan begins.
  void align(const schedule<Device>& s) {
    // What stays, where: all else leaves, and what lies elsewhere comes again.
    std::map<std::uint64_t, std::size_t> stay;
    const auto& at_start = s.plan->held_at_start;
    for (std::size_t i = 0; i < at_start.size(); ++i) stay[s.blocks[at_start[i]]] = placed(s.plan->place_at_start[i]);
    for (std::uint32_t t = 0; t < s.blocks.size(); ++t) {
      block_type* const b = this->blocks.find(s.blocks[t]);
      if (b != nullptr && s.first_begin[t] != no_use) b->next_use = point(s.first_begin[t]);
    }
    std::vector<std::uint64_t> leave;
    for (const auto& [offset, b] : this->blocks.in(0)) {
      const auto stays = stay.find(b->id());
      const bool right = stays != stay.end() && (stays->second == block_type::no_offset || stays->second == offset);
      if (!right) leave.push_back(b->id());
    }
    for (const std::uint64_t id : leave) perform(plan_action_kind::evict, 0, id, no_deadline);
    for (std::size_t i = 0; i < at_start.size(); ++i) {
      const std::uint32_t t = at_start[i];
      perform(plan_action_kind::fetch, 0, s.blocks[t], point(s.first_begin[t]), s.plan->place_at_start[i]);
    }
  }

  // Does what the plan says for the moment that has come.
  void act() {
    const schedule<Device>& s = *active_;
    const std::uint32_t now = follow_.moment();
    for (std::uint32_t i = s.first_action[now]; i < s.first_action[now + 1]; ++i) {
      const plan_action& a = s.plan->actions[i];
      if (const std::uint64_t id = follow_.block_of(a.tensor); id != 0) {
        perform(a.what, a.tier, id, point(a.due, a.due <= a.moment ? 1 : 0), a.offset_bytes);
      }
    }
  }

  // Where a place of the plan is in the tier.
  [[nodiscard]] std::size_t placed(std::size_t offset_bytes) const noexcept {
    return offset_bytes == no_place ? block_type::no_offset : active_->first_byte + offset_bytes;
  }

  void perform(plan_action_kind what, std::size_t tier, std::uint64_t id, std::uint64_t deadline,
               std::size_t offset_bytes = no_place) {
    block_type* const b = this->blocks.find(id);
    if (b == nullptr || b->dying) return;
    if (what == plan_action_kind::fetch && tier == 0) b->wanted_offset_bytes = placed(offset_bytes);
    if (what == plan_action_kind::write_back) {
      try {
        if (b->in(tier).idle() && b->sole(tier)) this->move_away(*b, tier, urgency::write_back);
      } catch (...) {
        this->report_error("a planned write", std::current_exception());
      }
      return;
    }
    const bool fetches = what == plan_action_kind::fetch;
    const auto way = fetches ? movement::direction::fetch : movement::direction::evict;
    const movement wish{id, tier, way, b->size_bytes(), fetches ? deadline : no_deadline, true};
    if (this->serve(wish) != movement_result::finished) {
      this->counted.prefetch_dropped_count += this->queue.push(wish).dropped_count;
    }
  }

  // The step is another one than was recorded.
  void depart(const std::string& came) {
    const std::string said = "the step \"" + active_->name + "\" departs from the recorded one (" + came + " where " +
                             follow_.expected() + " was expected): it is served as it comes";
    ++active_->departure_count;
    ++active_->departed_count;
    if (active_->departure_count == 1) this->remarks.say(said);
    lose();
  }

  void lose() noexcept {
    follow_.stop();
    this->queue.forget_planned();
    this->blocks.for_each([](block_type& b) {
      b.next_use = unknown_use;
      b.wanted_offset_bytes = block_type::no_offset;
    });
  }

  void give_up(const char* when, const std::exception_ptr& why) noexcept {
    this->report_error(when, why);
    recording_ = nullptr;
    lose();
  }

  void conclude_step() {
    schedule<Device>& s = *active_;
    if (follow_.under_way()) {
      if (!follow_.complete()) {
        depart("the end of the step");
      } else {
        ++s.followed_count;
        s.departed_count = 0;
        s.renewed_count = 0;
        aligned_ = &s;
      }
    }
    if (recording_ == nullptr) return;
    recording_->close();
    // A step that departed says nothing about the next one; the first of all has nothing to depart from.
    if (!recording_->empty() && (!s.plan || aligned_ == &s)) s.pending = std::move(recording_);
  }

  std::map<std::string, schedule<Device>, std::less<>> schedules_;
  schedule<Device>* active_ = nullptr;         // of the step that is under way
  const schedule<Device>* aligned_ = nullptr;  // whose plan has left the first tier as it begins with
  follower<Device> follow_;
  std::unique_ptr<step_recording<Device>> recording_;
  std::uint64_t serial_ = 0;
  std::int64_t follow_began_ns_ = 0;  // when the step that is followed begins, the host not being ahead
  bool stepping_ = false;
  std::int64_t step_began_ns_ = 0;
};

}  // namespace vtier::detail
