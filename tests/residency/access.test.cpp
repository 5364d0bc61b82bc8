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
void takes(vtier::on_host_t) {}
template <class T>
concept taken_for_on_host = requires { takes(T{}); };
template <class T>
concept braces_are_on_host = requires { takes({}); } && sizeof(T) > 0;
static_assert(taken_for_on_host<vtier::on_host_t>);
static_assert(!braces_are_on_host<int>);
static_assert(std::is_empty_v<vtier::on_host_t>);

}  // namespace

TEST_CASE("the three kinds of access are told apart by the compiler", "[residency][access]") {
  takes(vtier::on_host);
  CHECK(vtier::writes(access::write));  // what can fail here failed above, at compile time
}
