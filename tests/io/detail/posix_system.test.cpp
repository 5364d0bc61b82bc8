// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/detail/posix_system.hpp>

#include <vtier/io/detail/descriptor.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using vtier::io::detail::descriptor;
using vtier::io::detail::posix_system;

TEST_CASE("posix_system: gives -errno, whatever errno was") {
  const posix_system system;
  errno = EEXIST;
  CHECK(system.open_directory("/no/such/place") == -ENOENT);
  CHECK(system.openat(-1, "x", O_RDONLY, 0) == -EBADF);
  CHECK(system.unlinkat(-1, "x") == -EBADF);
  CHECK(system.ftruncate(-1, 0) == -EBADF);
  CHECK(system.fdatasync(-1) == -EBADF);
  CHECK(system.fallocate(-1, 0, 0, 1) == -EBADF);
  std::byte one{};
  CHECK(system.pread(-1, &one, 1, 0) == -EBADF);
  CHECK(system.pwrite(-1, &one, 1, 0) == -EBADF);
  CHECK_FALSE(system.free_bytes(-1).has_value());
  struct ::statx about {};
  CHECK(system.statx(-1, about) == -EBADF);
}

TEST_CASE("posix_system: the calls do what their names say") {
  const posix_system system;
  const vtier::test::scratch_directory place;
  const descriptor directory{system.open_directory(place.path().c_str())};
  REQUIRE(directory.get() >= 0);
  const descriptor file{system.openat(directory.get(), "name", O_CREAT | O_RDWR | O_CLOEXEC, 0600)};
  REQUIRE(file.get() >= 0);
  const std::byte two[2] = {std::byte{1}, std::byte{2}};
  CHECK(system.pwrite(file.get(), two, 2, 10) == 2);
  struct ::statx about {};
  CHECK(system.statx(file.get(), about) == 0);
  CHECK(about.stx_size == 12);
  std::byte back[4] = {};
  CHECK(system.pread(file.get(), back, 4, 9) == 3);
  CHECK(back[1] == std::byte{1});
  CHECK(system.free_bytes(file.get()).value_or(0) > 0);
  CHECK(system.file_bytes_max() > 0);
  CHECK_FALSE(system.is_link((place.path() / "name").c_str()));
  CHECK(system.unlinkat(directory.get(), "name") == 0);
  CHECK(place.empty());
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  CHECK(system.random(a) == 0);
  CHECK(system.random(b) == 0);
  CHECK(a != b);
}

TEST_CASE("uninterrupted: repeats on EINTR only") {
  int calls = 0;
  CHECK(vtier::io::detail::uninterrupted([&] { return ++calls < 4 ? -EINTR : 7; }) == 7);
  CHECK(calls == 4);
  CHECK(vtier::io::detail::uninterrupted([&] { return ++calls, -EIO; }) == -EIO);
  CHECK(calls == 5);
}
