// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/error.hpp>

#include <cerrno>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

#include "support/catch.hpp"

namespace {

// Which of the clauses that a caller can write takes the exception.
template <class Caught>
bool caught_as(const std::function<void()>& thrower, std::string& text) {
  try {
    thrower();
  } catch (const Caught& e) {
    text = e.what();
    return true;
  } catch (...) {
    return false;
  }
  return false;
}

template <class Caught>
void check_caught(const std::function<void()>& thrower, const std::string& words) {
  std::string text;
  CHECK(caught_as<Caught>(thrower, text));
  CHECK(text.find(words) != std::string::npos);
}

// Copies of an exception in flight must not throw.
static_assert(std::is_nothrow_copy_constructible_v<vtier::usage_error>);
static_assert(std::is_nothrow_copy_constructible_v<vtier::out_of_memory>);
static_assert(std::is_nothrow_copy_constructible_v<vtier::io_error>);
static_assert(std::is_nothrow_copy_constructible_v<vtier::device_error>);
static_assert(!std::is_base_of_v<std::exception, vtier::error>);

}  // namespace

TEST_CASE("each error can be caught as vtier's, as its standard type and as any exception", "[core][error]") {
  SECTION("usage") {
    const auto thrower = [] { throw vtier::usage_error("a wish that cannot be"); };
    check_caught<vtier::error>(thrower, "a wish that cannot be");
    check_caught<std::logic_error>(thrower, "a wish that cannot be");
    check_caught<std::exception>(thrower, "a wish that cannot be");
  }
  SECTION("memory") {
    const auto thrower = [] { throw vtier::out_of_memory("hbm", 4096, 17, "hbm: asked 4 KiB, free 17 B"); };
    check_caught<vtier::error>(thrower, "asked 4 KiB");
    check_caught<std::bad_alloc>(thrower, "asked 4 KiB");  // std::bad_alloc's own text would say nothing
    check_caught<std::exception>(thrower, "asked 4 KiB");
  }
  SECTION("files") {
    const auto thrower = [] { throw vtier::io_error(ENOSPC, "writing to scratch"); };
    check_caught<vtier::error>(thrower, "writing to scratch");
    check_caught<std::system_error>(thrower, "writing to scratch");
    check_caught<std::exception>(thrower, std::generic_category().message(ENOSPC));
  }
  SECTION("device") {
    const auto thrower = [] { throw vtier::device_error(700, "illegal address"); };
    check_caught<vtier::error>(thrower, "illegal address");
    check_caught<std::runtime_error>(thrower, "illegal address");
    check_caught<std::exception>(thrower, "illegal address");
  }
}

TEST_CASE("errors carry their numbers", "[core][error]") {
  const vtier::out_of_memory memory{"hbm", 4096, 17, "text"};
  const vtier::out_of_memory copy = memory;
  CHECK(copy.tier() == "hbm");
  CHECK(copy.asked_bytes() == 4096);
  CHECK(copy.free_bytes() == 17);
  CHECK(vtier::io_error(ENOSPC, "x").code() == std::errc::no_space_on_device);
  CHECK(vtier::device_error(700, "x").native_code() == 700);
}

TEST_CASE("a message is one line that ends where it ends, whatever names it holds (VO-B11)", "[core][error]") {
  std::string name = "one\ntwo\tthree";
  name += '\0';
  name += "four\x7f";
  const std::string shown = "one two three?four?";
  CHECK(vtier::one_line(name) == shown);
  CHECK(vtier::one_line("na\xC3\xAFve /a/../b") == "na\xC3\xAFve /a/../b");
  const vtier::out_of_memory memory{name, 4096, 17, name + ": asked 4 KiB"};
  CHECK(memory.what() == shown + ": asked 4 KiB");
  CHECK(memory.tier() == name);
  CHECK(vtier::usage_error{name + ", end"}.what() == shown + ", end");
  CHECK(vtier::device_error{1, name + ", end"}.what() == shown + ", end");
  CHECK(std::string{vtier::io_error{ENOSPC, name + ", end"}.what()}.find(shown + ", end") == 0);
}
