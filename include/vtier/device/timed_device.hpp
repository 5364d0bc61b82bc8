// SPDX-License-Identifier: Apache-2.0
#pragma once

// Events that know when they passed: what some devices can do beside what all of them do.
//
// A file of its own because nothing needs it: without it a step is not measured, and what is planned from measurements
// is not planned.

#include <concepts>
#include <cstdint>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/device/device.hpp>

namespace vtier {

/// A device whose events can be timed.
///
/// Gives   record_timed(s): as record(s), an event that also keeps the time at which it passes. elapsed_ns(from, to):
///         the time between the passing of two such events, below zero where `to` passed first
/// Needs   elapsed_ns: two events of record_timed that have passed
/// Errors  as record
/// Threads any
/// Cost    a timed event may cost more than another: for steps that are measured, not for all
template <class D>
concept timed_device = device<D> && requires(const D& d, typename D::stream_ref s, const typename D::event& e) {
  { d.record_timed(s) } -> std::same_as<typename D::event>;
  { d.elapsed_ns(e, e) } -> std::same_as<std::int64_t>;
};

/// Marks a point of a stream, timed where that is wanted and the device can.
///
/// Errors  as record
template <device Device>
[[nodiscard]] typename Device::event record(const Device& on, const typename Device::stream_ref& where, bool timed) {
  if constexpr (timed_device<Device>) {
    if (timed) return on.record_timed(where);
  }
  return on.record(where);
}

}  // namespace vtier
