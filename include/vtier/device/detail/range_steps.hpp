// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the end of a device's address range may stand: arithmetic that its models share.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>

namespace vtier::detail {

/// A range's size and the steps of its end; the last step may be shorter.
///
/// Units   bytes
struct range_steps {
  std::size_t size_bytes = 0;
  std::size_t granule_bytes = 0;

  /// Steps of the wanted size, rounded up to a power of two of at least `least_bytes`, what the device can do; the size
  /// is rounded up to that.
  ///
  /// Needs   size_bytes > 0, least_bytes a power of two
  /// Gives   empty where 64 bits cannot count it
  [[nodiscard]] static std::optional<range_steps> of(std::size_t size_bytes, std::size_t wanted_bytes,
                                                     std::size_t least_bytes) noexcept {
    VTIER_ASSERT(size_bytes > 0, "an address range of no bytes was asked for");
    const auto size = checked_align_up(size_bytes, least_bytes);
    if (!size || *size > (~std::size_t{0} >> 1U)) return std::nullopt;
    return range_steps{*size, std::bit_ceil((std::max)((std::min)(wanted_bytes, *size), least_bytes))};
  }

  /// The end that is meant.
  [[nodiscard]] std::size_t end_at(std::size_t end_bytes) const noexcept {
    VTIER_ASSERT(end_bytes <= size_bytes, "an address range of a device is shorter than that");
    return (std::min)(align_up(end_bytes, granule_bytes), size_bytes);
  }
};

}  // namespace vtier::detail
