// SPDX-License-Identifier: Apache-2.0
#pragma once

// The hierarchy on the simulated device, compiled in sim_hierarchy.cpp for all tests that use it.

#include <vtier/device/sim.hpp>

#include "support/hierarchy_instances.hpp"

namespace vtier {
VTIER_TEST_HIERARCHY(extern, sim::device);
}  // namespace vtier
