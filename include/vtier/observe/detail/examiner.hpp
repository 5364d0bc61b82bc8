// SPDX-License-Identifier: Apache-2.0
#pragma once

// The looks that are taken at statistics, one function each: traffic, waiting, hints, recorded steps, what failed.
//
// A file of its own, so that health.hpp is about what a caller gets.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/observe/detail/lines.hpp>
#include <vtier/observe/finding.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/statistics.hpp>

namespace vtier::detail {

/// Holds statistics against limits.
///
/// Needs   both outlive it
class examiner {
 public:
  examiner(const statistics& counted, const health_limits& limits)
      : counted_{&counted}, limits_{&limits}, step_ns_{static_cast<double>(counted.step_ns)} {}

  /// What is wrong, the worst first; those of one severity in the order in which they are looked for.
  [[nodiscard]] std::vector<finding> findings() {
    look_at_failures();
    for (std::size_t i = 0; i < counted_->tiers.size(); ++i) look_at_swapping(i);
    for (const link_statistics& l : counted_->links) look_at_link(l);
    look_at_stalls();
    look_at_hints();
    for (const schedule_statistics& s : counted_->schedules) look_at_schedule(s);
    look_at_leases();
    look_at_notes();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const finding& a, const finding& b) { return a.severity > b.severity; });
    return std::move(found_);
  }

 private:
  using by_role = std::array<std::size_t, role_count>;

  finding& add(severity how, symptom what, std::string text) {
    finding f;
    f.severity = how;
    f.what = what;
    f.text = std::move(text);
    return found_.emplace_back(std::move(f));
  }

  [[nodiscard]] bool has_steps() const noexcept { return counted_->step_count > 0 && counted_->step_ns > 0; }

  // The name of a tier or of a link as a sentence can hold it.
  [[nodiscard]] std::string tier_name(std::size_t i) const { return short_name(counted_->tiers[i].name); }

  // Roles with at least a tenth of the bytes, the most first.
  [[nodiscard]] static std::vector<role> main_roles(const by_role& bytes) {
    const auto all = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
    const auto of = [&](role r) { return bytes[static_cast<std::size_t>(r)]; };
    std::vector<role> result;
    for (const role r : all_roles) {
      if (of(r) > 0 && static_cast<double>(of(r)) >= 0.1 * all) result.push_back(r);
    }
    std::stable_sort(result.begin(), result.end(), [&](role a, role b) { return of(a) > of(b); });
    return result;
  }

  [[nodiscard]] static std::string words_of(const std::vector<role>& roles, const by_role& bytes) {
    std::string result;
    for (const role r : roles) {
      result +=
          (result.empty() ? "" : ", ") + std::string{name(r)} + " " + format_bytes(bytes[static_cast<std::size_t>(r)]);
    }
    return result;
  }

  // The part of the steps' time that a link was busy; nothing where neither that nor its limit is known.
  [[nodiscard]] std::optional<double> time_share(const link_statistics& l) const {
    if (!has_steps()) return std::nullopt;
    if (l.busy_ns > 0) return (std::min)(1.0, static_cast<double>(l.busy_ns) / step_ns_);
    if (l.limit_bytes_per_ns <= 0.0) return std::nullopt;
    return (std::min)(1.0, static_cast<double>(l.moved_bytes) / l.limit_bytes_per_ns / step_ns_);
  }

  [[nodiscard]] bool is_file(std::size_t tier) const noexcept {
    return tier < counted_->tiers.size() && counted_->tiers[tier].kind == memory_kind::file;
  }

  void look_at_swapping(std::size_t where) {
    const tier_statistics& tier = counted_->tiers[where];
    by_role back{};
    std::size_t back_bytes = 0;
    std::size_t up_bytes = 0;
    std::uint64_t back_steps = 0;
    const link_statistics* fullest = nullptr;
    bool times_known = true;
    for (const link_statistics& l : counted_->links) {
      if (l.to != where || l.from < l.to) continue;
      up_bytes += l.moved_bytes;
      back_bytes += l.swapped_bytes;
      back_steps = (std::max)(back_steps, l.swapped_step_count);
      for (std::size_t r = 0; r < role_count; ++r) back[r] += l.role_swapped_bytes[r];
      const auto share = time_share(l);
      times_known = times_known && (share || l.swapped_bytes == 0);
      if (share && (fullest == nullptr || *share > *time_share(*fullest))) fullest = &l;
    }
    const auto budget = static_cast<double>(tier.budget_bytes);
    const auto bytes = static_cast<double>(back_bytes);
    const std::uint64_t steps = counted_->step_count;
    if (back_bytes == 0) return;
    if (steps == 0) {  // nothing says what a step is: the tier was filled with the same bytes twice over
      if (bytes < 2.0 * budget) return;
    } else if (back_steps < 2 ||
               static_cast<double>(back_steps) < limits_->swapped_steps * static_cast<double>(steps) ||
               bytes < limits_->swapped_tier * budget * static_cast<double>(steps)) {
      return;
    }
    const auto roles = main_roles(back);
    std::string text = "into " + tier_name(where) + " come back ";
    text += steps > 0 ? format_bytes(back_bytes / steps) + " a step, in " + std::to_string(back_steps) + " of " +
                            std::to_string(steps) + " steps"
                      : format_bytes(back_bytes);
    text += ", that it had held and let go and nobody has written since: " +
            percent(share_of(bytes, static_cast<double>(up_bytes))) + " of what comes up";
    if (!roles.empty()) text += " (" + words_of(roles, back) + (steps > 0 ? " in all)" : ")");
    text += ". ";
    const bool fits = counted_->tensor_peak_bytes + tier.staging_bytes + tier.reserved_bytes <= tier.budget_bytes;
    text +=
        fits ? "All tensors would fit: look for calls of evict(), options.watermarks and copies that are kept twice. "
             : "What is used between two uses of a tensor does not fit: " + tier_name(where) + " has " +
                   format_bytes(tier.budget_bytes) + left_of(tier) + ", all tensors are at most " +
                   format_bytes(counted_->tensor_peak_bytes) + ". ";
    const double busy = fullest != nullptr ? *time_share(*fullest) : 0.0;
    const bool hidden = times_known && busy < limits_->link_time && stalls_ns() < limits_->stall_time * step_ns_;
    if (hidden) {
      text += "So far it is hidden behind what else a step does. ";
    } else if (fullest != nullptr && busy >= limits_->link_time) {
      text += short_name(fullest->name) + " is busy for " + percent(busy) + " of a step" +
              (busy >= limits_->link_full ? " and sets its time. " : ". ");
    }
    text += "To change: ";
    if (!fits) text += "a larger budget for " + tier_name(where) + "; ";
    text += "use tensors again soon, or one after the other" + cures(roles);
    finding& f = add(hidden ? severity::remark : severity::warning, symptom::swapping, std::move(text));
    f.roles = roles;
    f.tier = where;
  }

  [[nodiscard]] static std::string left_of(const tier_statistics& tier) {
    const std::size_t kept = tier.staging_bytes + tier.reserved_bytes;
    return kept > 0 ? " less " + format_bytes(kept) + " for staging and reservations" : std::string{};
  }

  // What the tensors of these roles can do about their size.
  [[nodiscard]] static std::string cures(const std::vector<role>& roles) {
    std::string result;
    for (const role r : roles) {
      switch (r) {
        case role::parameter: result += "; parameters of fewer bits, or a larger batch for each use of them"; break;
        case role::gradient: result += "; gradients that are used up at once, layer by layer"; break;
        case role::optimizer:
          result += "; optimizer state of fewer bits, or updated on the host (options.place keeps it out of this tier)";
          break;
        case role::activation: result += "; activations that are computed again, or a smaller batch"; break;
        case role::workspace: result += "; workspaces that share their bytes"; break;
      }
    }
    return result + '.';
  }

  void look_at_link(const link_statistics& l) {
    const auto moved = static_cast<double>(l.moved_bytes);
    const std::string link = short_name(l.name);
    const auto about = [&](finding& f) {
      f.roles = main_roles(l.role_moved_bytes);
      f.tier = l.to;
      f.from = l.from;
    };
    if (l.busy_ns > 0 && l.limit_bytes_per_ns > 0.0 && l.moved_bytes >= limits_->link_bytes) {
      const double rate = moved / static_cast<double>(l.busy_ns);
      if (rate < limits_->link_rate * l.limit_bytes_per_ns) {
        const std::size_t size = l.moved_bytes / (std::max)(l.transfer_count, std::size_t{1});
        about(add(severity::warning, symptom::slow_link,
                  link + " moves " + gigabytes_per_second(rate) + " GB/s, " + percent(rate / l.limit_bytes_per_ns) +
                      " of the " + gigabytes_per_second(l.limit_bytes_per_ns) +
                      " GB/s that it can do, in transfers of " + format_bytes(size) +
                      " on average. To change: " + (size < 1_MiB ? "fewer and larger tensors; " : "") +
                      (is_file(l.from) || is_file(l.to)
                           ? "a larger options.staging_budget; see whether others use the drive."
                           : "page-locked memory on the node of the device; see whether others use the link.")));
      }
    }
    const auto share = time_share(l);
    if (!share || *share < limits_->link_time) return;
    const bool full = *share >= limits_->link_full;
    about(add(full ? severity::warning : severity::remark, symptom::busy_link,
              link + (l.busy_ns > 0 ? " is" : " must be") + " busy for " + percent(*share) +
                  " of the steps' time, for " + format_bytes(l.moved_bytes / counted_->step_count) + " a step" +
                  (full ? ": it sets how long a step takes. To change: move less, or compute more with what is there "
                          "(a larger batch)."
                        : ".")));
  }

  [[nodiscard]] double stalls_ns() const noexcept { return static_cast<double>(counted_->blocked_ns); }

  void look_at_stalls() {
    if (!has_steps()) {
      if (counted_->blocked_ns > 0 || !counted_->links.empty()) {
        add(severity::remark, symptom::no_steps,
            "no step was counted, so that times have nothing to be held against: put mem.step() around each.");
      }
      return;
    }
    by_role fetched{};
    by_role written{};
    for (const link_statistics& l : counted_->links) {
      for (std::size_t r = 0; r < role_count; ++r) {
        if (is_file(l.from)) fetched[r] += l.role_moved_bytes[r];
        if (is_file(l.to)) written[r] += l.role_moved_bytes[r];
      }
    }
    const auto stall = [&](symptom what, std::int64_t ns, const char* todo, std::vector<role> roles) {
      if (ns <= 0 || static_cast<double>(ns) < limits_->stall_time * step_ns_) return;
      add(severity::warning, what,
          "the host was blocked for " + milliseconds(ns / static_cast<std::int64_t>(counted_->step_count)) +
              " a step, " + percent(static_cast<double>(ns) / step_ns_) + " of its time. To change: " + todo)
          .roles = std::move(roles);
    };
    stall(symptom::fetch_stall, counted_->blocked_fetch_ns,
          "prefetch what is used next, earlier and more of it, or give the tier in host memory a larger budget.",
          main_roles(fetched));
    stall(symptom::room_stall, counted_->blocked_room_ns,
          "a larger options.clean_share, options.watermarks for the tiers above files, or a larger budget in host "
          "memory.",
          main_roles(written));
    stall(symptom::reserve_stall, counted_->blocked_reserve_ns,
          "reserve once and keep it, release sooner, or ask with try_reserve and reserve_up_to.", {});
    stall(symptom::flush_stall, counted_->blocked_flush_ns, "flush less often, or between steps from another thread.",
          main_roles(written));
    stall(symptom::events_stall, counted_->blocked_events_ns,
          "read on the host a step later what kernels have just written, or take the lease on a stream.", {});
  }

  void look_at_hints() {
    const auto unused = static_cast<double>(counted_->prefetch_unused_bytes);
    const auto prefetched =
        static_cast<double>((std::max)(counted_->prefetched_bytes, counted_->prefetch_unused_bytes));
    if (unused > 0.0 && unused >= limits_->prefetch_unused * prefetched) {
      add(severity::warning, symptom::unused_prefetch,
          format_bytes(counted_->prefetch_unused_bytes) + " were prefetched and left again unused, " +
              percent(unused / prefetched) +
              " of all that was. To change: prefetch later and in the order of use, or a "
              "smaller options.prefetch_share_max.");
    }
    const auto refused = static_cast<double>(counted_->prefetch_dropped_count);
    const double asked = refused + static_cast<double>(counted_->prefetch_hit_count);
    if (refused > 0.0 && refused >= limits_->prefetch_refused * asked) {
      add(severity::remark, symptom::refused_prefetch,
          std::to_string(counted_->prefetch_dropped_count) +
              " prefetches and evictions were dropped: too many waited (options.prefetch_count_max), or there was no "
              "room for what they were to bring.");
    }
  }

  void look_at_schedule(const schedule_statistics& s) {
    const auto steps = static_cast<double>(s.step_count);
    const auto others = static_cast<double>(s.deviation_count);
    if (others > 0.0 && others >= limits_->step_deviations * steps) {
      add(severity::warning, symptom::unsteady_step,
          short_name(s.name) + ": " + std::to_string(s.deviation_count) + " of " + std::to_string(s.step_count) +
              " steps used tensors otherwise than recorded, for which no plan holds. To change: give steps that differ "
              "names of their own.");
    }
    if (s.bound_ns <= 0 || s.last_step_ns <= 0) return;
    const double factor = static_cast<double>(s.last_step_ns) / static_cast<double>(s.bound_ns);
    if (factor < limits_->step_bound) return;
    add(severity::warning, symptom::slow_step,
        short_name(s.name) + " took " + milliseconds(s.last_step_ns) + ", " + one_decimal(factor) +
            " times the least that is possible on these tiers, " + milliseconds(s.bound_ns) +
            (s.compute_ns > 0 ? "; it computes for " + milliseconds(s.compute_ns) : std::string{}) + '.' +
            (s.planned ? "" : " It is not planned."));
  }

  void look_at_leases() {
    if (!has_steps()) return;
    const double step = step_ns_ / static_cast<double>(counted_->step_count);
    for (const lease_statistics& l : counted_->leased) {  // the oldest first
      if (static_cast<double>(l.age_ns) < limits_->lease_steps * step) return;
      finding& f = add(severity::warning, symptom::old_lease,
                       "tensor #" + std::to_string(l.tensor) + ", " + std::string{name(l.what)} + " of " +
                           format_bytes(l.size_bytes) + (l.tier.empty() ? "" : " in " + short_name(l.tier)) +
                           ", has been under lease for " + milliseconds(l.age_ns) + ", " +
                           one_decimal(static_cast<double>(l.age_ns) / step) +
                           " steps: its bytes cannot leave. To change: end leases as soon as the work is launched.");
      f.roles = {l.what};
      return;
    }
  }

  void look_at_failures() {
    std::size_t writes = 0;
    std::size_t others = 0;
    std::string last_write;
    std::string last_other;
    for (const std::string& e : counted_->errors) {
      const bool write = e.rfind("a write: ", 0) == 0;
      ++(write ? writes : others);
      (write ? last_write : last_other) = e;
    }
    const auto times = [](std::size_t count) { return count == 1 ? "once" : std::to_string(count) + " times"; };
    if (writes > 0) {
      add(severity::failure, symptom::failed_write,
          times(writes) + ", the bytes stay where they were; the last: " + last_write);
    }
    if (others > 0) add(severity::failure, symptom::other_failure, times(others) + ", the last: " + last_other);
  }

  void look_at_notes() {
    for (const std::string& note : counted_->notes) {
      const bool unlocked =
          note.find("page-locked") != std::string::npos || note.find("stays unlocked") != std::string::npos;
      add(unlocked ? severity::warning : severity::remark, unlocked ? symptom::unlocked_memory : symptom::note, note);
    }
  }

  const statistics* counted_;
  const health_limits* limits_;
  double step_ns_;
  std::vector<finding> found_;
};

}  // namespace vtier::detail
