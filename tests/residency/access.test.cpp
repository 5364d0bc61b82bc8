// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/access.hpp>

#include <type_traits>

#include "support/catch.hpp"

namespace {

using vtier::access;

static_assert(vtier::reads(access::read) && !vtier::writes(access::read));
static_assert(!vtier::reads(access::write) && vtier::writes(access::write));
static_assert(vtier::reads(access::read_write) && vtier::writes(access::read_write));

// `{}` must not be taken for "on the host" where a stream was meant.
template <class T>
concept made_of_braces = requires(void (*takes)(T)) {
  takes({});
};
static_assert(made_of_braces<int> && !made_of_braces<vtier::on_host_t>);
static_assert(std::is_same_v<decltype(vtier::on_host), const vtier::on_host_t>);
static_assert(std::is_empty_v<vtier::on_host_t>);

}  // namespace

TEST_CASE("the three kinds of access are told apart by the compiler", "[residency][access]") {
  CHECK(vtier::writes(access::write));  // what can fail here failed above, at compile time
}
