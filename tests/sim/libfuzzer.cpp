// SPDX-License-Identifier: Apache-2.0
// The interpreter of programs, driven by libFuzzer: clang++ -fsanitize=fuzzer. The first eight bytes are the world's
// seed, so that orders of events are searched too.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "sim/program.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  if (size < sizeof seed) return 0;
  std::memcpy(&seed, data, sizeof seed);
  const std::span<const std::uint8_t> bytes{data + sizeof seed, size - sizeof seed};
  const auto result = vtier::test::program{bytes, {.seed = seed}}.run();
  if (result.violations.empty()) return 0;
  for (const auto& text : result.violations) std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}
