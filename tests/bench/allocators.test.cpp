// SPDX-License-Identifier: Apache-2.0
// The allocators that the benches bring along, and how they are measured: sound numbers need sound yardsticks.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/pool.hpp>

#include "memory/bar_picture.hpp"
#include "memory/caching_rules.hpp"
#include "memory/compare.hpp"
#include "memory/measure.hpp"
#include "memory/offline_packing.hpp"
#include "memory/ours.hpp"
#include "memory/workloads.hpp"
#include "support/address_space.hpp"
#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/model_steps.hpp"

using namespace vtier::literals;
using namespace vtier::bench;

namespace {

using pool_over_addresses = ours<vtier::pool<address_space>>;

workload small_random(std::size_t threads = 1) { return random_order("random", {}, 50, 100, 1000, 3, threads); }

/// Hands out a block that overlaps the one before, after a while.
struct faulty {
  static constexpr bool touchable = false;
  void* allocate(std::size_t) {
    ++count;
    return reinterpret_cast<void*>(count == 40 ? (std::size_t{39} << 32U) + shift_bytes : count << 32U);
  }
  void deallocate(void*, std::size_t) {}
  std::optional<std::size_t> taken_bytes() { return std::nullopt; }
  std::size_t shift_bytes = 0;
  std::size_t count = 0;
};

/// Holds what is alive and nothing more.
struct exact {
  [[maybe_unused]] static constexpr bool touchable = false;
  void* allocate(std::size_t size_bytes) {
    alive_bytes += size_bytes;
    return reinterpret_cast<void*>(++count << 32U);
  }
  void deallocate(void*, std::size_t size_bytes) { alive_bytes -= size_bytes; }
  std::optional<std::size_t> taken_bytes() { return alive_bytes; }
  std::size_t alive_bytes = 0;
  std::size_t count = 0;
};

template <class Function>
std::string what_goes_wrong(const child_limits& limits, Function function) {
  try {
    in_child(limits, function);
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return "";
}

std::byte* at(void* pointer) { return static_cast<std::byte*>(pointer); }

}  // namespace

TEST_CASE("addresses are charged, counted and given back", "[bench][address_space]") {
  const address_space from{64_GiB};
  void* const block = from.allocate(5000, 256);
  CHECK(from.committed_bytes() == 8192);
  CHECK(from.free_bytes() == 64_GiB - 8192);
  from.deallocate(block, 5000, 256);
  CHECK(from.committed_bytes() == 0);
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(from.allocate(1_MiB, 256));
  for (std::size_t i = 0; i < blocks.size(); i += 2) from.deallocate(blocks[i], 1_MiB, 256);
  CHECK(from.committed_bytes() == 500_MiB);
  for (std::size_t i = 0; i < blocks.size(); i += 2) blocks[i] = from.allocate(1_MiB, 256);
  std::sort(blocks.begin(), blocks.end());
  bool apart = true;
  for (std::size_t i = 1; i < blocks.size(); ++i) apart = apart && at(blocks[i]) - at(blocks[i - 1]) >= 1 << 20;
  CHECK(apart);
  for (void* const each : blocks) from.deallocate(each, 1_MiB, 256);
  {
    auto rest = from.make_slab();
    CHECK(rest.size_bytes() == 64_GiB);
    CHECK(from.free_bytes() == 0);
    rest.commit(3000);
    rest.commit(1000);
    CHECK(from.committed_bytes() == 3000);
    CHECK_THROWS_AS(from.allocate(1, 1), vtier::out_of_memory);
  }
  CHECK(from.committed_bytes() == 0);
  CHECK(from.free_bytes() == 64_GiB);
  CHECK_THROWS_AS(from.allocate(1, 8192), vtier::usage_error);
  CHECK_THROWS_AS(from.allocate(~std::size_t{0}, 1), vtier::out_of_memory);
}

TEST_CASE("the caching rules: segments and splits by size", "[bench][caching_rules]") {
  caching_rules from{64_GiB};
  SECTION("small ones share a segment of 2 MiB, cut at multiples of 512") {
    void* const a = from.allocate(1);
    void* const b = from.allocate(513);
    void* const c = from.allocate(1_MiB);
    CHECK(at(b) == at(a) + 512);
    CHECK(at(c) == at(b) + 1024);
    CHECK(from.taken_bytes() == 2_MiB);
    CHECK(from.allocate(1_MiB) != nullptr);  // 1536 bytes too large for what is left
    CHECK(from.taken_bytes() == 4_MiB);
  }
  SECTION("those below 10 MiB come from 20 MiB, larger ones have a segment of their own in steps of 2 MiB") {
    CHECK(from.allocate(1_MiB + 1) != nullptr);
    CHECK(from.taken_bytes() == 20_MiB);
    CHECK(from.allocate(10_MiB - 512) != nullptr);
    CHECK(from.taken_bytes() == 20_MiB);
    CHECK(from.allocate(10_MiB) != nullptr);
    CHECK(from.taken_bytes() == 30_MiB);
    CHECK(from.allocate(11_MiB + 1) != nullptr);
    CHECK(from.taken_bytes() == 42_MiB);
  }
  SECTION("a large block is cut only where more than 1 MiB is left") {
    void* const whole = from.allocate(12_MiB);
    from.deallocate(whole, 12_MiB);
    void* const most = from.allocate(11_MiB);  // 1 MiB would be left: it stays with the block
    CHECK(most == whole);
    void* const next = from.allocate(1_MiB + 512);
    CHECK(from.taken_bytes() == 32_MiB);
    from.deallocate(next, 1_MiB + 512);
    from.deallocate(most, 11_MiB);
    CHECK(from.allocate(11_MiB - 512) == whole);
  }
  SECTION("what is more than that serves another") {
    from.deallocate(from.allocate(12_MiB), 12_MiB);
    CHECK(from.allocate(11_MiB - 512) != nullptr);
    CHECK(from.allocate(1_MiB + 512) != nullptr);
    CHECK(from.taken_bytes() == 12_MiB);
  }
  SECTION("the smallest free block that is large enough is taken; neighbours join") {
    void* const a = from.allocate(4_MiB);
    void* const b = from.allocate(2_MiB);
    void* const c = from.allocate(3_MiB);
    void* const d = from.allocate(2_MiB);
    from.deallocate(a, 4_MiB);
    from.deallocate(c, 3_MiB);
    CHECK(from.allocate(3_MiB) == c);
    from.deallocate(c, 3_MiB);
    from.deallocate(b, 2_MiB);
    CHECK(from.allocate(9_MiB) == a);
    CHECK(from.taken_bytes() == 20_MiB);
    from.deallocate(d, 2_MiB);
  }
  SECTION("freed segments are kept") {
    from.deallocate(from.allocate(30_MiB), 30_MiB);
    CHECK(from.taken_bytes() == 30_MiB);
  }
}

TEST_CASE("the caching rules: at the budget, cached segments go back and the request is tried again",
          "[bench][caching_rules]") {
  caching_rules from{40_MiB};
  void* const a = from.allocate(20_MiB);
  void* const b = from.allocate(20_MiB);
  from.deallocate(a, 20_MiB);
  CHECK(from.allocate(22_MiB) == nullptr);
  from.deallocate(b, 20_MiB);
  void* const c = from.allocate(40_MiB);
  CHECK(c != nullptr);
  CHECK(from.taken_bytes() == 40_MiB);
  CHECK(from.allocate(1) == nullptr);
  from.deallocate(c, 40_MiB);
}

TEST_CASE("the caching rules: a segment of which a part lives does not go back", "[bench][caching_rules]") {
  caching_rules from{40_MiB};
  void* const first = from.allocate(5_MiB);
  void* const second = from.allocate(5_MiB);
  from.deallocate(first, 5_MiB);
  CHECK(from.allocate(30_MiB) == nullptr);
  CHECK(from.taken_bytes() == 20_MiB);
  CHECK(from.allocate(5_MiB) == first);
  from.deallocate(first, 5_MiB);
  from.deallocate(second, 5_MiB);
  CHECK(from.allocate(30_MiB) != nullptr);
  CHECK(from.taken_bytes() == 30_MiB);
}

TEST_CASE("workloads free what they allocated, and say where their peak is", "[bench][workloads]") {
  auto shape = public_models().front();
  shape.layers = 1;
  for (const workload& w : {small_random(), small_random(2), last_in_first_out("lifo", {}, 50, 1000, 3),
                            recorded("step", record_step(shape))}) {
    INFO(w.name << " " << w.threads.size());
    std::vector<std::vector<std::size_t>> held;
    for (const auto& t : w.threads) held.emplace_back(t.slot_count, 0);
    std::size_t live_bytes = 0, live_count = 0, most_count = 0, calls = 0, at_peak = 0, later = 0, fill = 0;
    for (const auto& t : w.threads) fill += t.timed_begin;
    bool sound = true;
    in_turns(w, [&](std::size_t t, const memory_call& c) {
      std::size_t& slot = held[t][c.slot];
      sound = sound && c.size_bytes > 0 && slot == (c.frees ? c.size_bytes : 0);
      slot = c.frees ? 0 : c.size_bytes;
      live_bytes = c.frees ? live_bytes - c.size_bytes : live_bytes + c.size_bytes;
      live_count = c.frees ? live_count - 1 : live_count + 1;
      most_count = (std::max)(most_count, live_count);
      ++calls;
      if (calls == w.peak_at) at_peak = live_bytes;
      if (calls > fill) later = (std::max)(later, live_bytes);
      return sound;
    });
    CHECK(sound);
    CHECK(most_count == w.live_count);
    CHECK(w.peak_at > fill);
    CHECK(at_peak == w.peak_live_bytes);
    CHECK(later == w.peak_live_bytes);
    for (const auto& t : w.threads) {
      REQUIRE(!t.round_ends.empty());
      CHECK(t.round_ends.back() == t.calls.size());
      std::size_t from = t.timed_begin;
      for (const std::size_t end : t.round_ends) {  // as many frees as allocations in each round
        std::size_t frees = 0;
        for (std::size_t i = from; i < end; ++i) frees += t.calls[i].frees ? 1 : 0;
        CHECK(2 * frees == end - from);
        from = end;
      }
    }
  }
}

TEST_CASE("sizes are spread evenly over their logarithm", "[bench][workloads]") {
  vtier::random_source random{1};
  const size_range sizes{4_KiB, 64_MiB};
  std::vector<std::size_t> count(14, 0);
  for (int i = 0; i < 14'000; ++i) {
    const std::size_t size = sizes.draw(random);
    REQUIRE(size >= 4_KiB);
    REQUIRE(size <= 64_MiB);
    std::size_t octave = 0;
    while ((8_KiB << octave) <= size) ++octave;
    ++count[(std::min)(octave, count.size() - 1)];
  }
  for (const std::size_t c : count) {
    CHECK(c > 850);
    CHECK(c < 1150);
  }
}

TEST_CASE("a run counts its pairs and looks at its blocks", "[bench][measure]") {
  const run_lengths lengths{.timed_seconds = 60.0, .checked_seconds = 60.0};
  for (const std::size_t threads : {std::size_t{1}, std::size_t{2}}) {
    const workload w = small_random(threads);
    pool_over_addresses timed{64_GiB};
    const timed_result got = time_workload(timed, w, lengths);
    CHECK(got.pair_count >= 1000);  // it is over when one thread is through
    CHECK(got.pair_count <= 1000 * threads);
    CHECK(got.ns_per_pair > 0.0);
    CHECK(got.touch_ns < 0.0);
    pool_over_addresses checked{64_GiB};
    const checked_result seen = check_workload(checked, w, lengths);
    CHECK(seen.complete);
    CHECK(seen.taken_bytes >= w.peak_live_bytes);
  }
  for (const std::size_t shift : {std::size_t{0}, std::size_t{16}, ~std::size_t{15}}) {  // the last: 16 bytes below
    faulty wrong{shift};
    CHECK_THROWS_AS(check_workload(wrong, small_random(), lengths), std::runtime_error);
  }
  exact counting;
  const workload counted = small_random(2);
  CHECK(check_workload(counting, counted, lengths).taken_bytes == counted.peak_live_bytes);
  pool_over_addresses narrow{1_MiB};
  CHECK_THROWS_AS(time_workload(narrow, small_random(), lengths), skipped);
}

TEST_CASE("what a child process does wrong is told", "[bench][child_process]") {
  const child_limits limits{.seconds = 20.0, .resident_bytes = 20_GiB};
  CHECK(in_child(limits, [] { return 42; }) == 42);
  CHECK_THROWS_AS(in_child(limits, []() -> int { throw skipped("not here"); }), skipped);
  CHECK(what_goes_wrong(limits, []() -> int { throw std::runtime_error("an error"); }) == "an error");
  CHECK(what_goes_wrong(limits, []() -> int { std::_Exit(3); }) == "ended without a result");
  CHECK(what_goes_wrong(limits, [] { return ::raise(SIGKILL); }) == "ended by signal 9");
  const auto forever = []() -> int {
    for (;;) ::pause();
  };
  CHECK_THROWS_AS(in_child({.seconds = 0.01, .resident_bytes = 20_GiB}, forever), skipped);
  CHECK(what_goes_wrong({.seconds = 0.01, .resident_bytes = 20_GiB}, forever).rfind("took longer", 0) == 0);
  CHECK(what_goes_wrong({.seconds = 20.0, .resident_bytes = 1}, forever).rfind("touched more", 0) == 0);
}

TEST_CASE("a comparison has a row for who could and a reason for who could not", "[bench][compare]") {
  const auto make_pool = [](const workload& w) { return std::make_unique<pool_over_addresses>(address_bytes_for(w)); };
  const auto make_none = [](const workload&) -> std::unique_ptr<pool_over_addresses> { throw skipped("not here"); };
  const auto make_faulty = [](const workload&) { return std::make_unique<faulty>(); };
  comparison_options options;
  options.run_count = 3;
  options.lengths = {.timed_seconds = 0.001, .checked_seconds = 10.0};
  allocator_table table;
  compare_allocators(table, small_random(),
                     {make_candidate("vtier", true, make_pool), make_candidate("absent", true, make_none),
                      make_candidate("wrong", true, make_faulty), make_candidate("other", false, make_pool)},
                     options);
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0].allocator == "vtier");
  CHECK(table.rows[0].run_count == 3);
  CHECK(table.rows[0].over_vtier->median == 1.0);
  CHECK(table.rows[0].reserved_over_live.value() >= 1.0);
  CHECK(table.rows[1].allocator == "other");
  REQUIRE(table.skipped.size() == 1);
  CHECK(table.skipped[0].allocator == "absent");
  CHECK(table.skipped[0].reason == "not here");
  REQUIRE(table.failures.size() == 1);
  CHECK(table.failures[0].find("overlaps") != std::string::npos);
  CHECK(table.json().text().find("\"touch_ns\": null") != std::string::npos);
  table = {};
  compare_allocators(table, small_random(2), {make_candidate("alone", false, make_pool)}, options);
  CHECK(table.rows.empty());  // not to be shared by threads
}

TEST_CASE("a packing is held to account", "[bench][offline_packing]") {
  auto shape = public_models().front();
  shape.layers = 1;
  const memory_trace trace = record_step(shape);
  const auto one_after_another = [](const std::vector<block_lifetime>& blocks) {
    std::vector<std::size_t> offsets;
    std::size_t end = 0;
    for (const auto& b : blocks) {
      offsets.push_back(end);
      end += b.size_bytes;
    }
    return offsets;
  };
  const allocator_row row = packed_row("stacked", "model", trace, 2, one_after_another);
  CHECK(row.reserved_over_live.value() > 1.0);
  CHECK(row.run_count == 2);
  const auto all_at_zero = [](const std::vector<block_lifetime>& blocks) {
    return std::vector<std::size_t>(blocks.size(), 0);
  };
  CHECK_THROWS_AS(packed_row("wrong", "model", trace, 2, all_at_zero), std::runtime_error);

  // The space of a block may be used again at the very event at which it ends.
  memory_trace two;
  two.block_count = 2;
  const auto event = [&](memory_event::kind what, std::size_t id) {
    two.events.push_back({what, vtier::role::workspace, 0, id, 100});
  };
  event(memory_event::kind::allocate, 0);
  event(memory_event::kind::free, 0);
  event(memory_event::kind::allocate, 1);
  event(memory_event::kind::free, 1);
  CHECK(packed_row("same place", "two", two, 1, all_at_zero).reserved_over_live.value() == 1.0);
}

TEST_CASE("a picture is one SVG with a bar for each row", "[bench][bar_picture]") {
  allocator_row row;
  row.allocator = "a<b>&\"c\"";
  row.workload = "random";
  row.live_count = 1'000'000;
  row.ns_per_pair = {100.0, 90.0, 110.0};
  std::vector<allocator_row> rows{row, row, row};
  rows[2].live_count = 10;
  const std::string svg = draw_bars("title", rows);
  CHECK(svg.rfind("<svg ", 0) == 0);
  CHECK(svg.find("a&lt;b&gt;&amp;&quot;c&quot;") != std::string::npos);
  CHECK(svg.find("random, 1,000,000 live") != std::string::npos);
  std::size_t bars = 0;
  for (std::size_t i = svg.find("height=\"13\""); i != std::string::npos; i = svg.find("height=\"13\"", i + 1)) ++bars;
  CHECK(bars == 3);
}
