// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a plan has to work with on this machine: room in each tier, and the speed of the links between them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/runtime/detail/schedule.hpp>
#include <vtier/runtime/detail/waiter.hpp>

namespace vtier::detail {

/// State that knows what a plan has to work with.
///
/// Threads every member under `lock`
template <device Device, eviction_policy Eviction>
class surveyor : public waiter<Device, Eviction> {
 public:
  using waiter<Device, Eviction>::waiter;

  /// What the tiers have for tensors.
  [[nodiscard]] std::vector<std::size_t> tensor_budgets() const {
    std::vector<std::size_t> result;
    for (const auto& t : this->tiers) result.push_back(t.budget_bytes() - t.staging_bytes - t.reserved_bytes);
    return result;
  }

 protected:
  // The longest piece of the first tier that neither staging nor reservations nor what stays there take.
  [[nodiscard]] std::pair<std::size_t, std::size_t> first_piece(const schedule<Device>& s) const {
    const auto& t = this->tiers.front();
    std::map<std::size_t, std::size_t> spoken_for = t.reserved;
    if (t.staging_bytes > 0) spoken_for[0] = t.staging_bytes;
    for (const auto& [offset, b] : this->blocks.in(0)) {
      const bool own = std::find(s.blocks.begin(), s.blocks.end(), b->id()) != s.blocks.end();
      if (!own && this->only_tier(*b) == std::size_t{0}) spoken_for[offset] = b->in(0).size_bytes;
    }
    std::pair<std::size_t, std::size_t> best{0, 0};  // where, how long
    std::size_t at = 0;
    spoken_for[t.budget_bytes()] = 0;
    for (const auto& [offset, size] : spoken_for) {
      if (offset > at && offset - at > best.second) best = {at, offset - at};
      at = (std::max)(at, offset + size);
    }
    return best;
  }

  [[nodiscard]] std::vector<std::size_t> budgets_now(const schedule<Device>& s) const {
    std::vector<std::size_t> result = tensor_budgets();
    result.front() = first_piece(s).second;
    return result;
  }

  [[nodiscard]] step_limits limits_now(const schedule<Device>& s) const {
    step_limits result;
    result.budget_bytes = budgets_now(s);
    for (std::size_t i = 0; i + 1 < this->tiers.size(); ++i) {
      if (i < this->limits.links.size()) {
        result.links.push_back(this->limits.links[i]);
        continue;
      }
      const auto up = speed_of(i + 1, i);
      const auto down = speed_of(i, i + 1);
      link_rates rates;
      rates.up = up.value_or(down.value_or(1.0));
      rates.down = down.value_or(rates.up);
      result.links.push_back(rates);
    }
    return result;
  }

  // The links again, without what is only estimated: how fast files were served says as much about the callers as about
  // the drives, which is good enough to plan with and no bound.
  [[nodiscard]] std::vector<link_rates> known_links() const {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    std::vector<link_rates> result;
    for (std::size_t i = 0; i + 1 < this->tiers.size(); ++i) {
      result.push_back(i < this->limits.links.size()
                           ? this->limits.links[i]
                           : link_rates{this->speeds.of(i + 1, i).value_or(infinite),
                                        this->speeds.of(i, i + 1).value_or(infinite), infinite});
    }
    return result;
  }

  // As copies were timed, else by the time in which files were busy.
  [[nodiscard]] std::optional<double> speed_of(std::size_t from, std::size_t to) const {
    if (const auto timed = this->speeds.of(from, to)) return timed;
    const link_statistics l = this->moved[from * this->tiers.size() + to].at(this->on.now_ns());
    if (l.busy_ns <= 0 || l.moved_bytes == 0) return std::nullopt;
    return static_cast<double>(l.moved_bytes) / static_cast<double>(l.busy_ns);
  }
};

}  // namespace vtier::detail
