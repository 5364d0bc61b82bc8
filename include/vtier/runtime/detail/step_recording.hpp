// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a step did, written down while it runs: leases in order, with marks in their streams that are read when all have
// passed.
//
// Time is computing time: what a stream waited for bytes before a lease, and what the host was blocked for them, is
// taken out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/device/timed_device.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/block.hpp>

namespace vtier::detail {

/// The leases of one step, as they come.
///
/// Threads the hierarchy's lock
template <device Device>
class step_recording {
 public:
  using event = typename Device::event;

  /// Needs   the granule of the first tier, and the last number that a block has got before the step
  step_recording(std::size_t granule_bytes, std::uint64_t last_id) : granule_bytes_{granule_bytes}, last_id_{last_id} {}

  /// A lease has begun: its stream comes to `before`, where it waits for the bytes, and then to `after`; without the
  /// first it does not wait. The host was blocked for them for so long.
  ///
  /// Gives   its number
  std::uint32_t began(const block<event>& b, access mode, std::optional<event> before, event after,
                      std::int64_t blocked_ns) {
    const auto number = static_cast<std::uint32_t>(trace_.leases.size());
    const std::uint32_t tensor = index_of(b);
    trace_.leases.push_back({tensor, mode, static_cast<std::uint32_t>(moments_.size()), 0});
    open_.push_back(number);
    moments_.push_back({std::move(after), std::move(before), blocked_ns});
    return number;
  }

  /// A lease has ended. One that has no mark of it ended on the host's side only; it counts as no time.
  void ended(std::uint32_t number, std::optional<event> after) {
    trace_.leases[number].end = static_cast<std::uint32_t>(moments_.size());
    std::erase(open_, number);
    moments_.push_back({std::move(after), std::nullopt, 0});
  }

  /// A tensor is gone.
  void died(const block<event>& b) noexcept {
    const auto at = index_.find(b.id());
    if (at == index_.end()) return;
    if (b.id() > last_id_) {
      trace_.tensors[at->second].born = true;
      trace_.tensors[at->second].gone = static_cast<std::uint32_t>(moments_.size());
    }
    index_.erase(at);
  }

  /// The step is over: leases that are still in force end here, as far as the step is concerned.
  void close() {
    const std::vector<std::uint32_t> open = open_;
    for (const std::uint32_t number : open) ended(number, std::nullopt);
  }

  [[nodiscard]] bool empty() const noexcept { return trace_.leases.empty(); }

  /// What must pass before the times can be read.
  [[nodiscard]] std::vector<event> marks() const {
    std::vector<event> result;
    for (const moment& m : moments_) {
      if (m.at) result.push_back(*m.at);
    }
    return result;
  }

  /// What each lease was taken for.
  [[nodiscard]] std::vector<access> modes() const {
    std::vector<access> result;
    for (const step_lease& l : trace_.leases) result.push_back(l.mode);
    return result;
  }

  /// The tensors by number of their block, 0 for those that were made in the step and died in it.
  [[nodiscard]] std::vector<std::uint64_t> blocks() const {
    std::vector<std::uint64_t> result(trace_.tensors.size(), 0);
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!trace_.tensors[i].born) result[i] = blocks_[i];
    }
    return result;
  }

  /// The step as a value. A tensor of the step that the host wrote first is taken to be written by its first lease.
  ///
  /// Needs   close(), and that all marks() have passed
  [[nodiscard]] step_trace trace(const Device& on) const requires timed_device<Device> {
    step_trace result = trace_;
    std::vector<char> written(result.tensors.size(), 0);
    for (step_lease& l : result.leases) {
      step_tensor& t = result.tensors[l.tensor];
      if (t.born) t.gone = (std::max)(t.gone, l.end + 1);  // its handle may go before its leases end
      if (result.tensors[l.tensor].born && std::exchange(written[l.tensor], 1) == 0) l.mode = access::write;
    }
    std::int64_t clock = 0;
    std::int64_t latest = 0;  // since the first mark
    std::int64_t waited = 0;
    const event* first = nullptr;
    result.moment_ns.reserve(moments_.size());
    for (const moment& m : moments_) {
      waited += m.blocked_ns;
      if (m.at) {
        if (first == nullptr) first = m.before ? &*m.before : &*m.at;
        if (m.before) waited += (std::max)(on.elapsed_ns(*m.before, *m.at), std::int64_t{0});
        const std::int64_t now = on.elapsed_ns(*first, *m.at);
        if (now > latest) {
          clock += (std::max)(now - latest - waited, std::int64_t{0});
          latest = now;
          waited = 0;
        }
      }
      result.moment_ns.push_back(clock);
    }
    result.duration_ns = clock;
    return result;
  }

 private:
  struct moment {
    std::optional<event> at;
    std::optional<event> before;
    std::int64_t blocked_ns = 0;
  };

  std::uint32_t index_of(const block<event>& b) {
    const auto at = index_.find(b.id());
    if (at != index_.end()) return at->second;
    const auto number = static_cast<std::uint32_t>(trace_.tensors.size());
    trace_.tensors.push_back({align_up(b.size_bytes(), granule_bytes_), b.what(), false});
    blocks_.push_back(b.id());
    index_.emplace(b.id(), number);
    return number;
  }

  std::size_t granule_bytes_;
  std::uint64_t last_id_;
  step_trace trace_;
  std::vector<std::uint64_t> blocks_;
  std::map<std::uint64_t, std::uint32_t> index_;  // number of the block: number of the tensor
  std::vector<std::uint32_t> open_;
  std::vector<moment> moments_;
};

}  // namespace vtier::detail
