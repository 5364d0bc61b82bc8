// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which device's streams a pool follows, if any: that of the resource below it, one that it was given, or none.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/device/device.hpp>
#include <vtier/memory/detail/pool_blocks.hpp>
#include <vtier/memory/detail/stream_lanes.hpp>

namespace vtier {

/// The device of a pool whose blocks are the host's alone.
struct no_device {};

namespace detail {

/// The device that a resource is on, and the name of its streams.
template <class Upstream>
struct device_under {
  using type = no_device;
  static type of(const Upstream& /*from*/) noexcept { return {}; }
};
template <class Upstream>
requires device<std::remove_cvref_t<decltype(std::declval<const Upstream&>().on())>>
struct device_under<Upstream> {
  using type = std::remove_cvref_t<decltype(std::declval<const Upstream&>().on())>;
  static type of(const Upstream& from) { return from.on(); }
};

/// What a pool without a device has instead of lanes.
template <class Device>
class lanes_of {
 public:
  using stream_or_none = no_device;
  lanes_of(const Device& /*on*/, pool_blocks& /*blocks*/) noexcept {}
  [[nodiscard]] std::uint64_t waiting() const noexcept { return 0; }
  [[nodiscard]] std::size_t piece_count() const noexcept { return 0; }
  [[nodiscard]] bool holds(std::uint64_t /*start*/) const noexcept { return false; }
};
template <device Device>
class lanes_of<Device> : public stream_lanes<Device> {
 public:
  using stream_ref = typename Device::stream_ref;
  using stream_or_none = stream_ref;
  using stream_lanes<Device>::stream_lanes;
};

/// The name of a pool's streams, where it has some.
template <class Device>
struct pool_streams {};
template <device Device>
struct pool_streams<Device> {
  using stream_ref = typename Device::stream_ref;
};

}  // namespace detail

}  // namespace vtier
