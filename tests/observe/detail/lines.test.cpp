// SPDX-License-Identifier: Apache-2.0
#include <vtier/observe/detail/lines.hpp>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream from{text};
  for (std::string line; std::getline(from, line);) result.push_back(line);
  return result;
}

}  // namespace

TEST_CASE("numbers are rounded to what people read", "[observe][lines]") {
  using namespace vtier::detail;
  CHECK(one_decimal(0.0) == "0.0");
  CHECK(one_decimal(1.25) == "1.3");
  CHECK(one_decimal(9.96) == "10.0");
  CHECK(one_decimal(-1.0) == "0.0");
  CHECK(one_decimal(1e300) == "much");
  CHECK(one_decimal(0.0 / 1.0) == "0.0");
  CHECK(percent(0.305) == "30.5 %");
  CHECK(milliseconds(1'250'000) == "1.3 ms");
  CHECK(gigabytes_per_second(12.0) == "12.00");
  CHECK(gigabytes_per_second(2.057) == "2.06");
  CHECK(gigabytes_per_second(1e30) == "much");
  CHECK(share_of(1.0, 4.0) == 0.25);
  CHECK(share_of(1.0, 0.0) == 0.0);
}

TEST_CASE("a text is broken at blanks, and further lines are indented", "[observe][lines]") {
  std::string to = "before\n";
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word" + std::to_string(i) + ' ';
  vtier::detail::append_lines(to, words);
  const auto lines = lines_of(to);
  REQUIRE(lines.size() > 4);
  CHECK(lines[0] == "before");
  CHECK(lines[1].rfind("  word0 word1 ", 0) == 0);
  CHECK(lines[2].rfind("      word", 0) == 0);
  std::string joined;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    CHECK(lines[i].size() <= 120);
    CHECK(lines[i].size() > (i + 1 < lines.size() ? 110U : 0U));  // as full as they can be
    CHECK(lines[i].back() != ' ');
    joined += lines[i].substr(i == 1 ? 2 : 6) + ' ';
  }
  CHECK(joined == words);
}

TEST_CASE("a line of exactly 120 columns stays one", "[observe][lines]") {
  for (const std::size_t size : {117U, 118U, 119U}) {
    std::string to;
    vtier::detail::append_lines(to, std::string(60, 'a') + " " + std::string(size - 61, 'x'));
    CHECK(lines_of(to).size() == (size <= 118 ? 1U : 2U));
  }
}

TEST_CASE("a word that is longer than a line is broken, not within a character", "[observe][lines]") {
  for (std::size_t shift = 0; shift < 2; ++shift) {
    std::string word(shift, 'a');
    for (int i = 0; i < 300; ++i) word += "\xC3\xA9";
    std::string to;
    vtier::detail::append_lines(to, "note: " + word + " end");
    const auto lines = lines_of(to);
    std::string joined;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK(vtier::detail::columns(lines[i]) <= 120);
      const std::string line = lines[i].substr(i == 0 ? 2 : 6);
      CHECK((static_cast<unsigned char>(line.front()) & 0xC0U) != 0x80U);
      joined += line;
    }
    CHECK(joined == "note:" + word + " end");
  }
  std::string to;
  vtier::detail::append_lines(to, std::string(500, '\x80') + std::string(500, 'b'));  // no UTF-8 at all: it ends
  CHECK(to.size() > 1000);
  for (const auto& line : lines_of(to)) CHECK(vtier::detail::columns(line) <= 120);
}

TEST_CASE("an empty text is an empty line, and a newline in a text is none", "[observe][lines]") {
  std::string to;
  vtier::detail::append_lines(to, "");
  vtier::detail::append_lines(to, "a\nb");
  CHECK(to == "  \n  a b\n");
}

TEST_CASE("a name is cut after 60 bytes, not within a character", "[observe][lines]") {
  CHECK(vtier::detail::short_name(std::string(60, 'x')) == std::string(60, 'x'));
  CHECK(vtier::detail::short_name(std::string(61, 'x')) == std::string(60, 'x') + "...");
  CHECK(vtier::detail::short_name(std::string(59, 'y') + "\xC3\xA9") == std::string(59, 'y') + "...");
}

TEST_CASE("columns of a table are as wide as they must be", "[observe][lines]") {
  std::string to;
  vtier::detail::append_table(to, {{"tier", "budget", "x"}, {"\xC3\xA9", "1", "a longer one"}, {"hbm", "64 GiB", ""}});
  CHECK(to ==
        "  tier      budget             x\n"
        "  \xC3\xA9              1  a longer one\n"
        "  hbm       64 GiB              \n");
}

TEST_CASE("a table without rows is none", "[observe][lines]") {
  std::string to;
  vtier::detail::append_table(to, {{"tier", "budget"}});
  CHECK(to.empty());
}

TEST_CASE("columns that do not fit follow below, behind the first one", "[observe][lines]") {
  std::vector<std::vector<std::string>> rows{{"link"}, {std::string(60, 'n')}};
  for (int i = 0; i < 9; ++i) {
    rows[0].push_back("head" + std::to_string(i));
    rows[1].push_back(std::string(20, static_cast<char>('a' + i)));
  }
  std::string to;
  vtier::detail::append_table(to, rows);
  const auto lines = lines_of(to);
  REQUIRE(lines.size() == 10);  // two a block
  for (std::size_t i = 0; i < lines.size(); i += 2) {
    CHECK(lines[i].rfind("  link ", 0) == 0);
    CHECK(lines[i].size() == lines[i + 1].size());
    CHECK(lines[i].size() <= 120);
  }
  for (int i = 0; i < 9; ++i) CHECK(to.find(rows[1][static_cast<std::size_t>(i) + 1]) != std::string::npos);

  // One more column than fits in 120 columns to the letter.
  for (const std::size_t more : {0U, 1U}) {
    to.clear();
    vtier::detail::append_table(
        to, {{"12345678", "a", "b"}, {"12345678", std::string(50, 'a'), std::string(56 + more, 'b')}});
    CHECK(lines_of(to).size() == (more == 0 ? 2U : 4U));
  }
}
