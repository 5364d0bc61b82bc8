// SPDX-License-Identifier: Apache-2.0
#pragma once

// A kind of step under its name: what was recorded of it, the plan made from that, and how far a step has come in it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/policy/plan.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/block.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/detail/step_recording.hpp>

namespace vtier::detail {

/// What a lease knows of the step that it was taken in.
struct step_mark {
  std::uint64_t step = 0;  // 0: none
  std::uint32_t recorded = no_use;
  std::uint32_t followed = no_use;
};

/// A step that was recorded, and perhaps planned.
///
/// Threads the hierarchy's lock
template <device Device>
struct schedule {
  using event = typename Device::event;

  std::string name;
  std::unique_ptr<step_recording<Device>> pending;  // recorded, its times not read yet
  std::vector<std::uint64_t> blocks;                // by tensor; 0 for those of the step
  std::vector<access> modes;                        // by lease
  step_trace trace;
  step_limits limits;
  bool is_new = false;         // recorded, and no plan made of it yet
  std::size_t first_byte = 0;  // of the first tier that the plan is for
  std::optional<step_plan> plan;
  std::uint32_t timed_count = 0;     // steps of which the times were read
  std::uint32_t departed_count = 0;  // steps that departed from it, one after the other
  std::uint32_t renewed_count = 0;   // how often it was recorded anew, no step having been followed since
  std::uint64_t step_count = 0;
  std::uint64_t followed_count = 0;
  std::uint64_t departure_count = 0;
  std::int64_t last_step_ns = 0;
  std::int64_t plan_ns = 0;  // what making the plan took

  std::vector<std::uint32_t> at;            // by moment: twice the lease, and one more where it ends
  std::vector<std::uint32_t> first_action;  // by moment, and one more
  std::vector<std::uint32_t>
      next_begin;  // by lease: when the tensor's next begins; no_use where none does in this step
  std::vector<std::uint32_t> first_begin;  // by tensor

  /// Takes a plan, and makes the tables that following it needs.
  void take(step_plan made) {
    plan = std::move(made);
    at.assign(trace.moment_ns.size(), 0);
    next_begin.assign(trace.leases.size(), no_use);
    first_begin.assign(trace.tensors.size(), no_use);
    std::vector<std::uint32_t> last(trace.tensors.size(), no_use);
    for (std::uint32_t i = 0; i < trace.leases.size(); ++i) {
      const step_lease& l = trace.leases[i];
      at[l.begin] = 2 * i;
      at[l.end] = 2 * i + 1;
      if (last[l.tensor] != no_use) next_begin[last[l.tensor]] = l.begin;
      if (first_begin[l.tensor] == no_use) first_begin[l.tensor] = l.begin;
      last[l.tensor] = i;
    }
    first_action.assign(at.size() + 1, 0);
    for (const plan_action& a : plan->actions) ++first_action[a.moment + 1];
    for (std::size_t m = 1; m < first_action.size(); ++m) first_action[m] += first_action[m - 1];
  }
};

/// How far a step has come in its schedule.
///
/// Threads the hierarchy's lock
template <device Device>
class follower {
 public:
  using block_type = block<typename Device::event>;

  /// Begins at the first moment.
  void start(const schedule<Device>& s, std::uint64_t last_id) {
    followed_ = &s;
    bound_ = s.blocks;
    cursor_ = 0;
    last_id_ = last_id;
  }
  void stop() noexcept { followed_ = nullptr; }
  [[nodiscard]] bool under_way() const noexcept { return followed_ != nullptr; }

  /// A lease is asked for: its number where it is the one that comes now.
  [[nodiscard]] std::optional<std::uint32_t> next_lease(const block_type& b, access mode) const noexcept {
    const schedule<Device>& s = *followed_;
    if (cursor_ >= s.at.size() || (s.at[cursor_] & 1U) != 0) return std::nullopt;
    const std::uint32_t lease = s.at[cursor_] / 2;
    const std::uint32_t tensor = s.trace.leases[lease].tensor;
    if (s.modes[lease] != mode) return std::nullopt;
    if (bound_[tensor] == 0) {  // a tensor of the step: the one that is like it
      const step_tensor& like = s.trace.tensors[tensor];
      if (b.id() <= last_id_ || b.what() != like.what || b.size_bytes() > like.size_bytes ||
          align_up(b.size_bytes(), granule_bytes) != like.size_bytes) {
        return std::nullopt;
      }
    } else if (bound_[tensor] != b.id()) {
      return std::nullopt;
    }
    return lease;
  }

  /// It has begun.
  [[nodiscard]] std::optional<std::uint32_t> begins(const block_type& b, access mode) noexcept {
    const auto lease = next_lease(b, mode);
    if (!lease) return std::nullopt;
    bound_[followed_->trace.leases[*lease].tensor] = b.id();
    ++cursor_;
    return lease;
  }

  /// A lease of the step ends: whether that is what comes now.
  [[nodiscard]] bool ends(std::uint32_t lease) noexcept {
    if (cursor_ >= followed_->at.size() || followed_->at[cursor_] != 2 * lease + 1) return false;
    ++cursor_;
    return true;
  }

  /// Whether nothing is left but the ends of leases, which the step's own end stands for.
  [[nodiscard]] bool complete() const noexcept {
    for (std::size_t m = cursor_; m < followed_->at.size(); ++m) {
      if ((followed_->at[m] & 1U) == 0) return false;
    }
    return true;
  }

  /// The block that a tensor of the schedule is in this step; 0 where it is not there yet.
  [[nodiscard]] std::uint64_t block_of(std::uint32_t tensor) const noexcept { return bound_[tensor]; }
  /// The moment that has come last.
  [[nodiscard]] std::uint32_t moment() const noexcept { return cursor_ - 1; }
  [[nodiscard]] const schedule<Device>& followed() const noexcept { return *followed_; }

  /// What the schedule says comes now, in words.
  [[nodiscard]] std::string expected() const {
    const schedule<Device>& s = *followed_;
    if (cursor_ >= s.at.size()) return "the end of the step";
    const step_lease& l = s.trace.leases[s.at[cursor_] / 2];
    const step_tensor& t = s.trace.tensors[l.tensor];
    const bool ends = (s.at[cursor_] & 1U) != 0;
    return std::string{ends ? "the end of" : ""} + (ends ? " a lease on " : "a lease on ") +
           std::string{vtier::name(t.what)} + (bound_[l.tensor] == 0 ? "" : " #" + std::to_string(bound_[l.tensor])) +
           " of " + format_bytes(t.size_bytes);
  }

  std::size_t granule_bytes = 1;

 private:
  const schedule<Device>* followed_ = nullptr;
  std::vector<std::uint64_t> bound_;
  std::uint32_t cursor_ = 0;
  std::uint64_t last_id_ = 0;
};

}  // namespace vtier::detail
