// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/process_mark.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
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

TEST_CASE("whole pages that are kept from children are not there, until that is taken back (VO-C07)", "[core]") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const first = ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(first != MAP_FAILED);
  const auto in_a_child = [&] {  // a digit for each page that is there
    const auto end = vtier::test::in_child([&] {
      for (std::size_t i = 0; i < 4; ++i) {
        unsigned char resident = 0;
        if (::mincore(static_cast<std::byte*>(first) + i * page, page, &resident) == 0)
          std::fputs(std::to_string(i).c_str(), stderr);
      }
    });
    return end.text;
  };
  CHECK(in_a_child() == "0123");
  vtier::keep_from_children(static_cast<std::byte*>(first) + 1, 3 * page);  // two whole pages and two parts
  CHECK(in_a_child() == "03");
  vtier::keep_from_children(static_cast<std::byte*>(first) + 1, page - 1);  // no whole page
  CHECK(in_a_child() == "03");
  vtier::share_with_children(static_cast<std::byte*>(first) + 1, 3 * page);
  CHECK(in_a_child() == "0123");
  ::munmap(first, 4 * page);
}
