// SPDX-License-Identifier: Apache-2.0
#pragma once

// The hierarchy on the host device, compiled in host_hierarchy.cpp for all tests that use it.

#include <vtier/device/host.hpp>

#include "support/hierarchy_instances.hpp"

namespace vtier {
VTIER_TEST_HIERARCHY(extern, host::device);
}  // namespace vtier
