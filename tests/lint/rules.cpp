// SPDX-License-Identifier: Apache-2.0

#include "rules.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lint {
namespace {

namespace fs = std::filesystem;

// A header includes headers of its own room or of rooms with a smaller number.
const std::map<std::string, int> room_numbers{{"core", 0},    {"topology", 1}, {"device", 1},    {"io", 1},
                                              {"memory", 2},  {"transfer", 3}, {"residency", 4}, {"policy", 5},
                                              {"runtime", 6}, {"train", 7},    {"observe", 7},   {"interop", 8}};

// Outside libraries: what their headers begin with, and the one header that may know them, with details of its own
// name: device/cuda.hpp is meant with device/detail/cuda_*.hpp.
const std::vector<std::pair<std::string, std::string>> outside{{"hwloc", "topology/hwloc.hpp"},
                                                               {"numa", "topology/numa.hpp"},
                                                               {"cuda_", "device/cuda.hpp"},
                                                               {"cuda.h", "device/cuda.hpp"},
                                                               {"cuda/", "memory/cuda_mr.hpp"},
                                                               {"liburing", "io/uring.hpp"},
                                                               {"cufile", "io/gds.hpp"},
                                                               {"omp.h", "train/adam.hpp"},
                                                               {"nvtx", "observe/nvtx.hpp"},
                                                               {"torch/", "interop/"},
                                                               {"mpi.h", "interop/"}};

// Headers that are included on purpose only: of the simulated machine, for those who test on it, and of other
// libraries' interfaces that cost more to compile than all of vtier.
const std::set<std::string> on_purpose{"memory/cuda_mr.hpp",  "core/happens_before.hpp",
                                       "core/simulation.hpp", "core/simulation_parts.hpp",
                                       "device/sim.hpp",      "io/sim.hpp",
                                       "memory/sim.hpp"};

// Folders of tests that mirror no room.
const std::set<std::string> other_tests{"bench",        "build",    "cases", "consume", "contract",
                                        "cuda_runtime", "examples", "lint",  "sim",     "support"};

constexpr std::size_t lines_max = 400;
constexpr std::size_t lines_long = 250;
constexpr std::size_t columns_max = 120;

struct line {
  std::string text;  // as it stands
  std::string code;  // without // comments and without the contents of string literals
};

std::vector<line> read(const fs::path& file) {
  std::ifstream in{file};
  std::vector<line> lines;
  for (std::string text; std::getline(in, text);) {
    std::string code;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (quoted && text[i] == '\\') {
        ++i;
        continue;
      }
      if (text[i] == '"' && (i == 0 || text[i - 1] != '\'')) {
        quoted = !quoted;
        code += '"';
        continue;
      }
      if (!quoted && text.compare(i, 2, "//") == 0) break;
      if (!quoted) code += text[i];
    }
    lines.push_back({text, code});
  }
  return lines;
}

std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The files below a folder with an ending, as paths relative to it, in order.
std::vector<std::string> files(const fs::path& folder, const std::string& ending) {
  std::vector<std::string> result;
  if (!fs::exists(folder)) return result;
  for (const auto& entry : fs::recursive_directory_iterator{folder}) {
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (entry.is_regular_file() && name.size() >= ending.size() &&
        name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
      result.push_back(name);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::string room_of(const std::string& header) { return header.substr(0, header.find('/')); }

// Whether a header is the one that knows a library, or a detail that has its name.
bool knows(const std::string& header, const std::string& only) {
  if (header.rfind(only, 0) == 0) return true;
  const auto slash = only.find('/');
  const auto dot = only.find(".hpp");
  if (dot == std::string::npos) return false;
  return header.rfind(only.substr(0, slash) + "/detail/" + only.substr(slash + 1, dot - slash - 1) + "_", 0) == 0;
}

bool is_detail(const std::string& header) { return header.find("/detail/") != std::string::npos; }

class checker {
 public:
  explicit checker(const fs::path& root) : root_{root}, include_{root / "include" / "vtier"} {}

  findings run() {
    const auto headers = files(include_, ".hpp");
    if (headers.empty()) breach("include/vtier", "no headers found");
    for (const std::string& header : headers) check_header(header);
    check_umbrella(headers);
    check_mirror(headers);
    check_top_level();
    for (const char* folder : {"include", "tests", "bench", "examples"}) {
      for (const char* ending : {".hpp", ".cpp", ".cu"}) {
        for (const std::string& name : files(root_ / folder, ending)) check_file(fs::path{folder} / name);
      }
    }
    return std::move(found_);
  }

 private:
  void breach(const std::string& where, const std::string& what) { found_.breaches.push_back(where + ": " + what); }

  void check_file(const fs::path& name) {
    const auto lines = read(root_ / name);
    const std::string where = name.generic_string();
    if (lines.empty() || lines.front().text != "// SPDX-License-Identifier: Apache-2.0")
      breach(where, "does not begin with the licence line");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (columns(lines[i].text) > columns_max)
        breach(where + ":" + std::to_string(i + 1), "is longer than 120 columns");
      if (lines[i].text.find('\t') != std::string::npos) breach(where + ":" + std::to_string(i + 1), "has a tab");
    }
  }

  void check_header(const std::string& header) {
    const auto lines = read(include_ / header);
    if (lines.size() > lines_max)
      breach(header, std::to_string(lines.size()) + " lines, 400 are the most");
    else if (lines.size() > lines_long)
      found_.remarks.push_back(header + ": " + std::to_string(lines.size()) + " lines");
    if (std::none_of(lines.begin(), lines.end(), [](const line& l) { return l.text == "#pragma once"; })) {
      breach(header, "has no #pragma once");
    }
    if (header != "tier.hpp" && room_numbers.count(room_of(header)) == 0) breach(header, "is in no room of the design");
    static const std::regex include_pattern{R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])"};
    static const std::regex macro_pattern{R"(^\s*#\s*define\s+(\w+))"};
    static const std::regex bare_limits{R"((^|[^\w(])((std|numeric_limits<[^>]*>)::)?(min|max)\s*\()"};
    static const std::regex printing{R"(\b(std::(cout|cerr|clog)|(std::)?(printf|fprintf|puts|perror)\s*\())"};
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string where = header + ":" + std::to_string(i + 1);
      std::smatch match;
      if (std::regex_search(lines[i].text, match, include_pattern)) {
        check_include(header, where, match[1] == "<", match[2]);
        continue;
      }
      if (std::regex_search(lines[i].code, match, macro_pattern)) {
        const std::string macro = match[1];
        if (macro.rfind("VTIER_", 0) != 0)
          breach(where, "defines " + macro + ", macros begin with VTIER_");
        else if (header != "core/config.hpp")
          breach(where, "defines " + macro + ", macros stand in core/config.hpp");
      }
      if (std::regex_search(lines[i].code, bare_limits))
        breach(where, "min or max without parentheses around it: users define macros of these names");
      if (header != "core/config.hpp" && std::regex_search(lines[i].code, printing))
        breach(where, "prints: a library says things through notes and errors");
      if (lines[i].code.find("dynamic_cast") != std::string::npos ||
          std::regex_search(lines[i].code, std::regex{R"(\btypeid\b)"})) {
        breach(where, "needs run-time type information");
      }
    }
  }

  void check_include(const std::string& header, const std::string& where, bool angled, const std::string& target) {
    if (!angled) {
      breach(where, "includes \"" + target + "\": headers are included by their full name in <>");
      return;
    }
    if (target.rfind("vtier/", 0) == 0) {
      const std::string other = target.substr(6);
      if (!fs::exists(include_ / other)) breach(where, "includes <" + target + ">, which is not there");
      if (header == "tier.hpp") return;
      const std::string from = room_of(header);
      const std::string to = room_of(other);
      if (other == "tier.hpp" || room_numbers.count(to) == 0) {
        breach(where, "includes <" + target + ">, which is no room below it");
      } else if (from != to && room_numbers.count(from) != 0 && room_numbers.at(to) >= room_numbers.at(from)) {
        breach(where, from + " includes " + to + ": not a room above it in the order of the design");
      }
      if (is_detail(other) && from != to) breach(where, "includes a detail of " + to + " from " + from);
      return;
    }
    for (const auto& [prefix, only] : outside) {
      if (target.rfind(prefix, 0) == 0 && !knows(header, only)) {
        breach(where, "includes <" + target + ">, which only " + only + " may know");
      }
    }
  }

  void check_umbrella(const std::vector<std::string>& headers) {
    std::ifstream in{include_ / "tier.hpp"};
    const std::string text{std::istreambuf_iterator<char>{in}, {}};
    for (const std::string& header : headers) {
      if (header == "tier.hpp" || is_detail(header)) continue;
      const bool there = text.find("#include <vtier/" + header + ">") != std::string::npos;
      if (room_of(header) == "interop" || on_purpose.count(header) != 0 ? there : !there) {
        breach("tier.hpp",
               there ? "includes " + header + ", which is included on purpose only" : "does not include " + header);
      }
    }
  }

  void check_mirror(const std::vector<std::string>& headers) {
    for (const std::string& header : headers) {
      if (header == "tier.hpp" || is_detail(header)) continue;
      const fs::path test = root_ / "tests" / (header.substr(0, header.size() - 4) + ".test.cpp");
      if (!fs::exists(test)) breach(header, "has no test: tests/" + header.substr(0, header.size() - 4) + ".test.cpp");
    }
    for (const std::string& test : files(root_ / "tests", ".test.cpp")) {
      if (other_tests.count(room_of(test)) != 0 || is_detail(test)) continue;
      if (!fs::exists(include_ / (test.substr(0, test.size() - 9) + ".hpp")))
        breach("tests/" + test, "tests no header of that name");
    }
  }

  void check_top_level() {
    static const std::set<std::string> allowed{
        "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "README.md", "bench", "build",
        "cmake",          "examples",          "include",         "tests"};
    for (const auto& entry : fs::directory_iterator{root_}) {
      const std::string name = entry.path().filename().string();
      if (name.front() != '.' && allowed.count(name) == 0) breach(name, "does not belong at the top level");
    }
  }

  fs::path root_;
  fs::path include_;
  findings found_;
};

}  // namespace

findings check(const std::filesystem::path& root) { return checker{root}.run(); }

}  // namespace lint
