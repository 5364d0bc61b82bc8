// SPDX-License-Identifier: Apache-2.0
#include <vtier/device/host.hpp>

#include "support/hierarchy_instances.hpp"

namespace vtier {
VTIER_TEST_HIERARCHY(, host::device);
}  // namespace vtier
