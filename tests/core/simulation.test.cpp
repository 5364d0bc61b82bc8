// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/simulation.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/death.hpp"

using vtier::sim::fault;
using vtier::sim::lane;
using vtier::sim::mark;
using vtier::sim::work;
using vtier::sim::world;
using vtier::sim::world_options;

namespace {

work doing(std::int64_t duration_ns, std::function<void()> run) {
  work w;
  w.duration_ns = duration_ns;
  w.run = std::move(run);
  return w;
}

bool says(const world& w, const std::string& part) {
  return std::any_of(w.violations().begin(), w.violations().end(),
                     [&](const std::string& v) { return v.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("a lane runs its work in order, when time has come", "[core]") {
  world w{1};
  const auto l = w.make_lane("one");
  std::vector<int> ran;
  w.submit(*l, doing(1000, [&] { ran.push_back(1); }), "first", {});
  w.submit(*l, doing(10, [&] { ran.push_back(2); }), "second", {});
  w.pass(999);
  CHECK(ran.empty());
  w.pass(1);
  CHECK(ran == std::vector<int>{1});
  w.pass(10);
  CHECK(ran == std::vector<int>{1, 2});
  CHECK(w.now_ns() == 1010);
  CHECK(w.operation_count() == 2);
}

TEST_CASE("work waits for a mark, and the mark for its work", "[core]") {
  world w{1};
  const auto a = w.make_lane("a");
  const auto b = w.make_lane("b");
  const auto done = w.make_mark(0);
  std::vector<int> ran;
  work first = doing(5000, [&] { ran.push_back(1); });
  first.done = done;
  w.submit(*a, std::move(first), "first", {});
  work second = doing(1, [&] { ran.push_back(2); });
  second.after = done;
  w.submit(*b, std::move(second), "second", {});
  w.pass(4000);
  CHECK(ran.empty());
  CHECK_FALSE(done->passed);
  CHECK(w.run_until([&] { return ran.size() == 2; }));
  CHECK(ran == std::vector<int>{1, 2});
  CHECK(done->passed);
  CHECK_FALSE(w.run_until([] { return false; }));  // nothing is left to run
}

TEST_CASE("work of one link takes turns", "[core]") {
  world w{1};
  const std::size_t link = w.number();
  std::vector<std::shared_ptr<lane>> lanes;
  std::vector<std::int64_t> ends;
  for (int i = 0; i < 3; ++i) {
    lanes.push_back(w.make_lane("lane"));
    work one = doing(100, [&] { ends.push_back(w.now_ns()); });
    one.link = link;
    w.submit(*lanes.back(), std::move(one), "copy", {});
  }
  w.pass(1000);
  CHECK(ends == std::vector<std::int64_t>{100, 200, 300});
}

TEST_CASE("a race is told with both call sites, what was done then, and the seed", "[core]") {
  world w{42};
  const auto a = w.make_lane("left");
  const auto b = w.make_lane("right");
  std::array<char, 64> bytes{};
  w.label("writing");
  w.submit(*a, doing(10, [&] { w.writes(bytes.data(), 32); }), "store", {"some/where/a.cpp", 11});
  w.label("reading");
  w.submit(*b, doing(20, [&] { w.reads(bytes.data() + 31, 8); }), "load", {"b.cpp", 22});
  w.pass(100);
  REQUIRE(w.violations().size() == 1);
  const std::string text = w.violations().front();
  CAPTURE(text);
  for (const char* part : {"seed 42", "store on left (a.cpp:11) in \"writing\"",
                           "load on right (b.cpp:22) in \"reading\"", "race", "not ordered"}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("marks order uses: of lanes, and of the host", "[core]") {
  world w{1};
  const auto a = w.make_lane("a");
  const auto b = w.make_lane("b");
  std::array<char, 8> bytes{};
  w.writes(bytes.data(), 8);  // the host, before it submits
  const auto done = w.make_mark(0);
  work first = doing(10, [&] { w.writes(bytes.data(), 8); });
  first.done = done;
  w.submit(*a, std::move(first), "first", {});
  work second = doing(10, [&] { w.writes(bytes.data(), 8); });
  second.after = done;
  const auto over = w.make_mark(0);
  second.done = over;
  w.submit(*b, std::move(second), "second", {});
  w.pass(100);
  CHECK(w.violations().empty());
  w.reads(bytes.data(), 8);  // it is over, but nobody has told the host
  CHECK(w.violations().size() == 1);
  w.learn(*over);
  w.writes(bytes.data(), 8);
  CHECK(w.violations().size() == 1);
}

TEST_CASE("memory: freed, given out twice, left over, too short", "[core]") {
  world w{1};
  std::array<char, 64> bytes{};
  w.allocated(bytes.data(), 32, "a block");
  w.writes(bytes.data(), 32);
  CHECK(w.violations().empty());
  w.writes(bytes.data() + 16, 32);
  CHECK(says(w, "goes beyond the end of a block"));
  w.allocated(bytes.data() + 8, 8, "another");
  CHECK(says(w, "given out twice"));
  world v{1};
  v.allocated(bytes.data(), 32, "a block");
  v.freed(bytes.data(), 16);
  CHECK(says(v, "another size"));
  v.reads(bytes.data() + 4, 1);
  CHECK(says(v, "freed memory (a block) is used"));
  v.freed(bytes.data(), 32);
  CHECK(says(v, "not allocated"));
  world u{1};
  u.allocated(bytes.data(), 32, "a block");
  const auto kept = u.make_mark(0);
  u.stream_made();
  u.finish();
  CHECK(says(u, "leaked: 32 bytes of a block"));
  CHECK(says(u, "leaked: 1 events"));
  CHECK(says(u, "leaked: 1 streams"));
}

TEST_CASE("work that nothing can start is left over", "[core]") {
  world w{1};
  const auto l = w.make_lane("stuck");
  work never = doing(1, [] {});
  never.after = w.make_mark(0);
  w.submit(*l, std::move(never), "never", {});
  w.finish();
  CHECK(says(w, "work is left in stuck"));
}

TEST_CASE("faults come at the planned occasion, or by share", "[core]") {
  world w{1};
  CHECK_FALSE(w.fails(fault::copy));
  w.fail_at(fault::copy, 2);
  CHECK_FALSE(w.fails(fault::copy));
  CHECK_FALSE(w.fails(fault::record));  // counted by itself
  CHECK(w.fails(fault::copy));
  CHECK_FALSE(w.fails(fault::copy));
  CHECK(w.faults() == 1);
  CHECK(w.occasions(fault::copy) == 4);
  w.fault_share(0.25);
  std::size_t failed = 0;
  for (int i = 0; i < 4000; ++i) failed += w.fails(fault::wait) ? 1U : 0U;
  CHECK(failed > 800);
  CHECK(failed < 1200);
}

TEST_CASE("durations keep to their disorder but for the few that stall", "[core]") {
  world w{world_options{.seed = 3, .disorder = 2.0}};
  std::size_t usual = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t ns = w.stretched(1000.0);
    CHECK(ns >= 250);
    CHECK(ns <= 64 * 4001);
    if (ns <= 4001) ++usual;
  }
  CHECK(usual > 900);
  CHECK(usual < 1000);
}

TEST_CASE("without disorder work takes as long as its speed says", "[core]") {
  world w{world_options{.seed = 3, .disorder = 0.0}};
  for (int i = 0; i < 1000; ++i) CHECK(w.stretched(1000.0) == 1001);
}

TEST_CASE("others act while the host waits, and not while it submits", "[core]") {
  world w{1};
  int acted = 0;
  w.when_waiting([&] { ++acted; });
  w.host_step();
  w.pass(10);
  CHECK(acted == 0);
  w.wait_for(10);
  CHECK(acted == 1);
}

TEST_CASE("a world without end is ended, with its seed", "[core]") {
  const auto died = vtier::test::in_child([] {
    world w{world_options{.seed = 77, .operation_count_max = 100}};
    const auto l = w.make_lane("one");
    for (;;) w.submit(*l, {}, "again", {});
  });
  CHECK(died.asserted("goes round for ever"));
  CHECK(died.asserted("seed 77"));
}

TEST_CASE("the log has the order of events, the same for the same seed", "[core]") {
  const auto events = [](std::uint64_t seed) {
    world w{world_options{.seed = seed, .logs = true}};
    const auto a = w.make_lane("a");
    const auto b = w.make_lane("b");
    for (int i = 0; i < 20; ++i) {
      w.submit(i % 2 == 0 ? *a : *b, doing(w.stretched(100.0), [] {}), "work", {});
      w.host_step();
    }
    w.finish();
    return w.events();
  };
  CHECK(events(1) == events(1));
  CHECK(events(1) != events(2));
  CHECK(events(1).size() == 40);
}
