// SPDX-License-Identifier: Apache-2.0
#pragma once

// The hierarchy on the host device, compiled once (host_hierarchy.cpp) for all tests that use it: half of what it costs
// to compile such a test.

#include <vtier/device/host.hpp>
#include <vtier/policy/schedule_aware.hpp>
#include <vtier/runtime/hierarchy.hpp>

#ifndef VTIER_TEST_INSTANCE
#define VTIER_TEST_INSTANCE extern
#endif

namespace vtier {

VTIER_TEST_INSTANCE template class detail::state<host::device>;
VTIER_TEST_INSTANCE template class detail::mover<host::device>;
VTIER_TEST_INSTANCE template class detail::packer<host::device>;
VTIER_TEST_INSTANCE template class detail::evictor<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::ledger<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::reserver<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::drainer<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::driver<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::waiter<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::scheduler<host::device, schedule_aware>;
VTIER_TEST_INSTANCE template class detail::core<host::device, schedule_aware>;

}  // namespace vtier
