// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the user asks for on the command line, checked before anything large is allocated.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <vtier/core/bytes.hpp>

#include "gpt_shape.hpp"

namespace train_gpt {

/// A command line that cannot be followed; the text says why.
struct bad_option : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The command line as values.
struct command {
  gpt_shape shape;
  std::size_t steps = 50;
  std::uint64_t seed = 1;
  std::size_t hbm_bytes = std::size_t{64} << 20U;
  std::size_t dram_bytes = std::size_t{128} << 20U;
  std::string text;    // empty: the default text
  std::string disk;    // empty: the system's directory for temporary files
  std::string device;  // empty: what is there
  std::string json;    // empty: no file
  bool compare = false;
  bool help = false;
};

inline constexpr std::string_view help_text =
    R"(train_gpt: trains a byte-level GPT whose state is larger than its fast memory

  --text FILE      what to train on; default: the licences in /usr/share/common-licenses,
                   or the headers of this repository
  --layers N       6      --width N    512    --heads N    8
  --context N      256    --batch N    4      --steps N    50    --seed N    1
  --hbm SIZE       64MiB  budget of the first tier: the GPU's memory, or a stand-in for it
  --dram SIZE      128MiB budget of the second tier: page-locked host memory
  --disk DIR       where the file of the third tier lies; default: the directory for
                   temporary files. It has no name and is gone when the program ends
  --device D       cuda or host; default: cuda where a GPU is, else host
  --compare        trains twice from one seed, once with everything in the first tier and
                   once tiered, and says whether all losses and parameters are the same bits
  --json FILE      writes the results there
  --help           this text

SIZE is a number with a unit: 48MiB, 1.5GiB. Ctrl-C ends after the current step, with the
report. Exit status: 0, 1 for a failure or a difference, 2 for a bad option, 130 for Ctrl-C.
)";

namespace detail {

inline std::uint64_t number(std::string_view name, std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < least || value > most) {
    throw bad_option(std::string{name} + " takes a whole number from " + std::to_string(least) + " to " +
                     std::to_string(most) + ", got \"" + std::string{text} + "\"");
  }
  return value;
}

inline std::size_t bytes(std::string_view name, std::string_view text) {
  const auto value = vtier::parse_bytes(text);
  if (!value || *value == 0) {
    throw bad_option(std::string{name} + " takes a size such as 48MiB or 1.5GiB, got \"" + std::string{text} + "\"");
  }
  return *value;
}

inline void check(const command& c) {
  if (c.shape.width % c.shape.heads != 0) {
    throw bad_option("--width " + std::to_string(c.shape.width) + " cannot be shared by --heads " +
                     std::to_string(c.shape.heads) + ": choose a multiple");
  }
  if (!c.device.empty() && c.device != "cuda" && c.device != "host") {
    throw bad_option("--device is cuda or host, got \"" + c.device + "\"");
  }
  std::error_code ignored;
  if (!c.text.empty() && !std::filesystem::is_regular_file(c.text, ignored)) {
    throw bad_option("--text: there is no file \"" + c.text + "\"");
  }
  if (!c.disk.empty() && !std::filesystem::is_directory(c.disk, ignored)) {
    throw bad_option("--disk: there is no directory \"" + c.disk + "\"");
  }
}

}  // namespace detail

/// Reads a command line: `--name value` or `--name=value`.
///
/// Errors  bad_option for an unknown name, a missing or impossible value
[[nodiscard]] inline command parse(const std::vector<std::string>& arguments) {
  command c;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view whole = arguments[i];
    const std::size_t equals = whole.find('=');
    const std::string_view name = whole.substr(0, equals);
    const auto flag = [&](std::string_view wanted, bool& target) {
      if (name != wanted) return false;
      if (equals != std::string_view::npos) throw bad_option(std::string{name} + " takes no value");
      target = true;
      return true;
    };
    if (flag("--compare", c.compare) || flag("--help", c.help)) continue;
    const auto value = [&]() -> std::string {
      if (equals != std::string_view::npos) return std::string{whole.substr(equals + 1)};
      if (++i == arguments.size()) throw bad_option(std::string{name} + " needs a value");
      return arguments[i];
    };
    const auto count = [&](std::uint64_t most) -> std::size_t { return detail::number(name, value(), 1, most); };
    if (name == "--text") {
      c.text = value();
    } else if (name == "--layers") {
      c.shape.layers = count(1024);
    } else if (name == "--width") {
      c.shape.width = count(65'536);
    } else if (name == "--heads") {
      c.shape.heads = count(1024);
    } else if (name == "--context") {
      c.shape.context = count(65'536);
    } else if (name == "--batch") {
      c.shape.batch = count(4096);
    } else if (name == "--steps") {
      c.steps = count(1'000'000);
    } else if (name == "--seed") {
      c.seed = detail::number(name, value(), 0, ~std::uint64_t{0});
    } else if (name == "--hbm") {
      c.hbm_bytes = detail::bytes(name, value());
    } else if (name == "--dram") {
      c.dram_bytes = detail::bytes(name, value());
    } else if (name == "--disk") {
      c.disk = value();
    } else if (name == "--device") {
      c.device = value();
    } else if (name == "--json") {
      c.json = value();
    } else {
      throw bad_option("there is no option \"" + std::string{whole} + "\"; --help lists them");
    }
  }
  if (!c.help) detail::check(c);
  return c;
}

}  // namespace train_gpt
