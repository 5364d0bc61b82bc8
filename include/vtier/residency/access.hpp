// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a lease may do with the bytes, and where a host wants them.

#include <cstdint>

#include <vtier/core/config.hpp>

namespace vtier {

/// What a lease is taken for.
///
/// `write` does not need the old content: nothing is fetched, and the bytes are unspecified until written.
enum class access : std::uint8_t { read, write, read_write };

/// Whether a lease of this kind changes the tensor.
///
/// Threads any
[[nodiscard]] constexpr bool writes(access mode) noexcept { return mode != access::read; }

/// Whether a lease of this kind needs the old content.
///
/// Threads any
[[nodiscard]] constexpr bool reads(access mode) noexcept { return mode != access::write; }

/// Says that a lease is for host code: the call blocks until the bytes are in memory that the host can touch.
struct on_host_t {
  explicit on_host_t() = default;
};

/// The value to pass: `tensor.read(vtier::on_host)`.
inline constexpr on_host_t on_host{};

}  // namespace vtier
