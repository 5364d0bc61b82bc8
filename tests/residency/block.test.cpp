// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/block.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/numbered_event.hpp"

namespace {

using event = vtier::test::numbered_event;
using events = vtier::test::numbered_events;
using block = vtier::block<event>;
using use = vtier::access;

// Three tiers; written once, in tier 0.
block written() {
  block b{7, vtier::role::gradient, 100, 3};
  b.in(0).place(0, 256, {});
  b.begin_lease(0, use::write, 1);
  b.end_lease(0, use::write, event{1});
  return b;
}

bool forbidden(const std::function<void()>& what, const std::string& words) {
  return vtier::test::in_child(what).asserted(words);
}

}  // namespace

TEST_CASE("a new block has an identity and no content", "[residency][block]") {
  const block b{7, vtier::role::gradient, 100, 3};
  CHECK(b.id() == 7);
  CHECK(b.what() == vtier::role::gradient);
  CHECK(b.size_bytes() == 100);
  CHECK(b.tier_count() == 3);
  CHECK(b.version() == 0);
  CHECK(b.leases() == 0);
  CHECK_FALSE(b.newest().has_value());
  for (std::size_t tier = 0; tier < 3; ++tier) {
    CHECK_FALSE(b.current(tier));
    CHECK_FALSE(b.sole(tier));
  }
}

TEST_CASE("a place alone is not content", "[residency][block]") {
  block b{7, vtier::role::gradient, 100, 3};
  b.in(1).place(0, 256, {});
  CHECK_FALSE(b.current(1));  // version 0 equals version 0, and is nothing
  CHECK_FALSE(b.newest().has_value());
}

TEST_CASE("a write makes the newest content and every other copy stale", "[residency][block]") {
  block b = written();
  CHECK(b.current(0));
  CHECK(b.sole(0));
  CHECK(b.newest() == 0U);
  CHECK_FALSE(b.newest(0).has_value());
  CHECK(b.in(0).written == events{{1}});

  b.in(2).place(0, 256, {});
  b.in(2).fill_in_order(b.version(), events{{2}});
  CHECK(b.current(2));
  CHECK_FALSE(b.sole(0));
  CHECK_FALSE(b.sole(2));
  CHECK(b.newest() == 0U);
  CHECK(b.newest(0) == 2U);

  b.begin_lease(2, use::read_write, 5);
  CHECK_FALSE(b.current(0));  // from the beginning of the lease on
  CHECK(b.sole(2));
  b.end_lease(2, use::read_write, event{3});
  CHECK(b.newest() == 2U);
  CHECK(b.version() == 2);
}

TEST_CASE("what fills while it is overwritten elsewhere arrives old", "[residency][block]") {
  block b = written();
  b.in(1).place(0, 256, {});
  b.in(1).begin_fill(b.version());
  CHECK_FALSE(b.current(1));
  b.begin_lease(0, use::write, 2);
  b.in(1).finish_fill({});
  CHECK_FALSE(b.current(1));
  b.end_lease(0, use::write, event{2});
  CHECK(b.sole(0));
}

TEST_CASE("readers stand together, a writer stands alone", "[residency][block]") {
  block b = written();
  b.begin_lease(0, use::read, 2);
  b.begin_lease(0, use::read, 3);
  CHECK(b.leases() == 2);
  CHECK(b.compatible(use::read));
  CHECK_FALSE(b.compatible(use::write));
  CHECK_FALSE(b.compatible(use::read_write));
  b.end_lease(0, use::read, event{4});
  CHECK_FALSE(b.compatible(use::write));
  b.end_lease(0, use::read, event{5});
  CHECK(b.in(0).readers == events{{4}, {5}});
  CHECK(b.in(0).written == events{{1}});  // readers do not hide the write
  CHECK(b.in(0).last_use == 3);
  b.begin_lease(0, use::write, 6);
  CHECK(b.leases() == 1);
  for (const use mode : {use::read, use::write, use::read_write}) CHECK_FALSE(b.compatible(mode));
  b.end_lease(0, use::write, event{6});
  CHECK(b.in(0).uses() == events{{6}});  // it waited for all before it
  CHECK(b.leases() == 0);
}

TEST_CASE("leases of the host leave no event, and those that write have waited for all", "[residency][block]") {
  block b = written();
  b.begin_lease(0, use::read, 2);
  b.end_lease(0, use::read, std::nullopt);
  CHECK(b.in(0).uses() == events{{1}});
  b.begin_lease(0, use::read_write, 3);
  b.end_lease(0, use::read_write, std::nullopt);
  CHECK(b.in(0).uses().empty());
}

TEST_CASE("a lease is the next use that was known of", "[residency][block]") {
  block b = written();
  CHECK(b.next_use == vtier::unknown_use);
  b.next_use = 7;
  b.begin_lease(0, use::read, 9);
  CHECK(b.next_use == vtier::unknown_use);
  b.next_use = 8;  // the one after this
  b.end_lease(0, use::read, std::nullopt);
  CHECK(b.next_use == 8);
}

TEST_CASE("a lease uses up the mark of a prefetch and holds the replica", "[residency][block]") {
  block b = written();
  b.in(0).prefetched = true;
  b.begin_lease(0, use::read, 9);
  CHECK_FALSE(b.in(0).prefetched);
  CHECK(b.in(0).last_use == 9);
  CHECK_FALSE(b.in(0).idle());
  b.end_lease(0, use::read, event{2});
  CHECK(b.in(0).idle());
}

// VO-A04
TEST_CASE("a block of no bytes is leased without a place", "[residency][block]") {
  block b{1, vtier::role::parameter, 0, 2};
  for (const use mode : {use::read, use::write, use::read_write}) {
    b.begin_lease(0, mode, 1);
    b.end_lease(0, mode, std::nullopt);
  }
  CHECK(b.leases() == 0);
  CHECK(b.in(0).absent());
}

// Whatever the order of legal steps, some tier holds the newest bytes from the first write on (invariant 1), as long as
// a sole replica is not dropped; and no two replicas that are current differ.
TEST_CASE("the newest bytes are always somewhere", "[residency][block]") {
  vtier::random_source random{8};
  for (int life = 0; life < 200; ++life) {
    CAPTURE(life);
    constexpr std::size_t tiers = 3;
    block b{1, vtier::role::parameter, 100, tiers};
    std::vector<std::uint64_t> content(tiers, 0);  // what the bytes in each tier really are
    std::uint64_t newest = 0;
    std::vector<std::size_t> readers;
    constexpr std::size_t nobody = tiers;
    std::size_t writer = nobody;  // the tier of the write lease
    for (int step = 0; step < 200; ++step) {
      const std::size_t tier = random.below(tiers);
      auto& r = b.in(tier);
      switch (random.below(6)) {
        case 0:
          if (r.absent()) r.place(0, 256, {});
          break;
        case 1:
          if (r.idle() && !b.sole(tier)) {
            static_cast<void>(r.drop());
            content[tier] = 0;
          }
          break;
        case 2:
          if (const auto from = b.newest(tier); from && r.idle() && writer == nobody) {
            r.fill_in_order(b.version(), events{{step}});
            content[tier] = content[*from];
          }
          break;
        case 3:
          if (b.compatible(use::read) && b.current(tier)) {
            b.begin_lease(tier, use::read, 1);
            REQUIRE(content[tier] == newest);
            readers.push_back(tier);
          }
          break;
        case 4:
          if (b.compatible(use::write) && r.resident()) {
            b.begin_lease(tier, use::write, 1);
            content[tier] = ++newest;
            writer = tier;
          }
          break;
        default:
          if (writer != nobody) {
            b.end_lease(writer, use::write, event{step});
            writer = nobody;
          } else if (!readers.empty()) {
            b.end_lease(readers.back(), use::read, event{step});
            readers.pop_back();
          }
      }
      if (newest == 0) continue;
      REQUIRE(b.newest().has_value());
      for (std::size_t i = 0; i < tiers; ++i) {
        if (b.current(i)) REQUIRE(content[i] == newest);
      }
    }
  }
}

TEST_CASE("a step that leases do not allow is a programmer's error", "[residency][block]") {
  block b = written();
  const auto begin = [&](std::size_t tier, use mode) { return [&b, tier, mode] { b.begin_lease(tier, mode, 9); }; };
  const auto end = [&](std::size_t tier, use mode) { return [&b, tier, mode] { b.end_lease(tier, mode, event{9}); }; };

  SECTION("beside a writer") {
    b.begin_lease(0, use::write, 2);
    for (const use mode : {use::read, use::write, use::read_write}) {
      CHECK(forbidden(begin(0, mode), "a second writer"));
    }
    CHECK(forbidden(end(0, use::read), "ended twice"));
    CHECK(forbidden([&] { static_cast<void>(b.in(0).drop()); }, "dropped while"));
  }
  SECTION("beside a reader") {
    b.begin_lease(0, use::read, 2);
    CHECK(forbidden(begin(0, use::write), "a second writer"));
    CHECK(forbidden(begin(0, use::read_write), "a second writer"));
    CHECK(forbidden(end(0, use::write), "ended twice"));
    CHECK(forbidden(end(1, use::read), "ended twice"));  // in the wrong tier
    CHECK(forbidden([&] { static_cast<void>(b.in(0).drop()); }, "dropped while"));
  }
  SECTION("with nothing to end") {
    for (const use mode : {use::read, use::write, use::read_write}) {
      CHECK(forbidden(end(0, mode), "ended twice"));
    }
    b.begin_lease(0, use::read, 2);
    b.end_lease(0, use::read, event{2});
    CHECK(forbidden(end(0, use::read), "ended twice"));
  }
  SECTION("without a place or with old bytes") {
    CHECK(forbidden(begin(1, use::read), "without a place"));
    CHECK(forbidden(begin(1, use::write), "without a place"));
    b.in(1).place(0, 256, {});
    CHECK(forbidden(begin(1, use::read), "stale bytes"));
    CHECK(forbidden(begin(1, use::read_write), "stale bytes"));
  }
  SECTION("over what a transfer reads") {
    b.in(0).transfers_out = 1;
    CHECK(forbidden(begin(0, use::write), "what a transfer reads"));
    CHECK(vtier::test::in_child(begin(0, use::read)).exit_status == 0);
  }
  SECTION("in a tier that is not there") { CHECK(forbidden(begin(3, use::read), "does not have")); }
}
