// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/detail/unnamed_file.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using namespace vtier::io::detail;

TEST_CASE("unnamed_file: endings that would make the system follow a link are taken away") {
  CHECK(without_trailing_slashes("/a/link/") == "/a/link");
  CHECK(without_trailing_slashes("/a/link//./") == "/a/link");
  CHECK(without_trailing_slashes("/a/link/.") == "/a/link");
  CHECK(without_trailing_slashes("/a/link/..") == "/a/link/..");
  CHECK(without_trailing_slashes("/") == "/");
  CHECK(without_trailing_slashes("///") == "/");
  CHECK(without_trailing_slashes("/.") == "/.");
  CHECK(without_trailing_slashes(".") == ".");
  CHECK(without_trailing_slashes("./") == ".");
  CHECK(without_trailing_slashes("").empty());
  CHECK(without_trailing_slashes("a.") == "a.");
}

TEST_CASE("unnamed_file: which errno means a missing feature") {
  for (const int missing : {EOPNOTSUPP, EISDIR, ENOSYS, EINVAL}) CHECK(lacks_unnamed_files(missing));
  for (const int real : {EACCES, ENOSPC, EROFS, ENOENT, EMFILE, EIO, EPERM}) {
    CHECK_FALSE(lacks_unnamed_files(real));
    CHECK_FALSE(lacks_direct(real));
  }
  CHECK(lacks_direct(EINVAL));
}

TEST_CASE("unnamed_file: memory at an alignment is zeroed") {
  for (const std::size_t alignment : {std::size_t{1}, std::size_t{512}, std::size_t{65536}}) {
    const aligned_bytes bytes{100, alignment};
    CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0);
    CHECK(std::count(bytes.data(), bytes.data() + 100, std::byte{}) == 100);
  }
}

TEST_CASE("unnamed_file: a probe leaves an empty file, and rules that a file refuses are told") {
  const vtier::test::scratch_directory place;
  const posix_system system;
  const descriptor directory = open_directory(system, place.path().string());
  bool direct = false;
  std::vector<std::string> remarks;
  const descriptor file = open_unnamed(system, directory, direct, "here", remarks);
  CHECK(probe_direct(system, file, {4096, 4096}) == 0);
  struct ::statx about {};
  REQUIRE(system.statx(file.get(), about) == 0);
  CHECK(about.stx_size == 0);
  CHECK(probe_direct(system, directory, {4096, 4096}) == EBADF);  // opened as a place only
}
