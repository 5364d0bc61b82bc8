// SPDX-License-Identifier: Apache-2.0
#define VTIER_TEST_INSTANCE
#include "support/host_hierarchy.hpp"
