// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device memory that grows where it stands: what some devices can do beside what all of them do.
//
// A file of its own because nothing needs it: who builds on `device` alone runs everywhere, and who finds that a device
// is a `growable_device` asks it for a range, which it may still not have on this machine.

#include <concepts>
#include <cstddef>
#include <optional>

#include <vtier/core/config.hpp>
#include <vtier/device/device.hpp>

namespace vtier {

/// Addresses of a device, of which the first have memory behind them, up to an end that moves.
///
/// Units   bytes, counted from base()
/// Gives   base(): the first address, the same for life. size_bytes(): how many addresses there are, at least what was
///         asked for. granule_bytes(): what the end moves by; the last step may be shorter. end_bytes(): the bytes
///         [0, end) exist. grow(end): makes the bytes up to `end`, rounded up to the granule, exist; those that did
///         stay as they are, new ones hold anything; nothing happens where they all did. shrink(end): gives the memory
///         behind `end`, rounded up to the granule, back to the device; the addresses stay. The destructor gives back
///         all of both.
/// Needs   ends of at most size_bytes() (asserted). Whatever uses memory that shrink or the destructor gives back is
///         over; it may run on the device until then
/// Errors  out_of_memory that says what is free, device_error: from grow() alone, and nothing has changed then
/// Threads one at a time
/// Cost    grow() and shrink() may block as long as the device's allocate() and deallocate() do
template <class R>
concept device_range = std::move_constructible<R> && requires(R& r, const R& c, std::size_t end_bytes) {
  { c.base() } -> std::same_as<std::byte*>;
  { c.size_bytes() } -> std::same_as<std::size_t>;
  { c.granule_bytes() } -> std::same_as<std::size_t>;
  { c.end_bytes() } -> std::same_as<std::size_t>;
  { r.grow(end_bytes) } -> std::same_as<void>;
  { r.shrink(end_bytes) }
  noexcept->std::same_as<void>;
};

/// A device that may have address ranges.
///
/// Gives   make_range(bytes, granule): addresses for so many bytes, none of which exist yet, aligned to 256 at least;
///         empty where this device or its driver cannot do that. The granule is rounded up to what the device can do; 0
///         is the least that it can
/// Needs   bytes > 0
/// Errors  out_of_memory where there are no addresses left, device_error
/// Threads any
template <class D>
concept growable_device = device<D> && device_range<typename D::range> &&
    requires(const D& d, std::size_t size_bytes, std::size_t granule_bytes) {
  { d.make_range(size_bytes, granule_bytes) } -> std::same_as<std::optional<typename D::range>>;
};

}  // namespace vtier
