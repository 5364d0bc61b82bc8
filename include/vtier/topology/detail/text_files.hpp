// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reading the kernel's little text files: a line, a number, a list of CPUs, the names in a directory.
//
// A file of its own so that each form has one parser, which refuses what it does not know instead of guessing: "-1" in
// a numa_node file is no number here.

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier {

/// Where the kernel's trees are.
struct system_roots {
  std::string sys = "/sys";
  std::string proc = "/proc";
};

}  // namespace vtier

namespace vtier::detail {

/// The highest CPU or node number that a list may hold, so that a broken file cannot ask for gigabytes.
inline constexpr unsigned list_number_max = 1U << 20U;

/// Drops blanks and line ends on both sides.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Reads a whole number; empty for anything else: a sign, a fraction, trailing text, more than T can hold.
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text, int base = 10) noexcept {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads the kernel's list form, "0-3,8,10-11"; an empty text is an empty list.
///
/// Gives   the numbers in rising order; empty optional for anything else
[[nodiscard]] inline std::optional<std::vector<unsigned>> parse_list(std::string_view text) {
  std::vector<unsigned> numbers;
  text = trimmed(text);
  while (!text.empty()) {
    const std::size_t comma = (std::min)(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix((std::min)(comma + 1, text.size()));
    const std::size_t dash = part.find('-');
    const auto first = parse_number<unsigned>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number<unsigned>(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last > list_number_max) return std::nullopt;
    if (numbers.size() + (*last - *first) > list_number_max) return std::nullopt;
    for (unsigned number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

/// Reads a file's first 64 KiB, blanks at its ends dropped; empty where it cannot be read.
[[nodiscard]] inline std::optional<std::string> read_text(const std::string& path) {
  constexpr std::size_t text_bytes_max = 64 * 1024;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while (text.size() < text_bytes_max) {
    got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  if (got < 0) return std::nullopt;
  return std::string{trimmed(text)};
}

/// Reads a file that holds one number.
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> read_number(const std::string& path) {
  const auto text = read_text(path);
  return text ? parse_number<T>(*text) : std::nullopt;
}

/// Reads a file that holds a list in the kernel's form.
[[nodiscard]] inline std::optional<std::vector<unsigned>> read_list(const std::string& path) {
  const auto text = read_text(path);
  return text ? parse_list(*text) : std::nullopt;
}

/// What stands after `key` on its line ("Node: 1" or "MemTotal:  16 kB"), up to the line's end.
[[nodiscard]] inline std::optional<std::string_view> line_value(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    const std::size_t end = (std::min)(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t at = line.find(key);
    if (at != std::string_view::npos) return trimmed(line.substr(at + key.size()));
    text.remove_prefix((std::min)(end + 1, text.size()));
  }
  return std::nullopt;
}

/// The number after `name` and a blank at the beginning of a line, as statistics have them: "anon 4096".
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> named_number(std::string_view text, std::string_view name) noexcept {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' ')) {
      return parse_number<T>(trimmed(line.substr(name.size())));
    }
    text.remove_prefix((std::min)(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

/// The names in a directory, sorted; none where it cannot be read.
[[nodiscard]] inline std::vector<std::string> list_names(const std::string& path) {
  struct closer {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
  };
  std::vector<std::string> names;
  const std::unique_ptr<DIR, closer> directory{::opendir(path.c_str())};
  if (directory == nullptr) return names;
  while (const ::dirent* entry = ::readdir(directory.get())) {
    const std::string name{entry->d_name};
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The path without links; empty where it leads nowhere.
[[nodiscard]] inline std::optional<std::string> real_path(const std::string& path) {
  struct freer {
    void operator()(char* text) const noexcept { std::free(text); }
  };
  const std::unique_ptr<char, freer> text{::realpath(path.c_str(), nullptr)};
  if (text == nullptr) return std::nullopt;
  return std::string{text.get()};
}

/// The part of a path before its last component, and that component.
[[nodiscard]] inline std::string parent_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string{} : path.substr(0, slash);
}
[[nodiscard]] inline std::string last_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace vtier::detail
