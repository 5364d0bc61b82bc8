// SPDX-License-Identifier: Apache-2.0
#include <vtier/policy/eviction.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <vtier/policy/lru.hpp>

#include "support/catch.hpp"

namespace {

struct never {
  [[nodiscard]] std::optional<vtier::victim_window> choose(std::span<const vtier::stretch>, std::size_t) const {
    return std::nullopt;
  }
};
struct with_memory {  // a policy is a pure function: the same answer for the same question
  std::optional<vtier::victim_window> choose(std::span<const vtier::stretch>, std::size_t) { return std::nullopt; }
};
struct names_one_stretch {
  [[nodiscard]] std::optional<std::size_t> choose(std::span<const vtier::stretch>, std::size_t) const {
    return std::nullopt;
  }
};
struct moves_things {
  [[nodiscard]] std::optional<vtier::victim_window> choose(std::span<vtier::stretch>, std::size_t) const {
    return std::nullopt;
  }
};

static_assert(vtier::eviction_policy<vtier::lru>);
static_assert(vtier::eviction_policy<never>);
static_assert(!vtier::eviction_policy<with_memory>);
static_assert(!vtier::eviction_policy<names_one_stretch>);
static_assert(!vtier::eviction_policy<moves_things>);
static_assert(!vtier::eviction_policy<int>);

}  // namespace

TEST_CASE("a stretch that nobody has filled in is free", "[policy][eviction]") {
  const vtier::stretch none;
  CHECK(none.state == vtier::occupancy::free);
  CHECK(none.block == 0);
  CHECK(none.next_use == ~std::uint64_t{0});
  CHECK(vtier::victim_window{1, 2} == vtier::victim_window{1, 2});
  CHECK_FALSE(vtier::victim_window{1, 2} == vtier::victim_window{1, 3});
}
