// SPDX-License-Identifier: Apache-2.0
#pragma once

// Looking at a hierarchy without changing it: the numbers for its report, and whether its rules hold.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/device/device.hpp>
#include <vtier/runtime/detail/state.hpp>
#include <vtier/runtime/statistics.hpp>
#include <vtier/runtime/timeline.hpp>

namespace vtier::detail {

/// What a hierarchy has counted.
///
/// Threads under the lock
template <device Device>
[[nodiscard]] statistics count_of(const state<Device>& s) {
  statistics result = s.counted;
  for (const auto& t : s.tiers) {
    const slab_properties& p = t.memory.properties();
    tier_statistics one;
    one.name = p.name;
    one.place = p.place;
    one.kind = p.kind;
    one.budget_bytes = t.budget_bytes();
    one.used_bytes = t.map.used_bytes();
    one.peak_bytes = t.map.peak_bytes();
    one.staging_bytes = t.staging_bytes;
    one.reserved_bytes = t.reserved_bytes;
    one.largest_free_bytes = t.map.largest_free_bytes();
    one.role_bytes = t.role_bytes;
    one.role_peak_bytes = t.role_peak_bytes;
    result.tiers.push_back(std::move(one));
  }
  const std::size_t n = s.tiers.size();
  const std::int64_t now = s.on.now_ns();
  for (std::size_t i = 0; i < s.moved.size(); ++i) {
    link_statistics link = s.moved[i].at(now);
    if (link.transfer_count == 0) continue;
    link.from = i / n;
    link.to = i % n;
    link.name = s.tiers[link.from].name() + " -> " + s.tiers[link.to].name();
    result.links.push_back(std::move(link));
  }
  s.blocks.for_each([&](const auto& b) {
    if (b.leases() == 0) return;
    lease_statistics one{b.id(), b.what(), {}, b.size_bytes(), b.leases(), now - b.leased_since_ns};
    for (std::size_t i = 0; i < s.tiers.size(); ++i) {
      if (b.in(i).leases > 0) one.tier += (one.tier.empty() ? "" : ", ") + s.tiers[i].name();
    }
    result.leased.push_back(std::move(one));
  });
  std::sort(result.leased.begin(), result.leased.end(),
            [](const lease_statistics& a, const lease_statistics& b) { return a.age_ns > b.age_ns; });
  result.notes = s.remarks.list();
  result.errors = s.errors;
  return result;
}

/// What a hierarchy has recorded, in the order in which it was.
///
/// Threads under the lock
template <device Device>
[[nodiscard]] timeline timeline_of(const state<Device>& s) {
  timeline result;
  for (const auto& t : s.tiers) {
    result.tiers.push_back({t.name(), t.memory.kind(), t.budget_bytes(), t.map.used_bytes()});
  }
  result.events = s.record.events();
  result.lost_count = s.record.lost_count();
  result.now_ns = s.on.now_ns();
  return result;
}

/// Puts events that were kept when they ended in order of their begin; those of one time stay as they were kept.
inline void in_order_of_begin(timeline& t) {
  std::stable_sort(t.events.begin(), t.events.end(),
                   [](const timeline_event& a, const timeline_event& b) { return a.begin_ns < b.begin_ns; });
}

/// Looks for broken rules; a sound hierarchy gives none.
///
/// Threads under the lock
template <device Device>
[[nodiscard]] std::vector<std::string> broken_rules_of(const state<Device>& s) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < s.tiers.size(); ++i) {
    const auto& t = s.tiers[i];
    std::size_t placed = t.staging_bytes + t.reserved_bytes;
    std::size_t end = 0;
    for (const auto& [offset, b] : s.blocks.in(i)) {
      const auto& r = b->in(i);
      if (r.absent() || r.offset_bytes != offset) result.push_back(t.name() + ": a block is listed where it is not");
      if (offset < end) result.push_back(t.name() + ": two blocks share bytes");
      end = offset + r.size_bytes;
      placed += r.size_bytes;
    }
    if (placed != t.map.used_bytes()) result.push_back(t.name() + ": places and used bytes differ");
    if (t.map.peak_bytes() > t.budget_bytes()) result.push_back(t.name() + ": more than its budget was used");
  }
  s.blocks.for_each([&](const auto& b) {
    if (b.version() != 0 && b.size_bytes() > 0 && !b.newest() && !b.dying) {
      result.push_back("block #" + std::to_string(b.id()) + ": its newest bytes are nowhere");
    }
  });
  return result;
}

}  // namespace vtier::detail
