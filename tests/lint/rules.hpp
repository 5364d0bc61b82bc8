// SPDX-License-Identifier: Apache-2.0
#pragma once

// The house rules as functions over a tree of files; lint.cpp runs them on the repository and on small bad trees.

#include <filesystem>
#include <string>
#include <vector>

namespace lint {

/// What a look at a tree found: breaches of rules, and remarks that fail nothing.
struct findings {
  std::vector<std::string> breaches;
  std::vector<std::string> remarks;
};

/// Holds a tree against the rules.
findings check(const std::filesystem::path& root);

}  // namespace lint
