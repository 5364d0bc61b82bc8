// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/engine_options.hpp>

#include "support/catch.hpp"

using vtier::io::engine_options;

namespace {

std::string refusal(const engine_options& options) {
  try {
    vtier::io::check(options);
  } catch (const vtier::usage_error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("engine_options: the defaults work and are what one system call of Linux moves") {
  CHECK(refusal({}).empty());
  CHECK(engine_options{}.transfer_bytes_max == 2'147'479'552U);
}

TEST_CASE("engine_options: each limit has a range, and the message names field and value") {
  const auto check_field = [](std::size_t engine_options::*field, const std::string& name, std::size_t limit) {
    for (const auto& [value, works] : {std::pair<std::size_t, bool>{0, false},
                                       {1, true},
                                       {limit, true},
                                       {limit + 1, false},
                                       {~std::size_t{0}, false}}) {
      engine_options options;
      options.*field = value;
      const std::string said = refusal(options);
      CAPTURE(name, value, said);
      CHECK(said.empty() == works);
      if (!works) CHECK(said.find(name + " is " + std::to_string(value)) != std::string::npos);
    }
  };
  check_field(&engine_options::depth_max, "depth_max", engine_options::depth_limit);
  check_field(&engine_options::thread_count, "thread_count", engine_options::thread_count_limit);
  check_field(&engine_options::transfer_bytes_max, "transfer_bytes_max", engine_options::transfer_bytes_limit);
}
