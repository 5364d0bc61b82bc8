// SPDX-License-Identifier: Apache-2.0
#include <vtier/observe/finding.hpp>

#include <set>
#include <string>

#include "support/catch.hpp"

TEST_CASE("every symptom and every severity has a name of its own", "[observe][finding]") {
  std::set<std::string> names;
  const int last = static_cast<int>(vtier::symptom::note);
  for (int i = 0; i <= last; ++i) names.emplace(vtier::name(static_cast<vtier::symptom>(i)));
  CHECK(names.size() == static_cast<std::size_t>(last) + 1);
  CHECK(names.count("unknown") == 0);
  CHECK(vtier::name(static_cast<vtier::symptom>(last + 1)) == "unknown");
  CHECK(vtier::name(vtier::severity::remark) == "remark");
  CHECK(vtier::name(vtier::severity::warning) == "warning");
  CHECK(vtier::name(vtier::severity::failure) == "failure");
}

TEST_CASE("severities grow", "[observe][finding]") {
  CHECK(vtier::severity::remark < vtier::severity::warning);
  CHECK(vtier::severity::warning < vtier::severity::failure);
}
