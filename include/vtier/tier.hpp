// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything but interop/: the one include of a user who wants the whole library.
//
// Headers of outside libraries come in as the VTIER_HAS_* switches say, which the CMake targets set. Under an older
// standard config.hpp defines nothing and says why, and the rest stays out: one error, not hundreds.

#include <vtier/core/config.hpp>
#ifdef VTIER_VERSION_MAJOR

#include <vtier/core/bytes.hpp>
#include <vtier/core/clock.hpp>
#include <vtier/core/element.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/core/shape.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/discover.hpp>
#include <vtier/topology/machine.hpp>
#include <vtier/topology/machine_parts.hpp>
#include <vtier/topology/memory_limit.hpp>
#include <vtier/topology/numa.hpp>
#include <vtier/topology/pci_address.hpp>
#include <vtier/topology/sysfs.hpp>
#include <vtier/topology/thread_count.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/growable_device.hpp>
#include <vtier/device/host.hpp>
#include <vtier/device/timed_device.hpp>
#include <vtier/io/blocking.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/io/file_engine.hpp>
#include <vtier/io/scratch_file.hpp>
#include <vtier/io/threads.hpp>
#include <vtier/memory/aligned.hpp>
#include <vtier/memory/allocation_log.hpp>
#include <vtier/memory/allocator.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/guarded.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/logged.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/on_failure.hpp>
#include <vtier/memory/pack.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pmr.hpp>
#include <vtier/memory/pool.hpp>
#include <vtier/memory/ranges.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/resource_ref.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/memory/thread_safe.hpp>
#include <vtier/memory/tracked.hpp>
#include <vtier/transfer/copier.hpp>
#include <vtier/transfer/route.hpp>
#include <vtier/transfer/transfer.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/block.hpp>
#include <vtier/residency/lease.hpp>
#include <vtier/residency/replica.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/residency/table.hpp>
#include <vtier/residency/tensor.hpp>
#include <vtier/policy/eviction.hpp>
#include <vtier/policy/fit.hpp>
#include <vtier/policy/lower_bound.hpp>
#include <vtier/policy/lru.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/policy/plan.hpp>
#include <vtier/policy/schedule_aware.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/runtime/hierarchy.hpp>
#include <vtier/runtime/options.hpp>
#include <vtier/runtime/prefetch_queue.hpp>
#include <vtier/runtime/progress.hpp>
#include <vtier/runtime/reservation.hpp>
#include <vtier/runtime/statistics.hpp>
#include <vtier/runtime/timeline.hpp>
#include <vtier/train/activation_stack.hpp>
#include <vtier/observe/finding.hpp>
#include <vtier/observe/health.hpp>
#include <vtier/observe/report.hpp>
#include <vtier/observe/trace.hpp>

#if VTIER_HAS_CUDA
#include <vtier/device/cuda.hpp>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <vtier/observe/nvtx.hpp>
#endif
#endif
#if VTIER_HAS_HWLOC
#include <vtier/topology/hwloc.hpp>
#endif
#if VTIER_HAS_URING
#include <vtier/io/uring.hpp>
#endif

#endif  // C++20
