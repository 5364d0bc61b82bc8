// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/detail/errno_name.hpp>

#include <cstring>

#include "support/catch.hpp"

using vtier::io::detail::errno_name;
using vtier::io::detail::path_text;

TEST_CASE("errno_name: names what files and rings answer") {
  CHECK(errno_name(0) == "no error");
  CHECK(errno_name(EPERM) == "EPERM");
  CHECK(errno_name(ENOSPC) == "ENOSPC");
  CHECK(errno_name(EAGAIN) == "EAGAIN");
  CHECK(errno_name(EOPNOTSUPP) == "EOPNOTSUPP");
  CHECK(errno_name(4711) == "errno 4711");
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 32)
  // Every name in the table is the system's own.
  for (int number = 1; number < 200; ++number) {
    const std::string name = errno_name(number);
    if (name.starts_with("errno ")) continue;
    CHECK(name == (number == EOPNOTSUPP ? "EOPNOTSUPP" : ::strerrorname_np(number)));
  }
#endif
#endif
}

TEST_CASE("path_text: a path in a message is quoted and of bounded length") {
  CHECK(path_text("") == "''");
  CHECK(path_text("/a b") == "'/a b'");
  CHECK(path_text(std::string_view("/a\0b\nc", 6)) == "'/a?b?c'");
  const std::string longest(256, 'x');
  CHECK(path_text(longest) == "'" + longest + "'");
  const std::string longer = "begin" + std::string(5000, 'x') + "end";
  CHECK(path_text(longer).size() == 256 + 3 + 2);
  CHECK(path_text(longer).starts_with("'beginx"));
  CHECK(path_text(longer).ends_with("xend'"));
}
