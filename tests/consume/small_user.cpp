// SPDX-License-Identifier: Apache-2.0
// A user's program that takes the allocators alone, and looks at the machine with what the library was found with.

#include <iostream>
#include <vector>

#include <vtier/memory/allocator.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/topology/discover.hpp>

int main() {
  using namespace vtier::literals;
  const vtier::pinned memory{{.budget = 1_MiB}};
  const std::vector<int, vtier::allocator<int, vtier::pinned>> numbers(1000, 42,
                                                                       vtier::allocator<int, vtier::pinned>{memory});
  const auto machine = vtier::machine::discover();
  std::cout << machine.nodes().size() << " nodes\n";
  return numbers.back() == 42 && !machine.nodes().empty() ? 0 : 1;
}
