// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/detail/descriptor.hpp>

#include <fcntl.h>

#include <optional>
#include <type_traits>

#include "support/catch.hpp"

using vtier::io::detail::descriptor;

static_assert(!std::is_copy_constructible_v<descriptor>);

namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }
int opened() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

TEST_CASE("descriptor: closes what it owns, once, wherever it was moved to") {
  std::optional<descriptor> first{descriptor{opened()}};
  const int number = first->get();
  REQUIRE(is_open(number));
  std::optional<descriptor> second{std::move(*first)};
  CHECK(first->get() == -1);
  first.reset();
  CHECK(is_open(number));

  std::optional<descriptor> third{descriptor{opened()}};
  const int replaced = third->get();
  *third = std::move(*second);
  second.reset();
  CHECK(third->get() == number);
  CHECK_FALSE(is_open(replaced));
  third.reset();
  CHECK_FALSE(is_open(number));
  CHECK(descriptor{}.get() == -1);
}
