// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one check of an argument that every resource makes; a file of its own so that device memory and pools need not
// include what host pages need.

#include <cstddef>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier::detail {

/// Refuses an alignment that no address can have.
inline void check_alignment(const std::string& name, std::size_t alignment_bytes) {
  if (!is_power_of_two(alignment_bytes)) {
    throw usage_error(name + ": an alignment of " + std::to_string(alignment_bytes) + " bytes is not a power of two");
  }
}

}  // namespace vtier::detail
