// SPDX-License-Identifier: Apache-2.0
// What the comparison of policies is made of: the scaling of a step, the player that sees wrong bytes, first in first
// out.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/policy/eviction.hpp>

#include "scenario/dot_picture.hpp"
#include "scenario/fifo.hpp"
#include "scenario/policies.hpp"
#include "scenario/scenario_table.hpp"
#include "scenario/scenarios.hpp"
#include "support/catch.hpp"

namespace {

using namespace vtier::bench;
using vtier::occupancy;
using vtier::stretch;

scaled_step tiny_step(std::size_t which = 0) { return scale_step(smoke_scenarios().at(which), std::size_t{1} << 20U); }

constexpr play_lengths short_play{1, 1};

}  // namespace

TEST_CASE("a scaled step keeps its times, and its sizes to the granule", "[bench][scenario]") {
  const scenario s = smoke_scenarios().front();
  const scaled_step whole = scale_step(s, std::size_t{1} << 40U);
  const scaled_step small = scale_step(s, std::size_t{4} << 20U);
  CHECK(whole.divisor == 1.0);
  CHECK(small.divisor > 10.0);
  CHECK(small.state_bytes < std::size_t{5} << 20U);
  CHECK(small.trace.moment_ns == whole.trace.moment_ns);
  CHECK(small.trace.leases == whole.trace.leases);
  CHECK(small.bound.ns() > 0.9 * whole.bound.ns());
  CHECK(small.bound.ns() < 1.1 * whole.bound.ns());
  for (const auto& t : small.trace.tensors) CHECK(t.size_bytes % granule_bytes == 0);
}

TEST_CASE("each policy plays a step within its budget and not below its bound", "[bench][scenario]") {
  for (const std::size_t which : std::vector<std::size_t>{0, 1}) {
    const scaled_step what = tiny_step(which);
    for (const named_policy& p : all_policies()) {
      INFO(p.name << ", scenario " << which);
      const auto r = p.play(what, short_play);
      const scenario_row row = row_of("tiny", what, r);
      CHECK(row.policy == p.name);
      CHECK(row.time_ratio >= 1.0);
      CHECK(row.time_ratio < 20.0);
      CHECK(row.peak_ratio > 0.5);
      CHECK(row.peak_ratio <= 1.0);
      if (which > 0) continue;
      const auto again = p.play(what, short_play);
      CHECK(again.step_ns == r.step_ns);
    }
  }
}

TEST_CASE("a step that is played sees bytes that somebody has changed", "[bench][scenario]") {
  for (const bool spoil : {false, true}) {
    scaled_step what = tiny_step();
    what.limits.budget_bytes[0] = 2 * (what.state_bytes + what.born_bytes);  // nothing has to leave
    scenario_machine<vtier::lru> on{what, {}};
    step_player player{*on.mem, on.gpu, what.trace};
    player.prepare();
    player.play();
    CHECK(on.world->violations().empty());
    if (spoil) {
      const auto stream = on.gpu.make_stream();
      const auto lease = player.tensor(0)->read(stream);
      on.gpu.reach(lease.data())[0] ^= std::byte{1};
    }
    player.play();
    REQUIRE(on.world->violations().empty() != spoil);
    if (spoil) CHECK(on.world->violations().front().find("tensor 0 has not the bytes") != std::string::npos);
  }
}

TEST_CASE("a step that takes less than its bound is an error of the bench", "[bench][scenario]") {
  scaled_step what = tiny_step();
  what.bound.compute_ns *= 100.0;
  CHECK_THROWS_AS(play_plain<vtier::lru>(what, short_play, "lru"), std::runtime_error);
}

TEST_CASE("first in first out goes by arrival, not by use", "[bench][scenario]") {
  const fifo policy;
  const auto map = [](std::vector<std::uint64_t> blocks, std::vector<std::uint64_t> uses) {
    std::vector<stretch> result;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      result.push_back({i * 100, 100, uses[i], blocks[i], occupancy::clean});
    }
    return result;
  };
  using window = vtier::victim_window;
  CHECK(policy.choose(map({1, 2, 3}, {10, 11, 12}), 100) == window{0, 1});
  CHECK(policy.choose(map({1, 2, 3}, {20, 11, 12}), 100) == window{0, 1});  // used since, and still the first to come
  CHECK(policy.choose(map({4, 2, 3}, {21, 11, 12}), 100) == window{1, 2});
  CHECK(policy.choose(map({4, 1, 3}, {21, 22, 30}), 100) == window{2, 3});
  CHECK(policy.choose(map({4, 1, 5}, {40, 41, 23}), 100) == window{0, 1});  // 4 came at 21, 1 at 22, 5 at 23
}

TEST_CASE("a picture has a mark for each row, and none to the left of the bound", "[bench][scenario]") {
  std::vector<scenario_row> rows;
  for (const char* policy : {"lru", "fifo", "schedule_aware"}) {
    scenario_row r;
    r.scenario = "a < b";
    r.policy = policy;
    r.time_ratio = 1.0 + static_cast<double>(rows.size()) * 4.0;
    rows.push_back(r);
  }
  const std::string picture = draw_dots("title", rows);
  CHECK(picture.find("a &lt; b") != std::string::npos);
  CHECK(picture.find("5.0, 9.0") != std::string::npos);
  std::size_t marks = 0;
  for (std::size_t at = picture.find("translate("); at != std::string::npos; at = picture.find("translate(", at + 1)) {
    ++marks;
  }
  CHECK(marks == 2 * rows.size());  // and one in the key for each policy
}
