// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/config.hpp>

#include <string>

#include "support/catch.hpp"
#include "support/death.hpp"

static_assert(VTIER_VERSION_MAJOR >= 0 && VTIER_VERSION_MINOR >= 0 && VTIER_VERSION_PATCH >= 0);
static_assert(VTIER_HAS_CUDA == 0 || VTIER_HAS_CUDA == 1);
static_assert(VTIER_HAS_HWLOC == 0 || VTIER_HAS_HWLOC == 1);
static_assert(VTIER_HAS_NUMA == 0 || VTIER_HAS_NUMA == 1);
static_assert(VTIER_HAS_URING == 0 || VTIER_HAS_URING == 1);

namespace {

constexpr int checked_at_compile_time(int value) {
  VTIER_ASSERT(value > 0, "constant expressions may assert too");
  return value;
}
static_assert(checked_at_compile_time(3) == 3);

}  // namespace

TEST_CASE("a broken assertion aborts and says what, where and why, in every build", "[core][config]") {
  const auto end = vtier::test::in_child([] { VTIER_ASSERT(1 + 1 == 3, "numbers add up"); });
  CHECK(end.asserted("numbers add up"));
  CHECK(end.text.find("1 + 1 == 3") != std::string::npos);
  CHECK(end.text.find("config.test.cpp:") != std::string::npos);
}

TEST_CASE("an assertion that holds does nothing and looks once", "[core][config]") {
  int looks = 0;
  const auto end = vtier::test::in_child([&] {
    VTIER_ASSERT(++looks == 1, "never said");
    return looks == 1;
  });
  CHECK(end.exit_status == 0);
  CHECK(end.text.empty());
}
