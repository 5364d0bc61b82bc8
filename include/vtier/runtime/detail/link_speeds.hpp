// SPDX-License-Identifier: Apache-2.0
#pragma once

// How fast bytes cross between tiers, measured on the copies that are made anyway.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/device/timed_device.hpp>

namespace vtier::detail {

/// Timed copies by link, and what has come of them.
///
/// Threads the hierarchy's lock
template <device Device>
class link_speeds {
 public:
  using event = typename Device::event;

  /// A copy was enqueued whose bytes move between these two marks; without memory for it there is a sample less.
  void started(std::size_t from, std::size_t to, std::size_t size_bytes, event began, event finished) noexcept {
    if (copies_.size() >= copies_max) return;
    try {
      copies_.push_back({from, to, size_bytes, std::move(began), std::move(finished)});
    } catch (...) {  // the copy is on its way: its caller must go on
    }
  }

  /// Takes note of copies that have passed.
  void settle(const Device& on) {
    if constexpr (timed_device<Device>) {
      std::erase_if(copies_, [&](const copy& c) {
        try {
          if (!on.passed(c.finished)) return false;
          total& t = totals_[{c.from, c.to}];
          t.ns += static_cast<double>(on.elapsed_ns(c.began, c.finished));
          t.bytes += static_cast<double>(c.size_bytes);
        } catch (...) {  // a device that does not say: one sample less
        }
        return true;
      });
    }
  }

  /// Bytes per ns, where any copy on that link was timed.
  [[nodiscard]] std::optional<double> of(std::size_t from, std::size_t to) const {
    const auto at = totals_.find({from, to});
    if (at == totals_.end() || at->second.bytes <= 0.0) return std::nullopt;
    return at->second.bytes / (at->second.ns > 1.0 ? at->second.ns : 1.0);
  }

 private:
  static constexpr std::size_t copies_max = 65'536;
  struct copy {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t size_bytes = 0;
    event began;
    event finished;
  };
  struct total {
    double bytes = 0.0;
    double ns = 0.0;
  };
  std::vector<copy> copies_;
  std::map<std::pair<std::size_t, std::size_t>, total> totals_;
};

}  // namespace vtier::detail
