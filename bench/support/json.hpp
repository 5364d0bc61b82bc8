// SPDX-License-Identifier: Apache-2.0
#pragma once

// Results as JSON: objects built field by field, for the few shapes that benches write.

#include <fstream>
#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace vtier::bench {

/// A JSON string.
[[nodiscard]] inline std::string json_text(std::string_view text) {
  std::ostringstream result;
  result << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result << '\\' << c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result << "\\u" << std::hex << std::setw(4) << std::setfill('0') << static_cast<int>(c);
    } else {
      result << c;
    }
  }
  result << '"';
  return result.str();
}

/// A JSON list of values that are JSON already.
[[nodiscard]] inline std::string json_list(const std::vector<std::string>& values) {
  std::string result = "[";
  for (const auto& value : values) result += (result.size() == 1 ? "" : ", ") + value;
  return result + "]";
}

/// A JSON object, its fields in the order of adding.
class json_object {
 public:
  json_object& add(std::string_view name, double value) {
    std::ostringstream text;
    text << std::setprecision(9) << value;
    return add_value(name, text.str());
  }
  json_object& add(std::string_view name, std::size_t value) { return add_value(name, std::to_string(value)); }
  json_object& add(std::string_view name, const std::string& value) { return add_value(name, json_text(value)); }
  /// Adds a value that is JSON already.
  json_object& add_value(std::string_view name, const std::string& value) {
    fields_ += (fields_.empty() ? "" : ", ") + json_text(name) + ": " + value;
    return *this;
  }
  [[nodiscard]] std::string text() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

/// Writes text to a file; nothing where the path is empty.
///
/// Errors  std::runtime_error that names the file
inline void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream to{path};
  to << text << '\n';
  to.close();
  if (!to) throw std::runtime_error("cannot write " + path);
}

}  // namespace vtier::bench
