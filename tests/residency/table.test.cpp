// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/table.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/numbered_event.hpp"

namespace {

using table = vtier::table<vtier::test::numbered_event>;

void place(table& blocks, std::size_t tier, table::block_type& b, std::size_t offset) {
  b.in(tier).place(offset, 256, {});
  blocks.placed(tier, b);
}
void drop(table& blocks, std::size_t tier, table::block_type& b) {
  blocks.left(tier, b);
  static_cast<void>(b.in(tier).drop());
}

}  // namespace

TEST_CASE("blocks have numbers of their own that never come again", "[residency][table]") {
  table blocks{2};
  auto& first = blocks.add(vtier::role::parameter, 100);
  const std::uint64_t first_id = first.id();
  CHECK(first_id != 0);  // 0 is nobody in a policy's map
  CHECK(first.tier_count() == 2);
  CHECK(blocks.find(first_id) == &first);
  std::vector<table::block_type*> more;
  for (int i = 0; i < 1'000; ++i) more.push_back(&blocks.add(vtier::role::gradient, 8));
  CHECK(blocks.find(first_id) == &first);  // the table has grown, the block has not moved
  blocks.remove(first);
  CHECK(blocks.find(first_id) == nullptr);
  CHECK(blocks.find(0) == nullptr);
  CHECK(blocks.size() == 1'000);
  CHECK(blocks.add(vtier::role::parameter, 1).id() != first_id);
  std::set<std::uint64_t> ids;
  blocks.for_each([&](const table::block_type& b) { ids.insert(b.id()); });
  CHECK(ids.size() == 1'001);
}

TEST_CASE("a block that moves within a tier is listed at its new address", "[residency][table]") {
  table blocks{2};
  auto& a = blocks.add(vtier::role::parameter, 100);
  auto& b = blocks.add(vtier::role::parameter, 100);
  place(blocks, 0, a, 512);
  place(blocks, 0, b, 1024);
  place(blocks, 1, a, 512);
  blocks.moved(0, a, 2048);
  CHECK(a.in(0).offset_bytes == 2048);
  CHECK(a.in(1).offset_bytes == 512);
  REQUIRE(blocks.in(0).size() == 2);
  CHECK(blocks.in(0).begin()->second == &b);
  CHECK(blocks.in(0).at(2048) == &a);
  CHECK(vtier::test::in_child([&] { blocks.moved(0, a, 1024); }).asserted("two blocks in one place"));
  drop(blocks, 0, a);
  drop(blocks, 0, b);
  drop(blocks, 1, a);
}

TEST_CASE("a tier lists its blocks in order of address", "[residency][table]") {
  table blocks{2};
  auto& a = blocks.add(vtier::role::parameter, 100);
  auto& b = blocks.add(vtier::role::parameter, 100);
  place(blocks, 0, a, 512);
  place(blocks, 0, b, 0);
  place(blocks, 1, a, 0);
  std::vector<table::block_type*> order;
  for (const auto& entry : blocks.in(0)) order.push_back(entry.second);
  CHECK(order == std::vector<table::block_type*>{&b, &a});
  CHECK(blocks.in(1).size() == 1);
  drop(blocks, 0, b);
  CHECK(blocks.in(0).size() == 1);
  CHECK(blocks.in(0).begin()->second == &a);
  drop(blocks, 0, a);
  drop(blocks, 1, a);
  CHECK(blocks.in(1).empty());
  blocks.remove(a);
  blocks.remove(b);
  CHECK(blocks.size() == 0);
}

TEST_CASE("misuse of a table is a programmer's error", "[residency][table]") {
  table blocks{2};
  auto& a = blocks.add(vtier::role::parameter, 100);
  auto& b = blocks.add(vtier::role::parameter, 100);
  place(blocks, 1, a, 0);
  CHECK(vtier::test::in_child([&] { blocks.remove(a); }).asserted("still has a place"));
  CHECK(vtier::test::in_child([&] { place(blocks, 1, b, 0); }).asserted("two blocks in one place"));
  b.in(1).place(0, 256, {});
  CHECK(vtier::test::in_child([&] { blocks.left(1, b); }).asserted("does not have"));
  CHECK(vtier::test::in_child([&] { blocks.left(0, a); }).asserted("does not have"));
}
