// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/machine_parts.hpp>

#include "support/catch.hpp"

TEST_CASE("machine_parts: nothing is known of what nobody wrote down") {
  const vtier::gpu gpu{};
  CHECK(!gpu.node);  // not node 0
  CHECK(!gpu.link_bytes_per_second);
  const vtier::drive drive{};
  CHECK(!drive.node);
  CHECK(!drive.address);
  const vtier::machine_parts parts{};
  CHECK(parts.nodes.empty());
  CHECK(parts.numa_known);
}
