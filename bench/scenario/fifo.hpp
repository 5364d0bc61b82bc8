// SPDX-License-Identifier: Apache-2.0
#pragma once

// First in, first out: a policy to compare with, which knows only when blocks came.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <vtier/policy/eviction.hpp>
#include <vtier/policy/lru.hpp>

namespace vtier::bench {

/// Evicts the window whose latest arrival is the earliest.
///
/// A map of a tier does not say when a block came. This is asked only when a tier is full, and remembers who was there:
/// a block that was not there the last time has come since, and those that came in between are in order of their last
/// use until then. So, other than the library's policies, it has a memory, one for each tier.
///
/// Threads one at a time
class fifo {
 public:
  [[nodiscard]] std::optional<victim_window> choose(std::span<const stretch> tier, std::size_t size_bytes) const {
    if (tier.empty()) return std::nullopt;
    memory& m = of_tier_[tier.back().offset_bytes + tier.back().size_bytes];  // tiers differ in length
    ++m.asked;
    m.by_arrival.assign(tier.begin(), tier.end());
    for (stretch& s : m.by_arrival) {
      if (s.block == 0) continue;
      if (s.block >= m.known.size()) m.known.resize(2 * s.block + 1);
      arrival& a = m.known[s.block];
      if (a.seen == 0 || a.seen + 1 < m.asked) a.tick = s.last_use;
      a.seen = m.asked;
      s.last_use = a.tick;
    }
    return lru{}.choose(m.by_arrival, size_bytes);
  }

 private:
  struct arrival {
    std::uint64_t tick = 0;
    std::uint64_t seen = 0;  // by which question it was there last
  };
  struct memory {
    std::uint64_t asked = 0;
    std::vector<arrival> known;  // by block
    std::vector<stretch> by_arrival;
  };
  mutable std::map<std::size_t, memory> of_tier_;
};

static_assert(eviction_policy<fifo>);

}  // namespace vtier::bench
