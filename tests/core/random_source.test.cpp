// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/random_source.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "support/catch.hpp"
#include "support/death.hpp"

static_assert(std::uniform_random_bit_generator<vtier::random_source>);

TEST_CASE("a seed gives the published numbers of SplitMix64", "[core][random_source]") {
  vtier::random_source random{1234567};
  const std::array<std::uint64_t, 5> published{6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                               4593380528125082431U, 16408922859458223821U};
  for (const std::uint64_t number : published) CHECK(random() == number);
}

TEST_CASE("a bounded number is the high half of the product with the bound", "[core][random_source]") {
  __extension__ using wide = unsigned __int128;
  vtier::random_source bounds{9};
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bound = (std::max)(std::uint64_t{1}, bounds() >> bounds.below(64));
    const std::uint64_t seed = bounds();
    vtier::random_source raw{seed};
    vtier::random_source bounded{seed};
    const wide product = static_cast<wide>(raw()) * static_cast<wide>(bound);
    const std::uint64_t got = bounded.below(bound);
    REQUIRE(got == static_cast<std::uint64_t>(product >> 64U));
    REQUIRE(got < bound);
  }
}

TEST_CASE("bounded numbers reach every value about alike", "[core][random_source]") {
  vtier::random_source random{3};
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i) ++counts[random.below(7)];
  for (const int count : counts) CHECK((count > 9'500 && count < 10'500));
}

TEST_CASE("a bound of one leaves no choice and a bound of none is an error", "[core][random_source]") {
  vtier::random_source random{0};
  CHECK(random.below(1) == 0);
  CHECK(vtier::test::in_child([&] { return random.below(0) == 0; }).asserted("bound of at least 1"));
}

TEST_CASE("uniform numbers lie in [0, 1) and in its middle on average", "[core][random_source]") {
  vtier::random_source random{4};
  double sum = 0.0;
  for (int i = 0; i < 10'000; ++i) {
    const double x = random.uniform();
    REQUIRE((x >= 0.0 && x < 1.0));
    sum += x;
  }
  CHECK((sum > 4'900.0 && sum < 5'100.0));
}

TEST_CASE("the standard algorithms take it as a generator", "[core][random_source]") {
  std::vector<int> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<int> shuffled = numbers;
  std::shuffle(shuffled.begin(), shuffled.end(), vtier::random_source{5});
  CHECK(shuffled != numbers);
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == numbers);
}
