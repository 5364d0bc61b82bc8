// SPDX-License-Identifier: Apache-2.0
#pragma once

// A training step as a plain value: which leases it takes, in which order, and how long it computes in between.
//
// Time is counted in moments, of which every begin and every end of a lease is one, and each moment has a time on a
// clock that stands still while the step waits for bytes. A step is a circle: behind its last moment comes its first.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// A tensor of a step.
///
/// Units   bytes
struct step_tensor {
  std::size_t size_bytes = 0;
  role what = role::parameter;
  bool born = false;       // made in the step and gone with it: nothing of it is needed after its last lease
  std::uint32_t gone = 0;  // of a born one: the moment before which it goes; 0: right behind its last lease
  friend bool operator==(const step_tensor&, const step_tensor&) = default;
};

/// A lease of a step in the first tier.
///
/// Units   moments; end is later than begin
struct step_lease {
  std::uint32_t tensor = 0;
  access mode = access::read;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const step_lease&, const step_lease&) = default;
};

/// A recorded step.
///
/// Shape   leases in order of their begin; moment_ns has one entry for each begin and each end
/// Units   ns of computing since the step began: without the time that was spent waiting for bytes
/// Threads as any value
struct step_trace {
  std::vector<step_tensor> tensors;
  std::vector<step_lease> leases;
  std::vector<std::int64_t> moment_ns;
  std::int64_t duration_ns = 0;  // of the whole step, computing alone

  /// What keeps this from being a step: empty where nothing does, else in words.
  ///
  /// Cost    O(leases)
  [[nodiscard]] std::string fault() const {
    constexpr std::size_t moments_max = (std::numeric_limits<std::uint32_t>::max)() / 2;
    if (moment_ns.size() != 2 * leases.size()) return "a step has one moment for each begin and end of a lease";
    if (moment_ns.size() > moments_max) return "a step has at most a thousand million leases";
    std::vector<char> taken(moment_ns.size(), 0);
    std::vector<std::uint32_t> free_from(tensors.size(), 0);  // behind the last end of a lease that writes
    std::vector<std::uint32_t> unread_from(tensors.size(), 0);
    std::vector<char> written(tensors.size(), 0);
    std::uint32_t last_begin = 0;
    for (std::size_t i = 0; i < leases.size(); ++i) {
      const step_lease& l = leases[i];
      const std::string which = "lease " + std::to_string(i);
      if (l.tensor >= tensors.size()) return which + " names a tensor that the step does not have";
      if (l.begin >= l.end || l.end >= moment_ns.size()) return which + " does not end after it begins";
      if (i > 0 && l.begin <= last_begin) return which + " is out of order";
      if (taken[l.begin] != 0 || taken[l.end] != 0) return which + " shares a moment with another";
      taken[l.begin] = taken[l.end] = 1;
      last_begin = l.begin;
      if (l.begin < free_from[l.tensor] || (writes(l.mode) && l.begin < unread_from[l.tensor])) {
        return which + " writes beside another lease on the same tensor";
      }
      if (tensors[l.tensor].born && written[l.tensor] == 0 && reads(l.mode)) {
        return which + " reads a tensor of the step before it was written";
      }
      if (writes(l.mode)) {
        free_from[l.tensor] = l.end;
        written[l.tensor] = 1;
      }
      unread_from[l.tensor] = l.end > unread_from[l.tensor] ? l.end : unread_from[l.tensor];
    }
    for (std::size_t m = 0; m < moment_ns.size(); ++m) {
      if (moment_ns[m] < (m == 0 ? 0 : moment_ns[m - 1])) return "the moments of a step go backwards";
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const bool within = tensors[t].gone <= moment_ns.size() && tensors[t].gone > unread_from[t];
      if (tensors[t].gone != 0 && !(tensors[t].born && within))
        return "a tensor is gone before its last lease has ended";
    }
    if (!moment_ns.empty() && duration_ns < moment_ns.back()) return "a step ends before its last moment";
    std::size_t total = 0;
    for (const step_tensor& t : tensors) {
      const auto sum = checked_add(total, t.size_bytes);
      if (!sum || *sum > static_cast<std::size_t>((std::numeric_limits<std::int64_t>::max)())) {
        return "the tensors of a step are larger than 64 bits can count";
      }
      total = *sum;
    }
    return {};
  }
};

/// How fast bytes cross the boundary between a tier and the next.
///
/// Units   bytes per ns (1 is 10^9 bytes a second), above 0; infinite: as if it were not there
struct link_rates {
  double up = 1.0;
  double down = 1.0;
  double both = std::numeric_limits<double>::infinity();  // of the two directions together
  friend bool operator==(const link_rates&, const link_rates&) = default;
};

/// What a step is planned for.
///
/// Shape   one budget for each tier, the fastest first; one link for each boundary between two
/// Units   bytes that tensors may have; the last tier holds everything, whatever its budget says
struct step_limits {
  std::vector<std::size_t> budget_bytes;
  std::vector<link_rates> links;
  friend bool operator==(const step_limits&, const step_limits&) = default;

  /// What keeps these from being limits: empty where nothing does, else in words.
  [[nodiscard]] std::string fault() const {
    if (budget_bytes.size() < 2) return "a plan is for two tiers and more";
    if (links.size() + 1 != budget_bytes.size()) return "a plan needs one link for each boundary between two tiers";
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (!(links[i].up > 0.0 && links[i].down > 0.0 && links[i].both > 0.0)) {
        return "the link between tier " + std::to_string(i) + " and " + std::to_string(i + 1) +
               " has a bandwidth of zero: measure it again, or give one";
      }
    }
    return {};
  }
};

}  // namespace vtier
