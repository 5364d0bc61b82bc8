// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/lease.hpp>

#include <memory>
#include <type_traits>
#include <utility>

#include "residency/fake_core.hpp"
#include "support/catch.hpp"

namespace {

using core = vtier::test::fake_core;
using vtier::test::told_list;
using writer = vtier::lease<float, core>;
using reader = vtier::lease<const float, core>;

static_assert(std::is_nothrow_move_constructible_v<writer> && std::is_nothrow_move_assignable_v<writer>);
static_assert(!std::is_copy_constructible_v<writer> && !std::is_copy_assignable_v<writer>);
static_assert(std::is_same_v<decltype(std::declval<reader>().data()), const float*>);  // a reader cannot write
static_assert(std::is_same_v<decltype(std::declval<writer>().data()), float*>);

struct fixture {
  std::shared_ptr<core> owner = std::make_shared<core>();
  core::block_type first{1};
  core::block_type second{2};

  writer lease(core::block_type& b) {
    auto granted = owner->acquire(b, vtier::access::write, 0);
    owner->told.clear();
    return {owner, granted, 4};
  }
};

}  // namespace

TEST_CASE("a lease shows its bytes and ends with its scope", "[residency][lease]") {
  fixture f;
  {
    const writer w = f.lease(f.first);
    CHECK(static_cast<void*>(w.data()) == f.owner->bytes.data());
    CHECK(w.size() == 4);
    CHECK(w.span().size() == 4);
    CHECK(w.span().data() == w.data());
    CHECK(f.owner->told.empty());
  }
  CHECK(f.owner->told == told_list{"release 1 write stream 0"});
}

TEST_CASE("a lease ends once", "[residency][lease]") {
  fixture f;
  {
    writer w = f.lease(f.first);
    w.end();
    CHECK(f.owner->told.size() == 1);
    CHECK(w.data() == nullptr);
    CHECK(w.size() == 0);
    CHECK(w.span().empty());
    w.end();
  }
  CHECK(f.owner->told.size() == 1);
}

TEST_CASE("a lease moves with its end", "[residency][lease]") {
  fixture f;
  {
    writer w = f.lease(f.first);
    {
      writer moved = std::move(w);
      CHECK(moved.size() == 4);
      CHECK(moved.data() != nullptr);
      w.end();  // NOLINT: there is nothing left to end
      CHECK(w.size() == 0);
      CHECK(f.owner->told.empty());
    }
    CHECK(f.owner->told.size() == 1);
  }
  CHECK(f.owner->told.size() == 1);
}

TEST_CASE("assigning to a lease ends the one it was", "[residency][lease]") {
  fixture f;
  {
    writer a = f.lease(f.first);
    writer b = f.lease(f.second);
    a = std::move(b);
    CHECK(f.owner->told == told_list{"release 1 write stream 0"});
    auto& self = a;
    a = std::move(self);
    CHECK(a.size() == 4);
    CHECK(f.owner->told.size() == 1);
  }
  CHECK(f.owner->told == told_list{"release 1 write stream 0", "release 2 write stream 0"});
}

TEST_CASE("a lease keeps what it has to tell alive", "[residency][lease]") {
  fixture f;
  const std::weak_ptr<core> watched = f.owner;
  {
    const writer w = f.lease(f.first);
    f.owner.reset();
    CHECK_FALSE(watched.expired());
  }
  CHECK(watched.expired());
}
