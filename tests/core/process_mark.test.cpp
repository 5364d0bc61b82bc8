// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/process_mark.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <thread>

#include <vtier/core/error.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

TEST_CASE("a mark is seen in the process that made it and in no child", "[core]") {
  const vtier::process_mark mark;
  CHECK(mark.here());
  CHECK(vtier::test::in_child([&] { return !mark.here(); }).exit_status == 0);
  CHECK(vtier::test::in_child([] { return vtier::process_mark{}.here(); }).exit_status == 0);  // a mark of its own
  CHECK(vtier::test::in_child([&] {
          const vtier::process_mark own;  // a child of the child sees neither
          return vtier::test::in_child([&] { return !mark.here() && !own.here(); }).exit_status == 0;
        }).exit_status == 0);
  bool in_thread = false;
  std::thread{[&] { in_thread = mark.here(); }}.join();
  CHECK(in_thread);
  CHECK(mark.here());
}

TEST_CASE("the error in a child names what it was, the parent and what to do (VO-C07)", "[core]") {
  const vtier::process_mark mark;
  CHECK_NOTHROW(mark.check("this tier"));
  const std::string parent = std::to_string(::getpid());
  const auto end = vtier::test::in_child([&] {
    try {
      mark.check("this tier");
    } catch (const vtier::usage_error& e) {
      const std::string text = e.what();
      return text.find("this tier") == 0 && text.find(parent) != std::string::npos &&
             text.find("after the fork") != std::string::npos;
    }
    return false;
  });
  CHECK(end.exit_status == 0);
}

TEST_CASE("pages that are kept from children are not there (VO-C07)", "[core]") {
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  vtier::keep_from_children(page, size);
  const auto end = vtier::test::in_child([&] {
    unsigned char there = 0;
    const bool gone = ::mincore(page, size, &there) != 0;
    return gone && ::mincore(static_cast<std::byte*>(page) + size, size, &there) == 0;
  });
  CHECK(end.exit_status == 0);
  ::munmap(page, 2 * size);
}
