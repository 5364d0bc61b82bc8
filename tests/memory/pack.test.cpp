// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/pack.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;
using vtier::lifetime;

namespace {

// No two that are live together share a byte, and the range is as long as it says.
void check_apart(const std::vector<lifetime>& all, const vtier::packing& p) {
  REQUIRE(p.offset_bytes.size() == all.size());
  const auto never = [](const lifetime& one) { return one.size_bytes == 0 || one.begin == one.end; };
  std::size_t top = 0;
  bool apart = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (never(all[i])) continue;
    top = (std::max)(top, p.offset_bytes[i] + all[i].size_bytes);
    for (std::size_t j = 0; j < i; ++j) {
      if (never(all[j]) || all[j].begin >= all[i].end || all[i].begin >= all[j].end) continue;
      apart = apart && (p.offset_bytes[i] + all[i].size_bytes <= p.offset_bytes[j] ||
                        p.offset_bytes[j] + all[j].size_bytes <= p.offset_bytes[i]);
    }
  }
  REQUIRE(apart);
  REQUIRE(top <= p.size_bytes);
  REQUIRE(p.size_bytes >= p.live_bytes_max);
}

// What is live at the worst moment, counted moment by moment.
std::size_t most_live(const std::vector<lifetime>& all, std::size_t moments) {
  std::size_t most = 0;
  for (std::size_t t = 0; t < moments; ++t) {
    std::size_t live = 0;
    for (const lifetime& one : all) live += one.begin <= t && t < one.end ? one.size_bytes : 0;
    most = (std::max)(most, live);
  }
  return most;
}

// The shortest range: a best packing can be pressed down, so lowest fit in some order finds it.
std::size_t shortest(const std::vector<lifetime>& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  vtier::detail::packer_of_lifetimes packer{all};
  std::size_t best = ~std::size_t{0};
  do {
    best = (std::min)(best, packer.place(order));
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

// A training step with recomputation of a transformer: per layer a checkpoint that lives until its backward pass, and
// values of several sizes that live within the layer; gradients that live until the optimizer has used them.
std::vector<lifetime> training_step(std::size_t layers, std::size_t hidden, std::size_t tokens, std::size_t ffn) {
  std::vector<lifetime> all;
  std::size_t now = 0;
  const std::size_t row = tokens * hidden * 2;
  const auto temporaries = [&](bool backward) {
    const std::size_t first = now;
    const std::size_t scale = backward ? 2 : 1;
    all.push_back({row, first, first + 2});                            // norm
    all.push_back({3 * row, first + 1, first + 5});                    // q, k, v
    all.push_back({row, first + 3, first + (backward ? 14U : 6U)});    // attention
    all.push_back({row * scale, first + 5, first + 8});                // projection
    all.push_back({tokens * ffn * 2, first + 7, first + 11});          // up
    all.push_back({tokens * ffn * 2, first + 8, first + 10 + scale});  // gate
    all.push_back({row, first + 10, first + 14});                      // down
    now += 14;
  };
  std::vector<std::size_t> checkpoints;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    checkpoints.push_back(all.size());
    all.push_back({row, now, 0});
    temporaries(false);
  }
  all.push_back({tokens * 32'000 * 4, now, now + 3});  // logits
  all.push_back({tokens * 32'000 * 4, now + 1, now + 4});
  now += 4;
  std::vector<std::size_t> gradients;
  for (std::size_t layer = layers; layer > 0; --layer) {
    temporaries(false);
    for (const std::size_t n : {3 * hidden * hidden, hidden * hidden, hidden * ffn, hidden * ffn, hidden * ffn}) {
      gradients.push_back(all.size());
      all.push_back({n * 2, now + 2, 0});
    }
    temporaries(true);
    all[checkpoints[layer - 1]].end = now;
  }
  for (const std::size_t g : gradients) {
    all.push_back({all[g].size_bytes * 2, now, now + 2});  // fp32 update
    now += 2;
    all[g].end = now;
  }
  return all;
}

}  // namespace

TEST_CASE("no two allocations that are live together share a byte", "[memory][pack]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    vtier::random_source random{seed};
    std::vector<lifetime> all;
    const std::size_t count = random.below(60);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = random.below(50);
      all.push_back({random.below(10) == 0 ? 0 : random.below(5'000), begin, begin + random.below(20)});
    }
    const std::size_t alignment = std::size_t{1} << random.below(13);
    const auto p = vtier::pack(all, {.alignment_bytes = alignment});
    check_apart(all, p);
    for (const std::size_t offset : p.offset_bytes) REQUIRE(offset % alignment == 0);
    for (lifetime& one : all) one.size_bytes = vtier::align_up(one.size_bytes, alignment);
    check_apart(all, p);
    CHECK(p.live_bytes_max == most_live(all, 80));
    CHECK(vtier::pack(all, {.alignment_bytes = alignment}).offset_bytes == p.offset_bytes);
  }
}

TEST_CASE("small steps are packed as tightly as any search can", "[memory][pack]") {
  std::size_t as_short_as_can_be = 0;
  constexpr std::size_t trials = 150;
  for (std::uint64_t seed = 0; seed < trials; ++seed) {
    CAPTURE(seed);
    vtier::random_source random{seed};
    std::vector<lifetime> all;
    for (int i = 0; i < 7; ++i) {
      const std::size_t begin = random.below(8);
      all.push_back({(1 + random.below(6)) * 256, begin, begin + 1 + random.below(5)});
    }
    const auto p = vtier::pack(all);
    const std::size_t best = shortest(all);
    check_apart(all, p);
    REQUIRE(p.size_bytes >= best);
    CHECK(p.size_bytes * 10 <= best * 12);
    as_short_as_can_be += p.size_bytes == best ? 1 : 0;
  }
  CHECK(as_short_as_can_be * 10 >= trials * 9);
}

TEST_CASE("a training step needs hardly more than what is live at its worst moment", "[memory][pack]") {
  const auto check = [](std::size_t layers, std::size_t hidden, std::size_t tokens, std::size_t ffn) {
    const auto all = training_step(layers, hidden, tokens, ffn);
    const auto p = vtier::pack(all);
    check_apart(all, p);
    CAPTURE(layers, p.size_bytes, p.live_bytes_max);
    CHECK(static_cast<double>(p.size_bytes) <= 1.02 * static_cast<double>(p.live_bytes_max));
  };
  check(12, 768, 4096, 3072);     // GPT-2 124M
  check(32, 4096, 2048, 11'008);  // Llama-2 7B
}

TEST_CASE("what cannot be packed is told", "[memory][pack]") {
  const std::vector<lifetime> none;
  CHECK(vtier::pack(none).size_bytes == 0);
  const std::vector<lifetime> backwards{{256, 3, 2}};
  CHECK_THROWS_AS(vtier::pack(backwards), vtier::usage_error);
  const std::vector<lifetime> one{{256, 0, 1}};
  CHECK_THROWS_AS(vtier::pack(one, {.alignment_bytes = 24}), vtier::usage_error);
  const std::vector<lifetime> too_much{{~std::size_t{0} - 4096, 0, 1}, {8192, 0, 1}};
  CHECK_THROWS_AS(vtier::pack(too_much), vtier::usage_error);
  const std::vector<lifetime> never{{256, 1, 1}, {0, 0, 5}, {100, 0, 5}};
  const auto p = vtier::pack(never);
  CHECK(p.size_bytes == 256);
  CHECK(p.live_bytes_max == 256);
}

TEST_CASE("a search that may not compare still packs", "[memory][pack]") {
  const auto all = training_step(4, 768, 512, 3072);
  const auto p = vtier::pack(all, {.comparison_count_max = 0});
  check_apart(all, p);
}
