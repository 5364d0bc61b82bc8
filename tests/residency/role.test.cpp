// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/role.hpp>

#include <cstddef>
#include <set>
#include <string>

#include "support/catch.hpp"

TEST_CASE("every role is listed once, at its own index, under a name of its own", "[residency][role]") {
  std::set<std::string> names;
  for (std::size_t i = 0; i < vtier::role_count; ++i) {
    CHECK(static_cast<std::size_t>(vtier::all_roles[i]) == i);
    names.insert(std::string{vtier::name(vtier::all_roles[i])});
  }
  CHECK(names.size() == vtier::role_count);
  CHECK(names.count("unknown") == 0);
  CHECK(vtier::name(vtier::role::optimizer) == "optimizer");
  CHECK(vtier::name(static_cast<vtier::role>(vtier::role_count)) == "unknown");
}
