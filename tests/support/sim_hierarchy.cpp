// SPDX-License-Identifier: Apache-2.0
#include <vtier/device/sim.hpp>

#include "support/hierarchy_instances.hpp"

namespace vtier {
VTIER_TEST_HIERARCHY(, sim::device);
}  // namespace vtier
