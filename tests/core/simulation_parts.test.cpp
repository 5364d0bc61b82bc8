// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/simulation_parts.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "support/catch.hpp"

TEST_CASE("every kind of fault has a name of its own", "[core]") {
  std::set<std::string> names;
  for (std::size_t i = 0; i < vtier::sim::fault_count; ++i) {
    names.insert(vtier::sim::name(static_cast<vtier::sim::fault>(i)));
  }
  CHECK(names.size() == vtier::sim::fault_count);
  CHECK(names.count("file_write") == 1);
}

TEST_CASE("marks count those that are alive", "[core]") {
  const auto alive = std::make_shared<std::int64_t>(0);
  auto one = std::make_shared<vtier::sim::mark>(alive);
  {
    const auto two = std::make_shared<vtier::sim::mark>(alive);
    CHECK(*alive == 2);
    CHECK_FALSE(two->passed);
  }
  one = nullptr;
  CHECK(*alive == 0);
}
