// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy consists of, as a list: host_hierarchy.hpp and sim_hierarchy.hpp say that their device's is compiled
// elsewhere, the files of their names compile it, and the tests that use it need not.

#include <vtier/policy/schedule_aware.hpp>
#include <vtier/runtime/hierarchy.hpp>

#define VTIER_TEST_HIERARCHY(how, device)                       \
  how template class detail::state<device>;                     \
  how template class detail::mover<device>;                     \
  how template class detail::packer<device>;                    \
  how template class detail::evictor<device, schedule_aware>;   \
  how template class detail::ledger<device, schedule_aware>;    \
  how template class detail::reserver<device, schedule_aware>;  \
  how template class detail::drainer<device, schedule_aware>;   \
  how template class detail::driver<device, schedule_aware>;    \
  how template class detail::waiter<device, schedule_aware>;    \
  how template class detail::scheduler<device, schedule_aware>; \
  how template class detail::core<device, schedule_aware>
