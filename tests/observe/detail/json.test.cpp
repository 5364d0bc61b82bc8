// SPDX-License-Identifier: Apache-2.0
#include <vtier/observe/detail/json.hpp>

#include <string>

#include "support/catch.hpp"

using vtier::detail::json_string;

TEST_CASE("plain text and characters of several bytes stay as they are", "[observe][json]") {
  CHECK(json_string("") == "\"\"");
  CHECK(json_string("pinned -> hbm") == "\"pinned -> hbm\"");
  for (const char* good :
       {"\xC2\x80", "\xC3\xBC", "\xDF\xBF", "\xE0\xA0\x80", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) {
    CAPTURE(good);
    CHECK(json_string(std::string{"a"} + good + "z") == std::string{"\"a"} + good + "z\"");
  }
}

TEST_CASE("quotes, backslashes and control characters are escaped", "[observe][json]") {
  CHECK(json_string("a\"b\\c") == R"("a\"b\\c")");
  CHECK(json_string(std::string{"\0\x01\n\x1f \x7f", 6}) == R"("\u0000\u0001\u000a\u001f \u007f")");
}

TEST_CASE("each byte that is no UTF-8 becomes one replacement character", "[observe][json]") {
  const std::string bad = R"(\ufffd)";
  CHECK(json_string("\x80") == '"' + bad + '"');
  CHECK(json_string("\xC0\xAF") == '"' + bad + bad + '"');                      // overlong
  CHECK(json_string("\xC1\xBF") == '"' + bad + bad + '"');                      // overlong
  CHECK(json_string("\xE0\x9F\xBF") == '"' + bad + bad + bad + '"');            // overlong
  CHECK(json_string("\xED\xA0\x80") == '"' + bad + bad + bad + '"');            // a surrogate
  CHECK(json_string("\xF0\x8F\xBF\xBF") == '"' + bad + bad + bad + bad + '"');  // overlong
  CHECK(json_string("\xF4\x90\x80\x80") == '"' + bad + bad + bad + bad + '"');  // beyond U+10FFFF
  CHECK(json_string("\xF5\xFF") == '"' + bad + bad + '"');
  CHECK(json_string("\xC3") == '"' + bad + '"');  // cut off at the end
  CHECK(json_string("\xE2\x82") == '"' + bad + bad + '"');
  CHECK(json_string("\xF0\x9F\x98") == '"' + bad + bad + bad + '"');
  CHECK(json_string("\xC3\"") == '"' + bad + "\\\"\"");  // the quote is not swallowed
  CHECK(json_string("\xE2\x82z\xC3\xBC") == '"' + bad + bad + "z\xC3\xBC\"");
}
