// SPDX-License-Identifier: Apache-2.0
// Explores seeds: each is a random program on a simulated machine, with a random order of events and random faults.
//
//   fuzz --seeds N [--from S] [--json FILE]     runs N programs, tells of the first that breaks a rule
//   fuzz --seed S                               runs one and prints every event

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <unistd.h>

#include "sim/program.hpp"
#include "support/sim_hierarchy.hpp"

namespace {

volatile std::sig_atomic_t seed_low = 0;  // of the seed that runs, for the handler
volatile std::sig_atomic_t seed_high = 0;

// Says which seed it was and dies of the same signal.
extern "C" void tell_seed(int signal) {
  std::uint64_t seed = static_cast<std::uint64_t>(static_cast<unsigned>(seed_high)) << 32U |
                       static_cast<std::uint64_t>(static_cast<unsigned>(seed_low));
  char text[] = "\nfuzz: died in seed                     \n";
  char* end = text + sizeof text - 2;
  do {
    *--end = static_cast<char>('0' + seed % 10);
    seed /= 10;
  } while (seed > 0);
  static_cast<void>(!write(STDERR_FILENO, text, sizeof text - 1));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

vtier::test::program_result run(std::uint64_t seed, bool logs) {
  seed_low = static_cast<std::sig_atomic_t>(seed & 0xFFFFFFFFU);
  seed_high = static_cast<std::sig_atomic_t>(seed >> 32U);
  const auto bytes = vtier::test::program_of(seed);
  return vtier::test::program{bytes, {.seed = seed, .logs = logs}}.run();
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

int usage() {
  std::puts("fuzz --seeds N [--from S] [--json FILE]   |   fuzz --seed S");
  return 2;
}

int replay(std::uint64_t seed) {
  const auto result = run(seed, true);
  for (const std::string& line : result.events) std::puts(line.c_str());
  std::printf("seed %llu: %zu operations, %llu faults, %zu violations\n", static_cast<unsigned long long>(seed),
              result.operations, static_cast<unsigned long long>(result.faults), result.violations.size());
  for (const std::string& line : result.violations) std::puts(line.c_str());
  return result.violations.empty() ? 0 : 1;
}

}  // namespace

int main(int argument_count, char** arguments) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) std::signal(signal, tell_seed);
  std::uint64_t seeds = 1000;
  std::uint64_t from = 1;
  std::string json;
  for (int i = 1; i < argument_count; ++i) {
    const std::string name = arguments[i];
    if (i + 1 == argument_count) return usage();
    const char* const value = arguments[++i];
    if (name == "--seeds")
      seeds = number(value);
    else if (name == "--from")
      from = number(value);
    else if (name == "--json")
      json = value;
    else if (name == "--seed")
      return replay(number(value));
    else
      return usage();
  }

  const auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  std::uint64_t operations = 0;
  std::uint64_t faults = 0;
  std::uint64_t bad_seeds = 0;
  std::uint64_t violations = 0;
  double shown = 0.0;
  for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
    const auto result = run(seed, false);
    operations += result.operations;
    faults += result.faults;
    violations += result.violations.size();
    if (!result.violations.empty() && ++bad_seeds <= 10) {
      std::printf("\n%s\n  replay: fuzz --seed %llu\n", result.violations.front().c_str(),
                  static_cast<unsigned long long>(seed));
    }
    if (isatty(STDOUT_FILENO) != 0 && elapsed() > shown + 0.5) {
      shown = elapsed();
      std::printf("\r%llu of %llu seeds, %llu bad, %.0f a second ", static_cast<unsigned long long>(seed - from + 1),
                  static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(bad_seeds),
                  static_cast<double>(seed - from + 1) / shown);
      std::fflush(stdout);
    }
  }
  const double rate = static_cast<double>(seeds) / elapsed();
  std::printf(
      "\nfuzz: %llu seeds from %llu, %llu operations, %llu faults, %llu violations in %llu seeds, %.0f seeds/s\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(from),
      static_cast<unsigned long long>(operations), static_cast<unsigned long long>(faults),
      static_cast<unsigned long long>(violations), static_cast<unsigned long long>(bad_seeds), rate);
  if (!json.empty()) {
    std::ofstream out{json};
    out << "{\"seeds\": " << seeds << ", \"from\": " << from << ", \"operations\": " << operations
        << ", \"faults\": " << faults << ", \"violations\": " << violations << ", \"seeds_per_second\": " << rate
        << "}\n";
    if (!out) {
      std::fprintf(stderr, "cannot write %s\n", json.c_str());
      return 2;
    }
  }
  return violations == 0 ? 0 : 1;
}
