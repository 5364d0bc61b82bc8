// SPDX-License-Identifier: Apache-2.0
// What including the library costs: the time to compile one file that includes <vtier/tier.hpp> and nothing else,
// beside one that includes <vector>, <thread> and <functional>.
//
//   compile_time [--rounds 5] [--json FILE] [--smoke]
//
// The compiler is $CXX where that is set, else the one that built this program; the optional libraries are those that
// this program was built with. Both files are compiled in turns, without optimisation, to an object file and once more
// with -fsyntax-only; medians are printed. The first reading of the headers from disk is not counted.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <vtier/core/clock.hpp>
#include <vtier/core/config.hpp>

#include "support/arguments.hpp"
#include "support/json.hpp"
#include "support/spread.hpp"

// Set by bench/CMakeLists.txt; directories are separated by '|'.
#ifndef VTIER_BENCH_CXX
#define VTIER_BENCH_CXX "c++"
#endif
#ifndef VTIER_BENCH_INCLUDE_DIRS
#define VTIER_BENCH_INCLUDE_DIRS "include"
#endif

namespace {

using vtier::bench::fixed;
using vtier::bench::json_object;
using vtier::bench::spread_of;

/// A directory that is gone afterwards.
class scratch_directory {
 public:
  scratch_directory() {
    std::string name = (std::filesystem::temp_directory_path() / "vtier-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream from{text};
  for (std::string part; std::getline(from, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

/// How long one run of a program took.
///
/// Units   seconds; cpu is that of the program and of what it started
struct duration {
  double wall = 0.0;
  double cpu = 0.0;
};

/// Runs a program to its end.
///
/// Errors  std::runtime_error where it does not end well; its messages are on stderr then
duration run(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const vtier::steady_clock clock;
  const std::int64_t began = clock.now_ns();
  const ::pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    ::execvp(words.front(), words.data());
    ::_exit(127);
  }
  int status = 0;
  ::rusage used{};
  while (::wait4(child, &status, 0, &used) < 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "wait4");
  }
  const std::int64_t took = clock.now_ns() - began;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string text;
    for (const auto& word : command) text += word + " ";
    throw std::runtime_error("this command failed: " + text);
  }
  const auto seconds = [](const ::timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {static_cast<double>(took) * 1e-9, seconds(used.ru_utime) + seconds(used.ru_stime)};
}

/// The compiler with everything but the mode and the file.
std::vector<std::string> compiler() {
  const char* const chosen = std::getenv("CXX");
  std::vector<std::string> command = split(chosen != nullptr ? chosen : "", ' ');
  if (command.empty()) command = {VTIER_BENCH_CXX};
  command.emplace_back("-std=c++20");
  command.push_back("-DVTIER_HAS_HWLOC=" + std::to_string(VTIER_HAS_HWLOC));
  command.push_back("-DVTIER_HAS_NUMA=" + std::to_string(VTIER_HAS_NUMA));
  command.push_back("-DVTIER_HAS_URING=" + std::to_string(VTIER_HAS_URING));
  command.push_back("-DVTIER_HAS_CUDA=" + std::to_string(VTIER_HAS_CUDA));
  for (const auto& directory : split(VTIER_BENCH_INCLUDE_DIRS, '|')) {
    // Given once more, the system's own directory would lose its place in the order.
    if (directory != "/usr/include") command.push_back("-I" + directory);
  }
  return command;
}

std::filesystem::path write_source(const std::filesystem::path& directory, const std::string& name,
                                   const std::string& text) {
  const auto path = directory / name;
  vtier::bench::write_file(path.string(), text);
  return path;
}

/// Medians over the rounds.
struct outcome {
  duration library;
  duration baseline;
  vtier::bench::spread ratio;
};

outcome measure(std::vector<std::string> command, const std::filesystem::path& library,
                const std::filesystem::path& baseline, std::size_t rounds) {
  std::vector<double> library_wall, library_cpu, baseline_wall, baseline_cpu, ratios;
  command.emplace_back();
  const auto compile = [&](const std::filesystem::path& source) {
    command.back() = source.string();
    return run(command);
  };
  compile(library);
  compile(baseline);
  for (std::size_t i = 0; i < rounds; ++i) {
    const duration b = compile(baseline);
    const duration l = compile(library);
    library_wall.push_back(l.wall);
    library_cpu.push_back(l.cpu);
    baseline_wall.push_back(b.wall);
    baseline_cpu.push_back(b.cpu);
    ratios.push_back(l.wall / b.wall);
  }
  return {{spread_of(library_wall).median, spread_of(library_cpu).median},
          {spread_of(baseline_wall).median, spread_of(baseline_cpu).median},
          spread_of(ratios)};
}

json_object json_of(const outcome& o) {
  json_object result;
  result.add("seconds", o.library.wall)
      .add("baseline_seconds", o.baseline.wall)
      .add("ratio", o.ratio.median)
      .add("ratio_low", o.ratio.low)
      .add("ratio_high", o.ratio.high)
      .add("cpu_seconds", o.library.cpu)
      .add("baseline_cpu_seconds", o.baseline.cpu);
  return result;
}

void print(const std::string& what, const outcome& o) {
  std::cout << what << ": <vtier/tier.hpp> " << fixed(o.library.wall, 2) << " s (" << fixed(o.library.cpu, 2)
            << " s of CPU), <vector> <thread> <functional> " << fixed(o.baseline.wall, 2) << " s, ratio "
            << fixed(o.ratio.median, 2) << " (" << fixed(o.ratio.low, 2) << " to " << fixed(o.ratio.high, 2) << ")\n";
}

}  // namespace

int main(int argc, char** argv) try {
  vtier::bench::arguments given{argc, argv};
  const bool smoke = given.flag("--smoke");
  const std::size_t rounds = given.count("--rounds", smoke ? 1 : 5);
  const std::string json_path = given.text("--json", "");
  given.finish("compile_time [--rounds 5] [--json FILE] [--smoke]");

  const scratch_directory scratch;
  const auto library = write_source(scratch.path(), "library.cpp", "#include <vtier/tier.hpp>");
  const auto baseline =
      write_source(scratch.path(), "baseline.cpp", "#include <vector>\n#include <thread>\n#include <functional>");
  const auto command = compiler();
  std::cout << "compile_time: " << command.front() << ", " << rounds << " rounds in turns\n";

  auto to_object = command;
  to_object.insert(to_object.end(), {"-O0", "-c", "-o", (scratch.path() / "out.o").string()});
  const outcome object = measure(to_object, library, baseline, rounds);
  print("-c -O0       ", object);
  auto syntax_only = command;
  syntax_only.emplace_back("-fsyntax-only");
  const outcome syntax = measure(syntax_only, library, baseline, rounds);
  print("-fsyntax-only", syntax);

  json_object json = json_of(object);
  json.add_value("syntax_only", json_of(syntax).text()).add("compiler", command.front()).add("rounds", rounds);
  vtier::bench::write_file(json_path, json.text());
} catch (const std::exception& problem) {
  std::cerr << "compile_time: " << problem.what() << '\n';
  return 1;
}
