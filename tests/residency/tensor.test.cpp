// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "residency/fake_core.hpp"
#include "support/catch.hpp"

namespace {

using core = vtier::test::fake_core;
using vtier::test::told_list;
template <class T>
using tensor = vtier::tensor<T, core>;

static_assert(std::is_nothrow_move_constructible_v<tensor<float>> && std::is_nothrow_move_assignable_v<tensor<float>>);
static_assert(!std::is_copy_constructible_v<tensor<float>> && !std::is_copy_assignable_v<tensor<float>>);
static_assert(tensor<vtier::bf16>::type() == vtier::element_type::bf16);

// Only what was read may be read from a constant tensor.
template <class T>
concept can_write = requires(T& t) {
  t.write(0);
};
template <class T>
concept can_read = requires(T& t) {
  t.read(0);
};
static_assert(can_write<tensor<float>> && can_read<tensor<float>>);
static_assert(!can_write<const tensor<float>> && can_read<const tensor<float>>);

struct fixture {
  std::shared_ptr<core> owner = std::make_shared<core>();
  core::block_type first{1};
  core::block_type second{2};
};

}  // namespace

TEST_CASE("a tensor knows its shape, its size and its type", "[residency][tensor]") {
  fixture f;
  const tensor<float> t{f.owner, f.first, {3, 5}};
  CHECK(t.size() == 15);
  CHECK(t.bytes() == 60);
  CHECK(t.shape() == vtier::shape{3, 5});
  CHECK(t.valid());
  CHECK(&t.owned_by(*f.owner) == &f.first);
}

TEST_CASE("a tensor belongs to the hierarchy that made it and to no other", "[residency][tensor]") {
  fixture f;
  const core stranger;
  const tensor<float> t{f.owner, f.first, {4}};
  CHECK_THROWS_AS(t.owned_by(stranger), vtier::usage_error);
}

// VO-A03: shapes as large as this exist without any memory behind them.
TEST_CASE("sizes beyond 32 bits are exact", "[residency][tensor]") {
  fixture f;
  CHECK(tensor<std::uint8_t>{f.owner, f.first, {3'118'080'001}}.bytes() == 3'118'080'001U);
  CHECK(tensor<vtier::bf16>{f.owner, f.first, {262'144, 8'960}}.bytes() == 4'697'620'480U);
  CHECK(tensor<float>{f.owner, f.first, {46'341, 46'341}}.bytes() == 8'589'953'124U);
}

TEST_CASE("each lease is asked for by its kind and place", "[residency][tensor]") {
  fixture f;
  {
    tensor<float> t{f.owner, f.first, {4}};
    static_cast<void>(t.read(7));
    static_cast<void>(t.write(8));
    static_cast<void>(t.read_write(9));
    static_cast<void>(t.read(vtier::on_host));
    static_cast<void>(t.write(vtier::on_host));
    static_cast<void>(t.read_write(vtier::on_host));
  }
  told_list expected;
  for (const char* what :
       {"read stream 7", "write stream 8", "read_write stream 9", "read host", "write host", "read_write host"}) {
    expected.push_back(std::string{"acquire 1 "} + what);
    expected.push_back(std::string{"release 1 "} + what);
  }
  expected.push_back("destroy 1");
  CHECK(f.owner->told == expected);
}

TEST_CASE("the twins answer with nothing where there is no room, and throw other errors", "[residency][tensor]") {
  fixture f;
  tensor<float> t{f.owner, f.first, {4}};
  CHECK(t.try_read(1)->size() == 4);
  CHECK(t.try_write(1).has_value());
  CHECK(t.try_read_write(vtier::on_host).has_value());
  f.owner->full = true;
  f.owner->told.clear();
  CHECK_FALSE(t.try_read(1).has_value());
  CHECK_FALSE(t.try_write(1).has_value());
  CHECK_FALSE(t.try_read_write(1).has_value());
  CHECK_FALSE(t.try_read(vtier::on_host).has_value());
  CHECK_FALSE(t.try_write(vtier::on_host).has_value());
  CHECK_FALSE(t.try_read_write(vtier::on_host).has_value());
  CHECK(f.owner->told.empty());
  f.owner->full = false;
  f.owner->broken = true;
  CHECK_THROWS_AS(t.try_read(1), vtier::usage_error);
}

TEST_CASE("a tensor dies once, wherever it was moved", "[residency][tensor]") {
  fixture f;
  {
    tensor<float> t{f.owner, f.first, {4}};
    tensor<float> moved = std::move(t);
    CHECK_FALSE(t.valid());  // NOLINT: what is left of it is the point
    CHECK(moved.valid());
    CHECK(f.owner->told.empty());
    tensor<float> other{f.owner, f.second, {5}};
    moved = std::move(other);
    CHECK(f.owner->told == told_list{"destroy 1"});
    CHECK(moved.size() == 5);
    auto& self = moved;
    moved = std::move(self);
    CHECK(moved.valid());
  }
  CHECK(f.owner->told == told_list{"destroy 1", "destroy 2"});
}

TEST_CASE("a tensor that was moved from says so", "[residency][tensor]") {
  fixture f;
  tensor<float> t{f.owner, f.first, {4}};
  const tensor<float> moved = std::move(t);
  CHECK_THROWS_AS(t.read(1), vtier::usage_error);  // NOLINT: that it throws is the point
  CHECK_THROWS_AS(t.write(1), vtier::usage_error);
  CHECK_THROWS_AS(t.read_write(vtier::on_host), vtier::usage_error);
  CHECK_THROWS_AS(t.try_read(1), vtier::usage_error);
  CHECK_THROWS_AS(t.owned_by(*f.owner), vtier::usage_error);
  CHECK(f.owner->told.empty());
}

TEST_CASE("a tensor and its leases keep the hierarchy's work alive", "[residency][tensor]") {
  fixture f;
  const std::weak_ptr<core> watched = f.owner;
  std::optional<tensor<float>> t{std::in_place, std::move(f.owner), f.first, vtier::shape{4}};
  {
    const auto lease = t->read(1);
    t.reset();
    CHECK_FALSE(watched.expired());
    CHECK(watched.lock()->told.back() == "destroy 1");  // the owner of the block decides when it really goes
  }
  CHECK(watched.expired());
}
