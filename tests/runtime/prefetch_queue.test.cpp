// SPDX-License-Identifier: Apache-2.0
// The list by itself, and what comes of it on the simulated machine: one thread, virtual time.

#include <vtier/runtime/prefetch_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/runtime/timeline.hpp>

#include "sim/machine.hpp"
#include "support/catch.hpp"
#include "support/sim_hierarchy.hpp"

namespace {

using vtier::movement;
using vtier::movement_result;
using vtier::no_deadline;
using vtier::prefetch_queue;
using vtier::test::machine;
using vtier::test::machine_options;
using vtier::test::over_seeds;
using numbers = std::vector<std::uint64_t>;

constexpr std::size_t any_bytes = ~std::size_t{0} / 2;
constexpr std::uint64_t seeds = 200;

movement fetch(std::uint64_t block, std::uint64_t deadline = no_deadline, std::size_t tier = 0, std::size_t size = 1) {
  return {block, tier, movement::direction::fetch, size, deadline};
}
movement evict(std::uint64_t block, std::size_t tier = 0) {
  return {block, tier, movement::direction::evict, 1, no_deadline};
}
bool taken_whole(const prefetch_queue::answer& a) { return a.taken && a.dropped_count == 0; }

// The blocks that are shown, where those in `waiting` wait for room and those in `pending` for something else.
numbers shown(prefetch_queue& queue, const std::set<std::uint64_t>& waiting = {},
              const std::set<std::uint64_t>& pending = {}) {
  numbers seen;
  queue.serve([&](const movement& m) {
    seen.push_back(m.block);
    if (waiting.count(m.block) != 0) return movement_result::waits_for_room;
    return pending.count(m.block) != 0 ? movement_result::pending : movement_result::finished;
  });
  return seen;
}

// Everything that is under way comes to its end.
void settle(machine& m) {
  for (int i = 0; i < 200; ++i) {
    static_cast<void>(m.mem.poll());
    m.world->pass(1'000'000);
  }
}

// A tensor whose only bytes are in the files.
machine::bytes in_files(machine& m, const vtier::sim::stream& s, std::uint64_t seed, std::size_t size) {
  auto t = m.make(size);
  m.fill(s, t, seed);
  m.mem.flush(t);
  m.mem.evict(t, 0);
  m.mem.evict(t, 1);
  settle(m);
  return t;
}

// What has come up into a tier, as the numbers of the tensors (the first is 1) in the order of beginning.
numbers arrived(machine& m, std::size_t tier) {
  numbers result;
  for (const auto& e : m.mem.timeline().events) {
    const bool up = e.kind == vtier::timeline_kind::transfer && e.tier == tier && e.from > e.tier;
    if (up && e.ended == vtier::transfer_state::done) result.push_back(e.number);
  }
  return result;
}
numbers arrived_since(machine& m, std::size_t tier, std::size_t count) {
  const numbers all = arrived(m, tier);
  return {all.begin() + static_cast<std::ptrdiff_t>(count), all.end()};
}

// Whether a lease finds the bytes in place.
bool hits(machine& m, const vtier::sim::stream& s, const machine::bytes& t) {
  const auto before = m.mem.count().hit_count;
  { const auto lease = t.read(s); }
  return m.mem.count().hit_count > before;
}

constexpr std::size_t size = 4000;  // 4096 in each tier

}  // namespace

// ---- the list

TEST_CASE("fetches are shown by deadline, then in the order of asking", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8, any_bytes};
  CHECK(queue.empty());
  for (const movement& m : {fetch(1), fetch(2, 9), fetch(3, 5), fetch(4, 9), fetch(5), fetch(6, 0)}) {
    CHECK(taken_whole(queue.push(m)));
  }
  CHECK(queue.size() == 6);
  CHECK(shown(queue) == numbers{6, 3, 2, 4, 1, 5});
  CHECK(queue.empty());
  CHECK_FALSE(queue.serve([](const movement&) { return movement_result::finished; }));
}

TEST_CASE("evictions come first, in the order of asking", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8, any_bytes};
  for (const movement& m : {fetch(1, 3), evict(2), fetch(3, 1), evict(4)}) CHECK(taken_whole(queue.push(m)));
  CHECK(shown(queue) == numbers{2, 4, 3, 1});
}

TEST_CASE("a wish that is there already keeps its place, unless it has become more or less urgent",
          "[runtime][prefetch_queue]") {
  prefetch_queue queue{3, 3};
  for (const movement& m : {fetch(1, 5), fetch(2, 5), fetch(3, 5)}) queue.push(m);
  CHECK(taken_whole(queue.push(fetch(1, 5))));  // and drops nothing although the list is full
  CHECK(taken_whole(queue.push(fetch(2))));     // has been said better before
  CHECK(shown(queue, {}, {1, 2, 3}) == numbers{1, 2, 3});
  CHECK(taken_whole(queue.push(fetch(3, 4))));
  CHECK(taken_whole(queue.push(fetch(1, 6))));
  CHECK(queue.fetch_bytes() == 3);
  CHECK(shown(queue) == numbers{3, 2, 1});
  CHECK(taken_whole(queue.push(evict(1))));
  CHECK(taken_whole(queue.push(evict(2))));
  CHECK(taken_whole(queue.push(evict(1))));
  CHECK(shown(queue) == numbers{1, 2});
}

TEST_CASE("the last wish for a block counts", "[runtime][prefetch_queue]") {
  prefetch_queue queue{2, any_bytes};
  queue.push(fetch(1));
  queue.push(fetch(2));
  CHECK(taken_whole(queue.push(evict(1))));
  CHECK(queue.size() == 2);
  CHECK(taken_whole(queue.push(fetch(2, 7, 1))));
  std::vector<movement> seen;
  queue.serve([&](const movement& m) {
    seen.push_back(m);
    return movement_result::finished;
  });
  CHECK(seen == std::vector<movement>{evict(1), fetch(2, 7, 1)});
  queue.push(evict(3));
  queue.push(fetch(3));
  CHECK(shown(queue) == numbers{3});
  CHECK(queue.fetch_bytes() == 0);
}

TEST_CASE("a full list keeps the urgent ones", "[runtime][prefetch_queue]") {
  prefetch_queue queue{3, any_bytes};
  for (const std::uint64_t deadline : {30U, 10U, 20U}) CHECK(taken_whole(queue.push(fetch(deadline, deadline))));
  const auto late = queue.push(fetch(40, 40));
  CHECK_FALSE(late.taken);
  CHECK(late.dropped_count == 1);
  const auto equal = queue.push(fetch(31, 30));  // asked later
  CHECK_FALSE(equal.taken);
  const auto urgent = queue.push(fetch(5, 5));
  CHECK(urgent.taken);
  CHECK(urgent.dropped_count == 1);
  CHECK_FALSE(queue.push(fetch(50)).taken);
  CHECK(shown(queue) == numbers{5, 10, 20});
  for (std::uint64_t i = 0; i < 1'000; ++i) queue.push(fetch(i, 1000 - i));
  CHECK(queue.size() == 3);
  CHECK(shown(queue) == numbers{999, 998, 997});
}

TEST_CASE("a list that is full of evictions forgets the oldest, and takes no room from fetches",
          "[runtime][prefetch_queue]") {
  prefetch_queue queue{2, any_bytes};
  for (const movement& m : {fetch(1), fetch(2), evict(3), evict(4)}) CHECK(taken_whole(queue.push(m)));
  const auto fifth = queue.push(evict(5));
  CHECK(fifth.taken);
  CHECK(fifth.dropped_count == 1);
  CHECK(shown(queue) == numbers{4, 5, 1, 2});
}

TEST_CASE("the list is bounded in bytes, but takes one fetch of any size", "[runtime][prefetch_queue]") {
  prefetch_queue queue{100, 10};
  CHECK(taken_whole(queue.push(fetch(1, 50, 0, 11))));
  CHECK_FALSE(queue.push(fetch(2, 60, 0, 1)).taken);
  const auto sooner = queue.push(fetch(3, 40, 0, 4));
  CHECK(sooner.taken);
  CHECK(sooner.dropped_count == 1);
  CHECK(taken_whole(queue.push(fetch(4, 45, 0, 6))));
  CHECK(queue.fetch_bytes() == 10);
  CHECK_FALSE(queue.push(fetch(5, 46, 0, 1)).taken);
  const auto large = queue.push(fetch(6, 1, 0, 7));  // goes for two
  CHECK(large.taken);
  CHECK(large.dropped_count == 2);
  CHECK(queue.fetch_bytes() == 7);
  for (std::uint64_t i = 10; i < 20; ++i) CHECK(taken_whole(queue.push(evict(i))));  // they make room instead
  CHECK(shown(queue, {}, {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 6}).size() == 11);
  queue.cancel_fetch(6);
  CHECK(queue.fetch_bytes() == 0);
  CHECK(queue.size() == 10);
}

TEST_CASE("wishes for a block that dies are forgotten, fetches can be taken back", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8, any_bytes};
  for (const movement& m : {fetch(1), evict(2), evict(3), fetch(4)}) queue.push(m);
  queue.forget(1);
  queue.forget(2);
  queue.forget(7);
  queue.cancel_fetch(3);
  CHECK(queue.fetch_bytes() == 1);
  CHECK(shown(queue, {}, {4}) == numbers{3, 4});
  queue.cancel_fetch(4);
  CHECK(queue.empty());
  CHECK(queue.fetch_bytes() == 0);
}

TEST_CASE("behind a fetch that waits for room no later fetch is shown for its tier", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8, any_bytes};
  for (const movement& m : {fetch(1, 1), fetch(2, 2), fetch(3, 3), evict(4), fetch(5, 5, 1), fetch(6, 6, 31)}) {
    queue.push(m);
  }
  CHECK(shown(queue, {2}) == numbers{4, 1, 2, 5, 6});
  CHECK(queue.size() == 2);
  queue.push(fetch(7, 1));  // sooner: it does not wait behind
  CHECK(shown(queue, {2}) == numbers{7, 2});
  CHECK(shown(queue) == numbers{2, 3});
}

TEST_CASE("what waits for nothing but itself holds nobody up", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8, any_bytes};
  for (const movement& m : {evict(1), fetch(2), evict(3), fetch(4)}) queue.push(m);
  CHECK(shown(queue, {1}, {2}) == numbers{1, 3, 2, 4});
  CHECK(queue.size() == 2);
}

TEST_CASE("serving says whether anything was finished", "[runtime][prefetch_queue]") {
  prefetch_queue queue{8, any_bytes};
  queue.push(fetch(1));
  queue.push(evict(2));
  CHECK_FALSE(queue.serve([](const movement&) { return movement_result::pending; }));
  CHECK_FALSE(queue.serve([](const movement&) { return movement_result::waits_for_room; }));
  CHECK(queue.serve([](const movement&) { return movement_result::finished; }));
}

// ---- on the simulated machine

TEST_CASE("files are read in the order of deadlines", "[runtime][prefetch_queue][sim]") {
  const machine_options sizes{
      .host = 64 * 1024, .timeline_events = 4096, .prefetch_bytes = any_bytes, .prefetch_flight_bytes = 1};
  std::uint64_t seed = 0;
  const auto broken = over_seeds(seeds, sizes, [&](machine& m) {
    const auto s = m.gpu.make_stream();
    std::vector<machine::bytes> all;
    for (std::uint64_t i = 0; i < 7; ++i) all.push_back(in_files(m, s, i, size));
    vtier::random_source random{++seed};
    std::vector<std::size_t> order{1, 2, 3, 4};
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    m.mem.prefetch(all[0], 1);  // starts at once
    m.mem.prefetch(all[6], 1);
    for (const std::size_t i : order) CHECK(m.mem.prefetch(all[i], 1, 1'000'000 * static_cast<std::int64_t>(i)));
    m.mem.prefetch(all[5], 1);
    settle(m);
    CHECK(arrived(m, 1) == numbers{1, 2, 3, 4, 5, 7, 6});
    for (std::uint64_t i = 0; i < 7; ++i) m.expect(s, all[i], i);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("a sooner prefetch overtakes one that reads a file already", "[runtime][prefetch_queue][sim]") {
  const machine_options sizes{.hbm = 64 * 1024, .host = 64 * 1024, .staging = 1024, .timeline_events = 4096};
  const auto broken = over_seeds(seeds, sizes, [&](machine& m) {
    const auto s = m.gpu.make_stream();
    const auto large = in_files(m, s, 1, 24'000);  // one chunk at a time has a place in staging
    const auto small = in_files(m, s, 2, size);
    const auto began = m.world->now_ns();
    m.mem.prefetch(large, 0, 2000);
    m.mem.prefetch(small, 0, 1000);
    settle(m);
    std::int64_t ended[2] = {0, 0};
    for (const auto& e : m.mem.timeline().events) {
      if (e.kind == vtier::timeline_kind::transfer && e.begin_ns >= began) ended[e.number - 1] = e.end_ns;
    }
    CAPTURE(m.world->seed(), ended[0], ended[1]);
    CHECK((ended[1] > 0 && ended[1] < ended[0]));
    m.expect(s, large, 1);
    m.expect(s, small, 2);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("so many bytes of prefetches are read from files at once, and one of any size",
          "[runtime][prefetch_queue][sim]") {
  const machine_options sizes{
      .host = 96 * 1024, .timeline_events = 4096, .prefetch_bytes = any_bytes, .prefetch_flight_bytes = 2 * size};
  std::size_t most = 0;
  const auto broken = over_seeds(seeds, sizes, [&](machine& m) {
    const auto s = m.gpu.make_stream();
    std::vector<machine::bytes> all;
    for (std::uint64_t i = 0; i < 8; ++i) all.push_back(in_files(m, s, i, i == 3 ? 3 * size : size));
    for (std::int64_t i = 0; i < 8; ++i) m.mem.prefetch(all[static_cast<std::size_t>(i)], 1, 1000 + i);
    settle(m);
    struct span {
      std::int64_t begin, end;
      std::size_t bytes;
    };
    std::vector<span> reads;
    numbers order;
    for (const auto& e : m.mem.timeline().events) {
      if (e.kind != vtier::timeline_kind::transfer || e.tier != 1 || e.from != 2) continue;
      reads.push_back({e.begin_ns, e.end_ns, e.size_bytes});
      order.push_back(e.number);
    }
    REQUIRE(reads.size() == 8);
    for (const span& at : reads) {
      std::size_t bytes = 0;
      for (const span& other : reads) bytes += other.begin <= at.begin && at.begin < other.end ? other.bytes : 0;
      CHECK((bytes <= 2 * size || bytes == at.bytes));
      most = (std::max)(most, bytes == 3 * size ? 0 : bytes);
    }
    CHECK(order[3] == 4);  // the large one was not overtaken by small ones that would have fit
    for (std::uint64_t i = 0; i < 8; ++i) m.expect(s, all[i], i);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
  CHECK(most == 2 * size);
}

TEST_CASE("wishes that are too many are dropped, the least urgent first, and counted",
          "[runtime][prefetch_queue][sim]") {
  for (const bool by_bytes : {true, false}) {
    machine_options sizes{.host = 64 * 1024, .timeline_events = 4096, .prefetch_flight_bytes = 1};
    (by_bytes ? sizes.prefetch_bytes : sizes.prefetch_count) = by_bytes ? 2 * size : 2;
    if (!by_bytes) sizes.prefetch_bytes = any_bytes;
    const auto broken = over_seeds(seeds, sizes, [&](machine& m) {
      const auto s = m.gpu.make_stream();
      std::vector<machine::bytes> all;
      for (std::uint64_t i = 0; i < 6; ++i) all.push_back(in_files(m, s, i, size));
      const auto dropped = m.mem.count().prefetch_dropped_count;
      CHECK(m.mem.prefetch(all[0], 1, 1));  // starts at once
      CHECK(m.mem.prefetch(all[1], 1, 30));
      CHECK(m.mem.prefetch(all[2], 1, 40));
      CHECK_FALSE(m.mem.prefetch(all[3], 1, 50));
      CHECK(m.mem.prefetch(all[4], 1, 20));  // for number 2
      CHECK(m.mem.prefetch(all[5], 1, 10));  // for number 1
      CHECK(m.mem.count().prefetch_dropped_count == dropped + 3);
      settle(m);
      CHECK(arrived(m, 1) == numbers{1, 6, 5});
      for (std::uint64_t i = 0; i < 6; ++i) m.expect(s, all[i], i);
      m.gpu.synchronize(s);
    });
    CHECK(broken == "");
  }
}

TEST_CASE("by default the list takes as many bytes as half of the first tier", "[runtime][prefetch_queue][sim]") {
  machine m{1, {.hbm = 16 * 1024, .host = 64 * 1024, .prefetch_flight_bytes = 1}};
  const auto s = m.gpu.make_stream();
  std::vector<machine::bytes> all;
  for (std::uint64_t i = 0; i < 4; ++i) all.push_back(in_files(m, s, i, size));
  for (std::int64_t i = 0; i < 4; ++i) CHECK(m.mem.prefetch(all[static_cast<std::size_t>(i)], 1, 1 + i) == (i < 3));
  m.gpu.synchronize(s);
}

TEST_CASE("what is taken back does not come, and what reads a file already stops", "[runtime][prefetch_queue][sim]") {
  const machine_options sizes{
      .host = 96 * 1024, .timeline_events = 4096, .prefetch_bytes = any_bytes, .prefetch_flight_bytes = 1};
  std::size_t stopped = 0;
  const auto broken = over_seeds(seeds, sizes, [&](machine& m) {
    const auto s = m.gpu.make_stream();
    auto large = in_files(m, s, 1, 14'000);
    auto second = in_files(m, s, 2, size);
    auto third = in_files(m, s, 3, size);
    m.mem.prefetch(large, 0, 10);  // starts at once, a chunk at a time
    m.mem.prefetch(second, 1, 20);
    m.mem.prefetch(third, 1, 30);
    m.mem.cancel_prefetch(second);
    m.mem.cancel_prefetch(large);
    settle(m);
    CHECK(arrived(m, 1) == numbers{3});
    for (const auto& e : m.mem.timeline().events) {
      stopped += e.kind == vtier::timeline_kind::transfer && e.ended == vtier::transfer_state::cancelled ? 1U : 0U;
    }
    m.expect(s, large, 1);  // and on need it comes all the same
    m.add(s, large, 7);
    m.expect(s, second, 2);
    m.expect(s, third, 3);
    m.expect(s, large, 1, 7);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
  CHECK(stopped > seeds * 9 / 10);  // the others had issued all by then
}

TEST_CASE("a fetch that somebody waits for is not stopped", "[runtime][prefetch_queue][sim]") {
  std::size_t asked = 0;
  const auto broken = over_seeds(seeds, {.host = 64 * 1024, .timeline_events = 4096}, [&](machine& m) {
    const auto s = m.gpu.make_stream();
    auto t = in_files(m, s, 1, 14'000);
    m.mem.prefetch(t, 0, 10);
    m.world->when_waiting([&] {
      m.mem.cancel_prefetch(t);
      ++asked;
    });
    m.expect(s, t, 1);
    m.world->when_waiting({});
    for (const auto& e : m.mem.timeline().events) {
      if (e.kind == vtier::timeline_kind::transfer) CHECK(e.ended == vtier::transfer_state::done);
    }
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
  CHECK(asked >= seeds);
}

TEST_CASE("a prefetch never evicts what is needed sooner", "[runtime][prefetch_queue][sim]") {
  // Two places in the first tier. Number 1 is the least recently used and the one that is needed sooner.
  const auto broken =
      over_seeds(seeds, {.hbm = 8192, .timeline_events = 4096, .prefetch_bytes = any_bytes, .prefetch_share = 1.0},
                 [&](machine& m) {
                   const auto s = m.gpu.make_stream();
                   std::vector<machine::bytes> all;
                   for (std::uint64_t i = 0; i < 4; ++i) {
                     all.push_back(m.make(size));
                     m.fill(s, all.back(), i);
                     m.mem.flush(all.back());
                   }
                   m.expect(s, all[0], 0);
                   m.expect(s, all[1], 1);
                   m.mem.prefetch(all[0], 0, 100);  // both are there already: this says when they are needed
                   m.mem.prefetch(all[1], 0, 200);
                   const std::size_t before = arrived(m, 0).size();
                   const auto now = [&] { return arrived_since(m, 0, before); };
                   m.mem.prefetch(all[2], 0, 300);
                   settle(m);
                   CHECK(now().empty());
                   m.mem.prefetch(all[3], 0);  // without a deadline: behind everything
                   settle(m);
                   CHECK(now().empty());
                   m.mem.cancel_prefetch(all[2]);
                   m.mem.cancel_prefetch(all[3]);
                   m.mem.prefetch(all[2], 0, 200);  // not sooner than number 2
                   settle(m);
                   CHECK(now().empty());
                   m.mem.prefetch(all[3], 0, 150);  // for number 2, which waits longer
                   settle(m);
                   CHECK(now() == numbers{4});
                   CHECK(hits(m, s, all[0]));  // and its use is over: number 3 comes for it
                   settle(m);
                   CHECK(now() == numbers{4, 3});
                   CHECK(hits(m, s, all[3]));
                   CHECK(hits(m, s, all[2]));
                   for (std::uint64_t i = 0; i < 4; ++i) m.expect(s, all[i], i);
                   m.gpu.synchronize(s);
                 });
  CHECK(broken == "");
}

TEST_CASE("a lease gets its room from what is needed soon, too", "[runtime][prefetch_queue][sim]") {
  const auto broken = over_seeds(seeds, {.hbm = 8192}, [&](machine& m) {
    const auto s = m.gpu.make_stream();
    std::vector<machine::bytes> all;
    for (std::uint64_t i = 0; i < 4; ++i) {
      all.push_back(m.make(size));
      m.fill(s, all.back(), i);
    }
    m.mem.prefetch(all[2], 0, 1);
    m.mem.prefetch(all[3], 0, 1);
    m.mem.prefetch(all[0], 0, 2);  // waits for them
    m.expect(s, all[1], 1);
    for (std::uint64_t i = 0; i < 4; ++i) m.expect(s, all[i], i);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("what was evicted or taken back is not needed any more", "[runtime][prefetch_queue][sim]") {
  for (const std::size_t how : {0U, 1U, 2U}) {
    const auto broken = over_seeds(seeds, {.hbm = 8192, .timeline_events = 4096}, [&](machine& m) {
      const auto s = m.gpu.make_stream();
      std::vector<machine::bytes> all;
      for (std::uint64_t i = 0; i < 3; ++i) {
        all.push_back(m.make(size));
        m.fill(s, all.back(), i);
        m.mem.flush(all.back());
      }
      m.mem.prefetch(all[1], 0, 100);
      m.mem.prefetch(all[2], 0, 100);
      m.mem.prefetch(all[0], 0, 200);
      settle(m);
      CHECK(arrived(m, 0).empty());
      how < 2 ? m.mem.evict(all[1], how) : m.mem.cancel_prefetch(all[1]);  // from whatever tier
      settle(m);
      CHECK(arrived(m, 0) == numbers{1});
      CHECK(hits(m, s, all[2]));
      for (std::uint64_t i = 0; i < 3; ++i) m.expect(s, all[i], i);
      m.gpu.synchronize(s);
    });
    CHECK(broken == "");
  }
}

TEST_CASE("an urgent prefetch takes the share of those that can wait, and they come again",
          "[runtime][prefetch_queue][sim]") {
  const auto broken =
      over_seeds(seeds, {.hbm = 16 * 1024, .host = 64 * 1024, .timeline_events = 4096}, [&](machine& m) {
        const auto s = m.gpu.make_stream();
        std::vector<machine::bytes> all;
        for (std::uint64_t i = 0; i < 5; ++i) {
          all.push_back(m.make(size));
          m.fill(s, all.back(), i);
          m.mem.flush(all.back());
          m.mem.evict(all.back());
        }
        settle(m);
        const auto used = [&] { return m.mem.count().tiers[0].used_bytes; };
        REQUIRE(used() == 0);
        m.mem.prefetch(all[0], 0, 50);
        m.mem.prefetch(all[1], 0, 60);
        m.mem.prefetch(all[2], 0, 100);  // more than half of the tier
        settle(m);
        CHECK(used() == 8192);
        m.mem.prefetch(all[3], 0, 10);
        settle(m);
        CHECK(arrived(m, 0) == numbers{1, 2, 4});
        CHECK(used() == 8192);
        for (const std::size_t next : {0U, 3U, 1U, 2U}) {  // the one of the two that is needed later has made way
          CAPTURE(next);
          CHECK(hits(m, s, all[next]));
          settle(m);
        }
        for (std::uint64_t i = 0; i < 5; ++i) m.expect(s, all[i], i);
        m.gpu.synchronize(s);
      });
  CHECK(broken == "");
}

TEST_CASE("what is taken back gives its share to others", "[runtime][prefetch_queue][sim]") {
  const auto broken = over_seeds(seeds, {.hbm = 16 * 1024, .host = 64 * 1024, .timeline_events = 4096}, [](machine& m) {
    const auto s = m.gpu.make_stream();
    std::vector<machine::bytes> all;
    for (std::uint64_t i = 0; i < 3; ++i) all.push_back(in_files(m, s, i, size));
    for (const auto& t : all) m.mem.prefetch(t);
    settle(m);
    CHECK(arrived(m, 0) == numbers{1, 2});
    m.mem.cancel_prefetch(all[1]);
    settle(m);
    CHECK(arrived(m, 0) == numbers{1, 2, 3});
    for (std::uint64_t i = 0; i < 3; ++i) m.expect(s, all[i], i);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("an urgent prefetch waits where it would cost a copy down", "[runtime][prefetch_queue][sim]") {
  const auto broken = over_seeds(seeds, {.hbm = 8192, .host = 64 * 1024, .timeline_events = 4096}, [](machine& m) {
    const auto s = m.gpu.make_stream();
    auto first = m.make(size);
    auto second = m.make(size);
    m.fill(s, first, 1);
    m.fill(s, second, 2);
    m.mem.evict(first);
    m.mem.evict(second);
    m.mem.prefetch(first, 0, 50);
    settle(m);
    m.mem.evict(first, 1);  // the only bytes are up there now
    m.mem.prefetch(first, 0, 50);
    m.mem.prefetch(second, 0, 10);
    settle(m);
    CHECK(arrived(m, 0) == numbers{1});
    CHECK(hits(m, s, first));
    settle(m);
    CHECK(arrived(m, 0) == numbers{1, 2});
    m.expect(s, first, 1);
    m.expect(s, second, 2);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("a prefetch that waits for the drive holds up no copy between memories", "[runtime][prefetch_queue][sim]") {
  const machine_options sizes{.hbm = 32 * 1024, .host = 64 * 1024, .timeline_events = 4096, .prefetch_flight_bytes = 1};
  const auto broken = over_seeds(seeds, sizes, [](machine& m) {
    const auto s = m.gpu.make_stream();
    const auto first = in_files(m, s, 1, size);
    const auto second = in_files(m, s, 2, size);
    auto third = m.make(size);
    m.fill(s, third, 3);
    m.mem.evict(third);
    m.mem.prefetch(first, 0, 1);
    m.mem.prefetch(second, 0, 2);
    m.mem.prefetch(third, 0, 3);
    CHECK(arrived(m, 0) == numbers{3});
    settle(m);
    CHECK(arrived(m, 0).size() == 3);
    m.expect(s, first, 1);
    m.expect(s, second, 2);
    m.expect(s, third, 3);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("a prefetch takes what nobody has spoken for, and copies that cost nothing",
          "[runtime][prefetch_queue][sim]") {
  const machine_options sizes{.hbm = 8192, .host = 16 * 1024, .timeline_events = 4096, .prefetch_share = 1.0};
  const auto broken = over_seeds(seeds, sizes, [](machine& m) {
    const auto s = m.gpu.make_stream();
    const auto below = in_files(m, s, 1, size);
    std::vector<machine::bytes> all;
    for (std::uint64_t i = 0; i < 2; ++i) {
      all.push_back(m.make(size));
      m.fill(s, all.back(), i);
      m.mem.evict(all.back());
    }
    settle(m);  // both are in host memory, where there is room for no third
    m.mem.prefetch(all[0], 0, 10);
    m.mem.prefetch(all[1], 0, 10);
    m.mem.prefetch(below, 1, 20);  // for the lower copy of one that is needed sooner above
    settle(m);
    CHECK(arrived(m, 0) == numbers{2, 3});
    CHECK(arrived(m, 1) == numbers{1});
    m.expect(s, all[0], 0);
    m.expect(s, all[1], 1);
    m.mem.prefetch(below, 0);  // for one of which nothing is said any more
    settle(m);
    CHECK(hits(m, s, below));
    m.expect(s, below, 1);
    for (std::uint64_t i = 0; i < 2; ++i) m.expect(s, all[i], i);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("taking a prefetch back stops no write", "[runtime][prefetch_queue][sim]") {
  const auto broken = over_seeds(seeds, {.host = 16 * 1024, .timeline_events = 4096}, [](machine& m) {
    const auto s = m.gpu.make_stream();
    const auto below = in_files(m, s, 1, size);
    std::vector<machine::bytes> all;
    for (std::uint64_t i = 0; i < 2; ++i) {
      all.push_back(m.make(size));
      m.fill(s, all.back(), i);
      m.mem.evict(all.back());
    }
    settle(m);
    m.mem.prefetch(below, 1, 10);  // one of the two has to be written for it
    for (const auto& t : all) m.mem.cancel_prefetch(t);
    settle(m);
    CHECK(arrived(m, 1) == numbers{1});
    for (const auto& e : m.mem.timeline().events) {
      if (e.kind == vtier::timeline_kind::transfer) CHECK(e.ended == vtier::transfer_state::done);
    }
    m.expect(s, below, 1);
    for (std::uint64_t i = 0; i < 2; ++i) m.expect(s, all[i], i);
    m.gpu.synchronize(s);
  });
  CHECK(broken == "");
}

TEST_CASE("bytes are right whatever is hinted", "[runtime][prefetch_queue][sim]") {
  std::uint64_t dropped = 0;
  std::uint64_t had = 0;
  for (const std::size_t flight : {std::size_t{1}, std::size_t{10'000}}) {
    const machine_options sizes{.hbm = 16 * 1024,
                                .host = 20 * 1024,
                                .clean_share = 0.25,
                                .prefetch_count = 4,
                                .prefetch_bytes = 12'000,
                                .prefetch_flight_bytes = flight,
                                .prefetch_share = 0.75};
    std::uint64_t seed = 0;
    const auto broken = over_seeds(seeds, sizes, [&](machine& m) {
      const auto s = m.gpu.make_stream();
      vtier::random_source random{++seed};
      std::vector<machine::bytes> all;
      std::vector<std::uint8_t> added(8, 0);
      for (std::uint64_t i = 0; i < 8; ++i) {
        all.push_back(m.make(1000 + random.below(6000)));
        m.fill(s, all.back(), i);
      }
      for (int i = 0; i < 120; ++i) {
        const auto at = static_cast<std::size_t>(random.below(all.size()));
        switch (random.below(9)) {
          case 0: m.mem.evict(all[at], random.below(2)); break;
          case 1: m.mem.cancel_prefetch(all[at]); break;
          case 2: m.mem.prefetch(all[at], random.below(3)); break;
          case 3:
          case 4:
          case 5:
            m.mem.prefetch(all[at], random.below(3), m.gpu.now_ns() + static_cast<std::int64_t>(random.below(400'000)));
            break;
          case 6: m.expect(s, all[at], at, added[at]); break;
          case 7:
            m.add(s, all[at], 3);
            added[at] = static_cast<std::uint8_t>(added[at] + 3);
            break;
          default: m.world->pass(static_cast<std::int64_t>(random.below(100'000)));
        }
      }
      for (std::size_t i = 0; i < all.size(); ++i) m.expect(s, all[i], i, added[i]);
      m.gpu.synchronize(s);
      dropped += m.mem.count().prefetch_dropped_count;
      had += m.mem.count().prefetch_hit_count;
    });
    CHECK(broken == "");
  }
  CHECK(dropped > 0);
  CHECK(had > 0);
}
