// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a bench was asked on its command line, in one form for all benches: `--flag` and `--name VALUE`.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>

namespace vtier::bench {

/// The arguments of a program; each is taken once, and what nobody took is an error.
///
/// Errors  std::invalid_argument that names the argument
class arguments {
 public:
  arguments(int argc, char** argv) : left_(argv + (argc > 0 ? 1 : 0), argv + argc) {}

  /// Whether a flag was given.
  bool flag(const std::string& name) {
    const auto at = std::find(left_.begin(), left_.end(), name);
    if (at == left_.end()) return false;
    left_.erase(at);
    return true;
  }

  /// The text after a name, or what to take without it.
  std::string text(const std::string& name, std::string otherwise) {
    const auto at = std::find(left_.begin(), left_.end(), name);
    if (at == left_.end()) return otherwise;
    if (at + 1 == left_.end()) throw std::invalid_argument(name + " needs a value");
    std::string value = *(at + 1);
    left_.erase(at, at + 2);
    return value;
  }

  /// A size such as 256MiB, or what to take without it.
  ///
  /// Units   bytes
  std::size_t bytes(const std::string& name, std::size_t otherwise) {
    const std::string value = text(name, std::to_string(otherwise));
    const auto size = parse_bytes(value);
    if (!size || *size == 0) throw std::invalid_argument(name + " needs a size such as 256MiB, got " + value);
    return *size;
  }

  /// A count of at least one, or what to take without it.
  std::size_t count(const std::string& name, std::size_t otherwise) {
    const std::string value = text(name, std::to_string(otherwise));
    if (value.empty() || value.size() > 9 || value.find_first_not_of("0123456789") != std::string::npos ||
        std::stoul(value) == 0) {
      throw std::invalid_argument(name + " needs a number of at least 1, got " + value);
    }
    return std::stoul(value);
  }

  /// A time above zero such as 0.5, or what to take without it.
  ///
  /// Units   seconds
  double seconds(const std::string& name, double otherwise) {
    const std::string value = text(name, "");
    if (value.empty()) return otherwise;
    std::size_t used = 0;
    double result = 0.0;
    try {
      result = std::stod(value, &used);
    } catch (const std::logic_error&) {  // not a number: the same message as for a number that is none of these
    }
    if (used != value.size() || !(result > 0.0)) throw std::invalid_argument(name + " needs seconds, got " + value);
    return result;
  }

  /// Refuses what nobody took.
  void finish(const std::string& usage) const {
    if (!left_.empty()) throw std::invalid_argument("what is " + left_.front() + "? usage: " + usage);
  }

 private:
  std::vector<std::string> left_;
};

}  // namespace vtier::bench
