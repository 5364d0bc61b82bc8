// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/detail/text_files.hpp>

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "topology/fake_tree.hpp"

namespace detail = vtier::detail;
using numbers = std::vector<unsigned>;

TEST_CASE("text_files: numbers are whole and nothing else is a number (VO-E02)") {
  CHECK(detail::parse_number<unsigned>("0") == 0U);
  CHECK(detail::parse_number<unsigned>("4294967295") == 4294967295U);
  for (const char* text : {"-1", "", " 1", "1 ", "+1", "4294967296", "1.5", "0x1", "max"}) {
    CAPTURE(text);
    CHECK(!detail::parse_number<unsigned>(text));
  }
  CHECK(detail::parse_number<unsigned>("10de", 16) == 0x10deU);
}

TEST_CASE("text_files: lists in the kernel's form") {
  CHECK(detail::parse_list("0-3,8,10-11\n") == numbers{0, 1, 2, 3, 8, 10, 11});
  CHECK(detail::parse_list("252,0") == numbers{0, 252});
  CHECK(detail::parse_list("1,1-2") == numbers{1, 2});
  CHECK(detail::parse_list("") == numbers{});
  for (const char* text : {"3-1", "a", "1-", "-1", "1,,2", "0-4294967295", "0-3:1/2"}) {
    CAPTURE(text);
    CHECK(!detail::parse_list(text));
  }
}

TEST_CASE("text_files: the value behind a key is found on its own line") {
  const std::string text = "Model: \t NVIDIA H200\nIRQ:   42\n\nNode:";
  CHECK(detail::line_value(text, "Model:") == "NVIDIA H200");
  CHECK(detail::line_value(text, "IRQ:") == "42");
  CHECK(detail::line_value(text, "Node:") == "");
  CHECK(!detail::line_value(text, "Other:"));
}

TEST_CASE("text_files: a statistic is found by its whole name at the beginning of a line") {
  const std::string text = "inactive_anon 7\nanon 4096\nanon_thp 5\nslab many\nend 1";
  CHECK(detail::named_number<unsigned>(text, "anon") == 4096U);
  CHECK(detail::named_number<unsigned>(text, "end") == 1U);
  CHECK(!detail::named_number<unsigned>(text, "slab"));
  CHECK(!detail::named_number<unsigned>(text, "ano"));
  CHECK(!detail::named_number<unsigned>("", "anon"));
}

TEST_CASE("text_files: what is not there is empty, a folder is no text") {
  const vtier::test::fake_tree tree;
  const std::string sys = tree.roots().sys;
  tree.file("sys/b", "  two words \n");
  tree.file("sys/a", std::string(100000, 'x'));
  CHECK(detail::read_text(sys + "/b") == "two words");
  CHECK(detail::read_text(sys + "/a")->size() < 100000);  // bounded
  CHECK(!detail::read_text(sys + "/c"));
  CHECK(!detail::read_text(sys));
  CHECK(detail::list_names(sys) == std::vector<std::string>{"a", "b"});
  CHECK(detail::list_names(sys + "/c").empty());
  CHECK(!detail::real_path(sys + "/c"));
  CHECK(detail::last_name("/x/y") == "y");
  CHECK(detail::parent_path("/x/y") == "/x");
  CHECK(detail::parent_path("x").empty());
}
