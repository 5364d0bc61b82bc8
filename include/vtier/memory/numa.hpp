// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ordinary host memory on a NUMA node of one's choice: a node far away or a CXL expander as a tier of its own, and the
// memory of a plain CPU trainer.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <vtier/core/config.hpp>
#include <vtier/memory/detail/page_resource.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// Limits of a `numa` resource.
struct numa_options {
  std::size_t budget = 0;     // bytes
  std::string name = "numa";  // in messages and reports
};

/// Host memory bound to a NUMA node, not page-locked.
///
/// Needs   a node number of the system (machine::nodes()), or nothing for no binding
/// Gives   a resource; huge pages where the system has them; a note where binding is forbidden
/// Errors  usage_error at the first allocation for a node that does not exist
/// Threads any
class numa : public detail::page_resource {
 public:
  explicit numa(const numa_options& options) : numa{std::nullopt, options} {}
  numa(std::optional<unsigned> node, const numa_options& options)
      : page_resource{std::make_shared<detail::page_state>(detail::page_request{options.name, node, false, false},
                                                           options.budget)} {}
};

static_assert(host_resource<numa>);

}  // namespace vtier
