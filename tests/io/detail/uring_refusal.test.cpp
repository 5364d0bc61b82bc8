// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/detail/uring_refusal.hpp>

#include <cerrno>
#include <fstream>
#include <string>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using vtier::io::detail::uring_refusal;

namespace {

bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

}  // namespace

TEST_CASE("uring_refusal: the errno by name, the setting where it can be read, and what to do (VO-B06)") {
  const vtier::test::scratch_directory place;
  const std::string path = (place.path() / "io_uring_disabled").string();
  const auto text = [&](const char* setting, int error) {
    std::ofstream{path, std::ios::trunc} << setting;
    std::string said = uring_refusal(error, path.c_str());
    CHECK(has(said, "(" + vtier::io::detail::errno_name(error) + ")"));
    CHECK_FALSE(has(said, "\n"));
    CHECK_FALSE(has(said, "errno 0"));
    return said;
  };
  CHECK(has(text("2\n", EPERM), "kernel.io_uring_disabled is 2; set it to 0"));
  CHECK(has(text("1\n", EPERM), "is 1 (rings for administrators and kernel.io_uring_group only); set it to 0"));
  CHECK(has(text("0\n", EPERM), "is 0; likely a container's seccomp profile"));
  CHECK(has(text("0\n", ENOSYS), "seccomp profile hides it; kernel.io_uring_disabled is 0"));
  CHECK(has(text("", EPERM), "kernel.io_uring_disabled cannot be read; likely a container's"));
  CHECK(has(text("maybe\n", EACCES), "cannot be read"));
  CHECK(has(text("0\n", ENOMEM), "locked memory limit"));
  CHECK(has(text("0\n", EMFILE), "ulimit -n"));
  CHECK(has(text("0\n", ENODEV), "is 0"));
  CHECK(has(uring_refusal(EPERM, (place.path() / "missing").c_str()), "cannot be read"));
}
