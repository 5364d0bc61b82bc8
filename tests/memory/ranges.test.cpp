// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/ranges.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

namespace {

// An event that passes when the test says so; copies are the same event.
struct event {
  std::size_t id = 0;
  std::shared_ptr<bool> passed;
};
constexpr auto has_passed = [](const event& e) { return *e.passed; };

event pending(std::size_t id) { return {id, std::make_shared<bool>(false)}; }

std::set<std::size_t> ids(const std::vector<event>& events) {
  std::set<std::size_t> result;
  for (const event& e : events) result.insert(e.id);
  return result;
}

using map = vtier::ranges<event>;

static_assert(noexcept(std::declval<map&>().give_back(0, 16, {})));

// Granule by granule, what the map of ranges must do: the smallest free run that fits, the first of these.
struct model {
  struct granule {
    bool taken = false;
    std::vector<event> uses;
  };
  std::vector<granule> granules;

  [[nodiscard]] std::optional<std::size_t> best(std::size_t count) const {
    std::optional<std::size_t> found;
    std::size_t found_length = 0;
    for (std::size_t i = 0; i < granules.size();) {
      std::size_t end = i;
      while (end < granules.size() && !granules[end].taken) ++end;
      if (end - i >= count && (!found || end - i < found_length)) {
        found = i;
        found_length = end - i;
      }
      i = end + 1;
    }
    return found;
  }
  [[nodiscard]] std::vector<vtier::free_range> free_runs(std::size_t granule_bytes) const {
    std::vector<vtier::free_range> runs;
    for (std::size_t i = 0; i < granules.size(); ++i) {
      if (granules[i].taken) continue;
      if (i > 0 && !granules[i - 1].taken) {
        runs.back().size_bytes += granule_bytes;
      } else {
        runs.push_back({i * granule_bytes, granule_bytes});
      }
    }
    return runs;
  }
};

// A long life of a map beside its model.
void live(std::uint64_t seed, std::size_t granule_count, std::size_t granule_bytes) {
  CAPTURE(seed, granule_count, granule_bytes);
  vtier::random_source random{seed};
  map ranges{granule_count * granule_bytes + granule_bytes - 1, granule_bytes};  // the odd end is no granule
  model expected;
  expected.granules.resize(granule_count);
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  std::vector<event> events;
  std::size_t used = 0;
  std::size_t peak = 0;
  for (int step = 0; step < 4'000; ++step) {
    const std::uint64_t choice = random.below(20);
    if (choice < 9) {
      const std::size_t size = 1 + random.below(granule_bytes * (1 + random.below(granule_count)));
      const std::size_t count = (size + granule_bytes - 1) / granule_bytes;
      const auto at = expected.best(count);
      const auto got = ranges.take(size, has_passed);
      REQUIRE(got.has_value() == at.has_value());
      if (!got) continue;
      REQUIRE(got->offset_bytes == *at * granule_bytes);
      REQUIRE(got->size_bytes == count * granule_bytes);
      std::set<std::size_t> uses;
      for (std::size_t i = *at; i < *at + count; ++i) {
        for (const event& e : expected.granules[i].uses) {
          if (!*e.passed) uses.insert(e.id);
        }
        expected.granules[i] = {true, {}};
      }
      REQUIRE(ids(got->uses) == uses);
      taken.emplace_back(got->offset_bytes, got->size_bytes);
      used += got->size_bytes;
      peak = (std::max)(peak, used);
    } else if (choice < 17 && !taken.empty()) {
      const auto one = taken.begin() + static_cast<std::ptrdiff_t>(random.below(taken.size()));
      const auto [offset, size] = *one;
      taken.erase(one);
      std::vector<event> uses;
      for (std::uint64_t i = random.below(3); i > 0; --i) {
        events.push_back(pending(events.size()));
        uses.push_back(events.back());
      }
      if (!events.empty() && random.below(4) == 0) uses.push_back(events[random.below(events.size())]);
      for (std::size_t i = offset / granule_bytes; i < (offset + size) / granule_bytes; ++i) {
        expected.granules[i] = {false, uses};
      }
      ranges.give_back(offset, size, uses);
      used -= size;
    } else if (!events.empty()) {
      *events[random.below(events.size())].passed = true;
    }
    REQUIRE(ranges.used_bytes() == used);
    REQUIRE(ranges.free_bytes() == granule_count * granule_bytes - used);
    REQUIRE(ranges.peak_bytes() == peak);
    if (step % 16 != 0) continue;
    const auto runs = ranges.free_runs();
    const auto expected_runs = expected.free_runs(granule_bytes);
    REQUIRE(runs.size() == expected_runs.size());
    std::size_t largest = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      REQUIRE(runs[i].offset_bytes == expected_runs[i].offset_bytes);
      REQUIRE(runs[i].size_bytes == expected_runs[i].size_bytes);
      largest = (std::max)(largest, runs[i].size_bytes);
    }
    REQUIRE(ranges.largest_free_bytes() == largest);
  }
  for (const auto& [offset, size] : taken) ranges.give_back(offset, size, {});
  for (const event& e : events) *e.passed = true;
  const auto all = ranges.take(granule_count * granule_bytes, has_passed);
  REQUIRE(all.has_value());
  CHECK(all->offset_bytes == 0);
  CHECK(all->uses.empty());
}

}  // namespace

TEST_CASE("a map of ranges does what a map of granules does", "[memory][ranges]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    live(seed, 40, 16);
    live(seed + 100, 7, 4096);
    live(seed + 200, 64, 1);
  }
}

TEST_CASE("a small request beside two pieces waits for one of them only", "[memory][ranges]") {
  map ranges{64, 16};
  static_cast<void>(ranges.take(32, has_passed));
  static_cast<void>(ranges.take(32, has_passed));
  const event first = pending(1);
  const event second = pending(2);
  ranges.give_back(0, 32, {first});
  ranges.give_back(32, 32, {second});
  CHECK(ranges.largest_free_bytes() == 64);  // one run, two pieces

  SECTION("a part of the first piece: its event stays with the rest") {
    const auto part = ranges.take(16, has_passed);
    REQUIRE(part.has_value());
    CHECK(ids(part->uses) == std::set<std::size_t>{1});
    const auto rest = ranges.take(48, has_passed);
    REQUIRE(rest.has_value());
    CHECK(ids(rest->uses) == std::set<std::size_t>{1, 2});
  }
  SECTION("more than the first piece: both") {
    const auto both = ranges.take(48, has_passed);
    REQUIRE(both.has_value());
    CHECK(ids(both->uses) == std::set<std::size_t>{1, 2});
  }
  SECTION("what has passed is not waited for, the other is") {
    *first.passed = true;
    const auto both = ranges.take(64, has_passed);
    REQUIRE(both.has_value());
    CHECK(ids(both->uses) == std::set<std::size_t>{2});
  }
}

TEST_CASE("what free pieces wait for can be looked at", "[memory][ranges]") {
  map ranges{64, 16};
  const auto seen = [&] {
    std::set<std::size_t> numbers;
    ranges.for_each_use([&](const event& e) { numbers.insert(e.id); });
    return numbers;
  };
  for (int i = 0; i < 2; ++i) static_cast<void>(ranges.take(32, has_passed));
  CHECK(seen().empty());
  ranges.give_back(0, 32, {pending(1), pending(2)});
  ranges.give_back(32, 32, {pending(3)});
  CHECK(seen() == std::set<std::size_t>{1, 2, 3});
  static_cast<void>(ranges.take(48, has_passed));
  CHECK(seen() == std::set<std::size_t>{3});  // what was taken is its new owner's business
}

TEST_CASE("a range that cannot be is refused, however large", "[memory][ranges]") {
  map ranges{100, 16};
  CHECK(ranges.capacity_bytes() == 96);
  CHECK_FALSE(ranges.take(97, has_passed).has_value());
  CHECK_FALSE(ranges.take((std::numeric_limits<std::size_t>::max)(), has_passed).has_value());
  CHECK_FALSE(ranges.take((std::numeric_limits<std::size_t>::max)() - 20, has_passed).has_value());
  CHECK(ranges.take(96, has_passed).has_value());
  CHECK(map(0, 16).free_runs().empty());
}

TEST_CASE("a map grows at its end and joins what is free there", "[memory][ranges]") {
  map ranges{0, 16};
  CHECK_FALSE(ranges.take(1, has_passed).has_value());
  ranges.grow(64);
  const auto first = ranges.take(32, has_passed);
  REQUIRE(first.has_value());
  ranges.grow(64);
  ranges.grow(79);  // less than a granule more
  CHECK(ranges.capacity_bytes() == 64);
  ranges.grow(96);
  const auto second = ranges.take(64, has_passed);  // the old rest and the new end together
  REQUIRE(second.has_value());
  CHECK(second->offset_bytes == 32);
  CHECK(ranges.free_bytes() == 0);
}

namespace {

// An event whose copies run out.
struct costly_event {
  costly_event() = default;
  costly_event(const costly_event& other) : id{other.id} {
    if (copies_left-- == 0) throw std::runtime_error("no more copies");
  }
  costly_event(costly_event&&) noexcept = default;
  costly_event& operator=(const costly_event&) = default;
  costly_event& operator=(costly_event&&) noexcept = default;
  int id = 0;
  static inline int copies_left = 1'000'000;
};

}  // namespace

TEST_CASE("a take that fails half-way has taken nothing", "[memory][ranges]") {
  const auto never = [](const costly_event&) { return false; };
  vtier::ranges<costly_event> ranges{96, 16};
  for (int i = 0; i < 3; ++i) static_cast<void>(ranges.take(32, never));
  for (std::size_t i = 0; i < 3; ++i) ranges.give_back(32 * i, 32, std::vector<costly_event>(2));
  int failures = 0;
  for (int copies = 0;; ++copies) {
    costly_event::copies_left = copies;
    try {
      const auto got = ranges.take(80, never);
      REQUIRE(got.has_value());
      CHECK(got->uses.size() == 6);
      break;
    } catch (const std::runtime_error&) {
      ++failures;
      REQUIRE(ranges.used_bytes() == 0);
      REQUIRE(ranges.largest_free_bytes() == 96);
    }
  }
  CHECK(failures >= 6);
  costly_event::copies_left = 1'000'000;
  ranges.give_back(0, 80, {});
  CHECK(ranges.free_bytes() == 96);
}

TEST_CASE("misuse of a map is a programmer's error", "[memory][ranges]") {
  map ranges{64, 16};
  static_cast<void>(ranges.take(16, has_passed));
  static_cast<void>(ranges.take(16, has_passed));
  const auto give_back = [&](std::size_t offset, std::size_t size) {
    return vtier::test::in_child([&] { ranges.give_back(offset, size, {}); });
  };
  CHECK(give_back(0, 16).exit_status == 0);
  CHECK(vtier::test::in_child([&] {
          ranges.give_back(0, 16, {});
          ranges.give_back(0, 16, {});
        }).asserted("given back twice"));
  CHECK(give_back(16, 32).asserted("given back twice"));  // its second half is free
  CHECK(give_back(32, 16).asserted("given back twice"));
  CHECK(give_back(0, 48).asserted("more was given back than was taken"));
  CHECK(give_back(8, 16).asserted("never taken"));
  CHECK(give_back(64, 16).asserted("never taken"));
  CHECK(give_back(0, 0).asserted("more was given back"));
  CHECK(vtier::test::in_child([&] { static_cast<void>(ranges.take(0, has_passed)); }).asserted("no bytes"));
  CHECK(vtier::test::in_child([&] { ranges.grow(48); }).asserted("only grows"));
  CHECK(vtier::test::in_child([&] { return map(64, 24).free_bytes() == 0; }).asserted("power of two"));
}

TEST_CASE("a range is taken from the high end of the last run that fits", "[memory][ranges]") {
  map ranges{256, 16};
  const auto low = ranges.take(64, has_passed);
  const auto high = ranges.take(48, has_passed, vtier::range_end::highest);
  REQUIRE(low);
  REQUIRE(high);
  CHECK(low->offset_bytes == 0);
  CHECK(high->offset_bytes == 208);
  const auto beside = ranges.take(16, has_passed, vtier::range_end::highest);
  CHECK(beside->offset_bytes == 192);
  CHECK(ranges.largest_free_bytes() == 128);
  // The uses of what is taken come along, those of what stays do not.
  const event first = pending(1);
  const event second = pending(2);
  ranges.give_back(192, 16, {first});
  ranges.give_back(208, 48, {second});
  const auto part = ranges.take(32, has_passed, vtier::range_end::highest);
  CHECK(part->offset_bytes == 224);
  CHECK(ids(part->uses) == std::set<std::size_t>{2});
  const auto next = ranges.take(32, has_passed, vtier::range_end::highest);
  CHECK(next->offset_bytes == 192);
  CHECK(ids(next->uses) == std::set<std::size_t>{1, 2});
  ranges.give_back(224, 32, {});
  ranges.give_back(192, 32, {});
  ranges.give_back(0, 64, {});
  *first.passed = true;
  *second.passed = true;
  CHECK(ranges.take(256, has_passed)->offset_bytes == 0);
}

TEST_CASE("a range slides down into what is free below it", "[memory][ranges]") {
  map ranges{256, 16};
  static_cast<void>(ranges.take(64, has_passed));
  static_cast<void>(ranges.take(64, has_passed));
  const event use = pending(1);
  CHECK_FALSE(ranges.slide_down(64, 64, has_passed));  // nothing is free below
  ranges.give_back(0, 64, {use});
  CHECK_FALSE(ranges.slide_down(64, 64, has_passed));  // it is, but in use
  CHECK(ranges.waits(has_passed));
  *use.passed = true;
  CHECK(ranges.slide_down(64, 64, has_passed) == std::optional<std::size_t>{0});
  CHECK_FALSE(ranges.waits(has_passed));
  CHECK(ranges.used_bytes() == 64);
  CHECK(ranges.largest_free_bytes() == 192);
  ranges.give_back(0, 64, {});
  CHECK(ranges.take(256, has_passed));
}

TEST_CASE("a question that fails loses no event", "[memory][ranges]") {
  const event first = pending(1);
  const event second = pending(2);
  const event third = pending(3);
  *first.passed = true;
  std::vector<event> events{first, second, third};
  const auto asks = [](const event& e) -> bool {
    if (e.id == 2) throw std::runtime_error("the device is gone");
    return *e.passed;
  };
  CHECK_THROWS_AS(vtier::forget_passed(events, asks), std::runtime_error);
  CHECK(ids(events) == std::set<std::size_t>{2, 3});
  map ranges{64, 16};
  static_cast<void>(ranges.take(64, has_passed));
  ranges.give_back(0, 64, {first, second, third});
  CHECK_THROWS_AS(ranges.take(64, asks), std::runtime_error);
  CHECK(ids(ranges.take(64, has_passed)->uses) == std::set<std::size_t>{2, 3});
}

TEST_CASE("a range is taken where it is named, and only if all of it is free", "[memory][ranges]") {
  map m{1024, 64};
  const auto blocked = m.take(128, has_passed);
  REQUIRE(blocked.has_value());
  const event waits = pending(1);
  m.give_back(0, 128, {waits});
  const auto middle = m.take_at(64, 128, has_passed);  // half of a piece that waits, half of one that does not
  REQUIRE(middle.has_value());
  CHECK(middle->offset_bytes == 64);
  CHECK(middle->size_bytes == 128);
  CHECK(ids(middle->uses) == std::set<std::size_t>{1});
  CHECK(!m.take_at(0, 128, has_passed));
  CHECK(!m.take_at(128, 64, has_passed));
  CHECK(!m.take_at(128, 128, has_passed));
  CHECK(!m.take_at(960, 128, has_passed));
  const auto runs = m.settled_runs(has_passed);
  REQUIRE(runs.size() == 1);  // [0, 64) still waits
  CHECK(runs[0].offset_bytes == 192);
  CHECK(runs[0].size_bytes == 832);
  *waits.passed = true;
  CHECK(m.settled_runs(has_passed).size() == 2);
  CHECK(m.take_at(960, 64, has_passed).has_value());
  m.give_back(64, 128, {});
  CHECK(m.take_at(0, 960, has_passed).has_value());
  CHECK(m.free_bytes() == 0);
  CHECK(!m.take_at(0, 64, has_passed));
}
