// SPDX-License-Identifier: Apache-2.0
#pragma once

// The text to train on, and batches from it: a step's batch is a function of seed and step alone.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "gpt_shape.hpp"

namespace train_gpt {

namespace detail {

// The regular files below a directory that have one of the endings, or all of them; sorted by path, links left out.
inline std::vector<std::filesystem::path> files_below(const std::filesystem::path& directory,
                                                      const std::string& ending) {
  std::vector<std::filesystem::path> result;
  std::error_code ignored;
  for (std::filesystem::recursive_directory_iterator at{directory, ignored}, end; at != end; at.increment(ignored)) {
    if (at->is_symlink(ignored) || !at->is_regular_file(ignored)) continue;
    if (ending.empty() || at->path().extension() == ending) result.push_back(at->path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

inline std::string read_whole(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  if (!file.is_open() || file.bad()) throw std::runtime_error("cannot read " + path.string());
  return text;
}

inline std::string read_all(const std::vector<std::filesystem::path>& paths) {
  std::string text;
  for (const auto& p : paths) text += read_whole(p);
  return text;
}

}  // namespace detail

/// A text and where it came from.
struct corpus {
  std::string text;
  std::string source;
};

/// Reads a file; without a name, the licences of the system, or else the headers of this repository.
///
/// Errors  std::runtime_error where there is nothing to read
[[nodiscard]] inline corpus read_corpus(const std::string& path) {
  if (!path.empty()) return {detail::read_whole(path), path};
  constexpr std::size_t enough_bytes = 20'000;
  const std::filesystem::path licences = "/usr/share/common-licenses";
  std::string text = detail::read_all(detail::files_below(licences, ""));
  if (text.size() >= enough_bytes) return {std::move(text), licences.string()};
  const auto root = std::filesystem::path{__FILE__}.parent_path().parent_path().parent_path();
  text = detail::read_all(detail::files_below(root / "include", ".hpp"));
  if (text.size() >= enough_bytes) return {std::move(text), "the headers of this repository"};
  throw std::runtime_error("no text to train on was found: name a file with --text");
}

/// Batches of a text.
///
/// Needs   a text longer than context + 1 bytes (checked)
class batches {
 public:
  batches(std::string text, const gpt_shape& shape, std::uint64_t seed)
      : text_{std::move(text)}, shape_{shape}, seed_{seed} {
    if (text_.size() < shape.context + 2) {
      throw std::runtime_error("the text has " + std::to_string(text_.size()) + " bytes, too few for a context of " +
                               std::to_string(shape.context) + ": use a longer text or a smaller --context");
    }
  }

  /// The batch of a step.
  ///
  /// Shape   (batch, context + 1)
  [[nodiscard]] std::vector<std::int32_t> at(std::uint64_t step) const {
    vtier::random_source mixed{seed_ ^ 0xB47C4B47C4ULL};
    vtier::random_source numbers{mixed() + step * 0x9E3779B97F4A7C15U};
    const std::size_t length = shape_.context + 1;
    std::vector<std::int32_t> tokens;
    tokens.reserve(shape_.batch * length);
    for (std::size_t b = 0; b < shape_.batch; ++b) {
      const std::size_t from = numbers.below(text_.size() - length + 1);
      for (std::size_t i = 0; i < length; ++i) tokens.push_back(static_cast<unsigned char>(text_[from + i]));
    }
    return tokens;
  }

 private:
  std::string text_;
  gpt_shape shape_;
  std::uint64_t seed_;
};

}  // namespace train_gpt
