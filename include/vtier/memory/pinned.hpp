// SPDX-License-Identifier: Apache-2.0
#pragma once

// Page-locked host memory: what a device copies from and to without the kernel's help.
//
// Two ways to it: pages of our own, bound to a node before they are touched and then locked (a hierarchy registers them
// with its device), or memory of the device's runtime (cudaHostAlloc) when a device is given.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <vtier/core/config.hpp>
#include <vtier/device/device.hpp>
#include <vtier/memory/detail/page_resource.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// Limits of a `pinned` resource.
struct pinned_options {
  std::size_t budget = 0;       // bytes
  std::string name = "pinned";  // in messages and reports
  bool require_lock = false;    // refuse memory that the locked-memory limit leaves unlocked, instead of a note
};

/// Page-locked host memory.
///
/// Units   exactly the pages asked for are locked and charged, never a power of two
/// Needs   a node number of the system, or nothing for no binding
/// Gives   a resource; where the locked-memory limit forbids locking, unlocked memory and a note that names the limit
/// Errors  out_of_memory where the machine has less than was asked, or with require_lock where locking is forbidden;
///         usage_error at the first allocation for a node that does not exist
/// Threads any
class pinned : public detail::page_resource {
 public:
  explicit pinned(const pinned_options& options) : pinned{std::nullopt, options} {}
  pinned(std::optional<unsigned> node, const pinned_options& options)
      : page_resource{std::make_shared<detail::page_state>(
            detail::page_request{options.name, node, true, options.require_lock}, options.budget)} {}

  /// Memory that the device's own runtime page-locks (cudaHostAlloc on CUDA).
  ///
  /// Errors  whatever the device's allocate_host says
  template <device Device>
  pinned(const Device& on, const pinned_options& options) : pinned{std::nullopt, options} {
    state().device_allocate = [on](std::size_t size_bytes) { return on.allocate_host(size_bytes); };
    state().device_deallocate = [on](void* p, std::size_t size_bytes) { on.deallocate_host(p, size_bytes); };
  }
};

static_assert(host_resource<pinned>);

}  // namespace vtier
