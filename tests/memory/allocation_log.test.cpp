// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/allocation_log.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace {

using action = vtier::allocation_action;

const std::string header = "Thread,Time,Action,Pointer,Size,Stream\n";

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(vtier::parse_allocation_log(text));
  } catch (const vtier::usage_error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("an allocation log is read as it was written", "[memory][allocation_log]") {
  constexpr auto most = (std::numeric_limits<std::uint64_t>::max)();
  const std::vector<vtier::allocation_record> records{
      {1'234, 0, action::allocate, 0x7f8a'4000'0000, 1'024, 0},
      {1'234, 86'399'999'999, action::free, 0x7f8a'4000'0000, 1'024, 0x2},
      {most, 47'222'008'041, action::allocate_failure, 0, most, most},
  };
  std::string text = header;
  for (const auto& record : records) vtier::append_allocation_record(text, record);
  CHECK(text == header +
                    "1234,00:00:00.000000,allocate,0x7f8a40000000,1024,0x0\n"
                    "1234,23:59:59.999999,free,0x7f8a40000000,1024,0x2\n"
                    "18446744073709551615,13:07:02.008041,allocate failure,0x0,18446744073709551615,"
                    "0xffffffffffffffff\n");
  CHECK(vtier::parse_allocation_log(text) == records);
}

TEST_CASE("the ways in which others write a log are read", "[memory][allocation_log]") {
  const auto records = vtier::parse_allocation_log(
      "Thread,Time,Action,Pointer,Size,Stream\r\n"
      "7,15:47:02:841961,allocate failure,(nil),10,0\r\n\r\n"
      "7,15:47:02.841961,allocate,7f00,10,1f");
  REQUIRE(records.size() == 2);
  CHECK(records[0] == vtier::allocation_record{7, 56'822'841'961, action::allocate_failure, 0, 10, 0});
  CHECK(records[1] == vtier::allocation_record{7, 56'822'841'961, action::allocate, 0x7f00, 10, 0x1f});
  CHECK(vtier::parse_allocation_log(header).empty());
}

TEST_CASE("what is wrong with a log is told with its line", "[memory][allocation_log]") {
  const std::string good = "1,00:00:00.000000,allocate,0x10,8,0x0\n";
  CHECK(complaint(header + good) == "none");
  CHECK(complaint("").find("empty") != std::string::npos);
  CHECK(complaint("\n\n").find("empty") != std::string::npos);
  CHECK(complaint("Thread,Time\n").find("line 1: is not the header") != std::string::npos);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"x,00:00:00.000000,allocate,0x10,8,0x0", "Thread is no number of 64 bits: 'x'"},
      {",00:00:00.000000,allocate,0x10,8,0x0", "Thread is no number"},
      {"-1,00:00:00.000000,allocate,0x10,8,0x0", "Thread is no number"},
      {"0x1,00:00:00.000000,allocate,0x10,8,0x0", "Thread is no number"},
      {"18446744073709551616,00:00:00.000000,allocate,0x10,8,0x0", "Thread is no number"},
      {"1,24:00:00.000000,allocate,0x10,8,0x0", "Time is not"},
      {"1,00:60:00.000000,allocate,0x10,8,0x0", "Time is not"},
      {"1,00:00:61.000000,allocate,0x10,8,0x0", "Time is not"},
      {"1,00:00:00.00000,allocate,0x10,8,0x0", "Time is not"},
      {"1,00:00:00.00000x,allocate,0x10,8,0x0", "Time is not"},
      {"1,00-00:00.000000,allocate,0x10,8,0x0", "Time is not"},
      {"1,00:00:00.000000,deallocate,0x10,8,0x0", "Action is none of"},
      {"1,00:00:00.000000,free,0xg,8,0x0", "Pointer is no number"},
      {"1,00:00:00.000000,free,0x,8,0x0", "Pointer is no number"},
      {"1,00:00:00.000000,free,0x10,8.5,0x0", "Size is no number"},
      {"1,00:00:00.000000,free,0x10,8,", "Stream is no number"},
      {"1,00:00:00.000000,free,0x10,8", "Size is the last column"},
      {"1", "Thread is the last column"},
      {"1,00:00:00.000000,free,0x10,8,0x0,", "more than six columns"},
  };
  for (const auto& [line, words] : cases) {
    CAPTURE(line);
    const std::string text = complaint(header + good + line + "\n" + good);
    CAPTURE(text);
    CHECK(text.find("line 3: " + words) != std::string::npos);
  }
}
