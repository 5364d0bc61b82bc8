// SPDX-License-Identifier: Apache-2.0
// What a hierarchy records of itself: on the simulated machine, whose time is exact, and from many threads.

#include <vtier/runtime/timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/device/host.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/runtime/detail/recorder.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "sim/machine.hpp"
#include "support/catch.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/sim_hierarchy.hpp"

namespace {

using namespace vtier::literals;
using vtier::access;
using vtier::role;
using vtier::stall_cause;
using vtier::timeline_event;
using vtier::timeline_kind;
using vtier::test::machine;

std::vector<timeline_event> of_kind(const vtier::timeline& all, timeline_kind kind) {
  std::vector<timeline_event> result;
  for (const auto& e : all.events) {
    if (e.kind == kind) result.push_back(e);
  }
  return result;
}

std::size_t stalls(const vtier::timeline& all, stall_cause why) {
  const auto found = of_kind(all, timeline_kind::stall);
  return static_cast<std::size_t>(
      std::count_if(found.begin(), found.end(), [&](const auto& e) { return e.cause == why; }));
}

vtier::test::machine_options recorded(std::size_t events_max = 10'000) {
  vtier::test::machine_options sizes;
  sizes.timeline_events = events_max;
  return sizes;
}

// More tensors than memory holds, written and read twice: traffic on every link and waiting for it.
struct traffic {
  explicit traffic(machine& m) : on{&m}, stream{m.gpu.make_stream()} {
    for (std::size_t i = 0; i < 12; ++i) tensors.push_back(m.make(7000, i % 2 == 0 ? role::parameter : role::gradient));
    for (std::size_t i = 0; i < tensors.size(); ++i) m.fill(stream, tensors[i], i);
  }
  void lap() {
    for (std::size_t i = 0; i < tensors.size(); ++i) on->expect(stream, tensors[i], i);
  }
  machine* on;
  vtier::sim::stream stream;
  std::vector<machine::bytes> tensors;
};

timeline_event numbered(std::uint64_t number) {
  timeline_event e;
  e.number = number;
  return e;
}

}  // namespace

TEST_CASE("a ring keeps the newest events in their order and counts the others", "[runtime][timeline]") {
  for (const std::size_t most : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
    for (std::uint64_t count = 0; count <= 20; ++count) {
      CAPTURE(most, count);
      vtier::detail::recorder record;
      record.start(most);
      for (std::uint64_t i = 1; i <= count; ++i) record.add(numbered(i));
      const auto kept = record.events();
      const std::uint64_t lost = count > most ? count - most : 0;
      REQUIRE(kept.size() == count - lost);
      CHECK(record.lost_count() == lost);
      for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].number == lost + i + 1);
    }
  }
}

TEST_CASE("waits for one cause are one stall until another takes over", "[runtime][timeline]") {
  vtier::detail::recorder record;
  record.start(8);
  {
    vtier::detail::stall one{record, 1, 64};
    one.add(stall_cause::room, 10, 20);
    one.add(stall_cause::room, 25, 30);
    one.add(stall_cause::reserve, 31, 33);
    one.add(stall_cause::room, 34, 35);
    CHECK(record.events().size() == 2);
    const vtier::detail::stall idle{record, 0, 1};  // a caller that never waits leaves nothing
  }
  const auto kept = record.events();
  REQUIRE(kept.size() == 3);
  CHECK((kept[0].cause == stall_cause::room && kept[0].begin_ns == 10 && kept[0].end_ns == 30));
  CHECK((kept[1].cause == stall_cause::reserve && kept[1].begin_ns == 31 && kept[1].end_ns == 33));
  CHECK((kept[2].cause == stall_cause::room && kept[2].begin_ns == 34 && kept[2].end_ns == 35));
  CHECK((kept[2].kind == timeline_kind::stall && kept[2].tier == 1 && kept[2].size_bytes == 64));
  CHECK((kept[2].number == 0 && kept[2].what == role::workspace));
}

TEST_CASE("only what is news about a tier is recorded", "[runtime][timeline]") {
  struct {
    [[nodiscard]] std::int64_t now_ns() const noexcept { return 5; }
  } clock;
  vtier::detail::recorder record;
  record.occupancy(0, 1, clock);  // it is off
  record.start(8);
  for (const int bytes : {0, 0, 7, 7, 0}) record.occupancy(1, static_cast<std::size_t>(bytes), clock);
  record.occupancy(0, 0, clock);
  const auto kept = record.events();
  REQUIRE(kept.size() == 4);
  CHECK((kept[0].size_bytes == 0 && kept[1].size_bytes == 7 && kept[2].size_bytes == 0));
  CHECK((kept[2].tier == 1 && kept[3].tier == 0 && kept[3].begin_ns == 5 && kept[3].end_ns == 5));
}

TEST_CASE("every cause has a name", "[runtime][timeline]") {
  CHECK(vtier::name(stall_cause::fetch) == "fetch");
  CHECK(vtier::name(stall_cause::room) == "room");
  CHECK(vtier::name(stall_cause::reserve) == "reserve");
  CHECK(vtier::name(stall_cause::events) == "events");
  CHECK(vtier::name(stall_cause::flush) == "flush");
}

TEST_CASE("nothing is recorded unless it is asked for, and then nothing changes", "[runtime][timeline]") {
  std::int64_t end_ns[2] = {};
  for (const std::size_t most : {std::size_t{0}, std::size_t{10'000}}) {
    machine m{7, recorded(most)};
    traffic t{m};
    t.lap();
    const auto all = m.mem.timeline();
    CHECK(all.events.empty() == (most == 0));
    CHECK(all.lost_count == 0);
    REQUIRE(all.tiers.size() == 3);
    CHECK(all.tiers[2].kind == vtier::memory_kind::file);
    end_ns[most == 0 ? 0 : 1] = m.gpu.now_ns();
  }
  CHECK(end_ns[0] == end_ns[1]);  // whoever looks on moves nothing
}

TEST_CASE("leases are recorded with what they were for", "[runtime][timeline]") {
  machine m{3, recorded()};
  auto stream = m.gpu.make_stream();
  auto a = m.make(1000, role::optimizer);
  auto b = m.make(500, role::activation);
  m.fill(stream, a, 1);
  m.fill(stream, b, 2);
  const std::int64_t before = m.gpu.now_ns();
  std::int64_t between = 0;
  {
    auto outer = a.read(stream);
    CHECK(of_kind(m.mem.timeline(), timeline_kind::lease).size() == 2);  // what is in force is not over
    auto inner = b.read_write(stream);
    m.gpu.pause(50'000);
    between = m.gpu.now_ns();
    m.gpu.pause(1'000);
  }
  for (int i = 0; i < 10; ++i) m.gpu.launch(stream, [] {});
  m.add(stream, a, 1);
  { auto host = a.read(vtier::on_host); }
  const auto all = m.mem.timeline();
  const auto leases = of_kind(all, timeline_kind::lease);
  REQUIRE(leases.size() == 6);
  CHECK((leases[0].mode == access::write && leases[0].what == role::optimizer && leases[0].size_bytes == 1000));
  CHECK((leases[1].mode == access::write && leases[1].what == role::activation && leases[1].size_bytes == 500));
  CHECK((leases[2].mode == access::read && leases[2].number == leases[0].number));
  CHECK((leases[3].mode == access::read_write && leases[3].number == leases[1].number));
  CHECK(leases[2].begin_ns >= before);
  CHECK(leases[2].begin_ns <= leases[3].begin_ns);  // in order of begin though the inner one ended first
  for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
    CHECK(leases[i].begin_ns < between - 40'000);
    CHECK(leases[i].end_ns > between);
    CHECK(leases[i].tier == 0);
    CHECK_FALSE(leases[i].on_host);
  }
  CHECK((leases[5].on_host && leases[5].tier == 1 && leases[5].mode == access::read));
  CHECK(leases[5].begin_ns >= leases[2].end_ns);
  CHECK(all.now_ns == m.gpu.now_ns());
  REQUIRE(stalls(all, stall_cause::events) == 1);  // for the copy down, which is behind the kernels
  const auto stall = of_kind(all, timeline_kind::stall).back();
  CHECK((stall.number == leases[5].number && stall.tier == 1 && stall.size_bytes == 1000));
  CHECK(stall.begin_ns < stall.end_ns);
  CHECK(stall.end_ns <= leases[5].begin_ns);
}

TEST_CASE("transfers of every link are recorded as often as they are counted", "[runtime][timeline]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    machine m{seed, recorded()};
    traffic t{m};
    t.lap();
    t.lap();
    m.gpu.synchronize(t.stream);
    for (int i = 0; i < 10'000 && m.mem.poll(); ++i) {
    }
    m.gpu.pause(100'000'000);
    for (int i = 0; i < 10'000 && m.mem.poll(); ++i) {
    }
    const auto counted = m.mem.count();
    const auto all = m.mem.timeline();
    REQUIRE(all.lost_count == 0);
    std::map<std::pair<std::size_t, std::size_t>, std::pair<std::size_t, std::size_t>> seen;
    for (const auto& e : of_kind(all, timeline_kind::transfer)) {
      auto& [transfers, bytes] = seen[{e.from, e.tier}];
      ++transfers;
      bytes += e.size_bytes;
      const bool in_order =
          all.tiers[e.from].kind != vtier::memory_kind::file && all.tiers[e.tier].kind != vtier::memory_kind::file;
      CHECK(e.enqueued == in_order);
      CHECK((e.begin_ns == e.end_ns) == in_order);  // how long a copy in stream order takes the host does not know
    }
    REQUIRE(seen.size() == counted.links.size());
    bool from_files = false;
    bool to_files = false;
    for (const auto& link : counted.links) {
      CAPTURE(link.name);
      const auto [transfers, bytes] = seen[{link.from, link.to}];
      CHECK(transfers == link.transfer_count);
      CHECK(bytes == link.moved_bytes);
      from_files = from_files || all.tiers[link.from].kind == vtier::memory_kind::file;
      to_files = to_files || all.tiers[link.to].kind == vtier::memory_kind::file;
    }
    CHECK((from_files && to_files));
  }
}

TEST_CASE("stalls have the cause and at least the time that the report counts", "[runtime][timeline]") {
  std::size_t fetches = 0;
  std::size_t rooms = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    machine m{seed, recorded()};
    const std::int64_t began = m.gpu.now_ns();
    traffic t{m};
    t.lap();
    const auto counted = m.mem.count();
    const auto all = m.mem.timeline();
    std::map<stall_cause, std::int64_t> blocked_ns;
    for (const auto& e : of_kind(all, timeline_kind::stall)) {
      CHECK(e.end_ns > e.begin_ns);
      CHECK((e.number != 0 && e.tier == 0 && e.size_bytes == 7000));
      blocked_ns[e.cause] += e.end_ns - e.begin_ns;
    }
    CHECK(blocked_ns[stall_cause::fetch] >= counted.blocked_fetch_ns);
    CHECK(blocked_ns[stall_cause::room] >= counted.blocked_room_ns);
    CHECK((blocked_ns[stall_cause::fetch] > 0) == (counted.blocked_fetch_ns > 0));
    CHECK((blocked_ns[stall_cause::room] > 0) == (counted.blocked_room_ns > 0));
    CHECK(blocked_ns[stall_cause::fetch] + blocked_ns[stall_cause::room] <= m.gpu.now_ns() - began);
    fetches += stalls(all, stall_cause::fetch);
    rooms += stalls(all, stall_cause::room);
    CHECK(stalls(all, stall_cause::reserve) == 0);
  }
  CHECK(fetches > 0);
  CHECK(rooms > 0);
}

TEST_CASE("a caller that waits for a reservation, and one that flushes, are stalls too", "[runtime][timeline]") {
  machine m{5, recorded()};
  auto stream = m.gpu.make_stream();
  std::vector<machine::bytes> tensors;
  for (std::uint64_t i = 0; i < 4; ++i) {
    tensors.push_back(m.make(4000));
    m.fill(stream, tensors.back(), i);
  }
  {
    auto held = m.mem.reserve(0, 12'000, 1'000'000'000);  // the copy down has to pass first
    const auto all = m.mem.timeline();
    REQUIRE(stalls(all, stall_cause::reserve) == 1);
    const auto found = of_kind(all, timeline_kind::stall);
    const auto e =
        *std::find_if(found.begin(), found.end(), [](const auto& s) { return s.cause == stall_cause::reserve; });
    CHECK((e.number == 0 && e.tier == 0 && e.size_bytes >= 12'000));
    held.release(stream);
  }
  m.mem.flush(tensors.back());
  const auto all = m.mem.timeline();
  CHECK(stalls(all, stall_cause::flush) == 1);
  CHECK(stalls(all, stall_cause::events) == 0);  // what is in files is there: no event is left to wait for
  const auto found = of_kind(all, timeline_kind::stall);
  const auto e = *std::find_if(found.begin(), found.end(), [](const auto& s) { return s.cause == stall_cause::flush; });
  CHECK((e.tier == 2 && e.number != 0 && e.end_ns > e.begin_ns));
}

TEST_CASE("occupancy never exceeds a budget and ends where the report is", "[runtime][timeline]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    machine m{seed, recorded()};
    const auto check = [&] {
      const auto all = m.mem.timeline();
      const auto counted = m.mem.count();
      std::vector<std::size_t> last(3, 1);
      std::vector<std::size_t> most(3, 0);
      std::vector<std::size_t> samples(3, 0);
      for (const auto& e : of_kind(all, timeline_kind::occupancy)) {
        REQUIRE(e.tier < 3);
        CHECK(e.size_bytes <= all.tiers[e.tier].budget_bytes);
        CHECK((samples[e.tier] == 0 || e.size_bytes != last[e.tier]));  // only what is news
        last[e.tier] = e.size_bytes;
        most[e.tier] = (std::max)(most[e.tier], e.size_bytes);
        ++samples[e.tier];
      }
      for (std::size_t i = 0; i < 3; ++i) {
        CAPTURE(i);
        CHECK(samples[i] > 0);
        CHECK(last[i] == counted.tiers[i].used_bytes);
        CHECK(last[i] == all.tiers[i].used_bytes);
        CHECK(most[i] <= counted.tiers[i].peak_bytes);
        CHECK(all.tiers[i].budget_bytes == counted.tiers[i].budget_bytes);
        CHECK(all.tiers[i].name == counted.tiers[i].name);
      }
      return samples;
    };
    check();
    {
      traffic t{m};
      check();
      t.lap();
      {
        auto held = m.mem.reserve(0, 4000, 1'000'000'000);
        check();
        auto more = m.mem.try_reserve(1, 1000);
        check();
      }
      check();
      t.lap();
      CHECK(check()[0] > 20);
      m.gpu.synchronize(t.stream);
    }
    check();
    CHECK(m.mem.count().tiers[0].used_bytes == 0);
  }
}

TEST_CASE("steps are numbered from one and enclose their leases", "[runtime][timeline]") {
  machine m{2, recorded()};
  auto stream = m.gpu.make_stream();
  auto t = m.make(100);
  for (int i = 0; i < 3; ++i) {
    auto step = m.mem.step();
    m.fill(stream, t, 1);
  }
  const auto all = m.mem.timeline();
  const auto steps = of_kind(all, timeline_kind::step);
  const auto leases = of_kind(all, timeline_kind::lease);
  REQUIRE((steps.size() == 3 && leases.size() == 3));
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(steps[i].number == i + 1);
    CHECK(steps[i].begin_ns <= leases[i].begin_ns);
    CHECK(steps[i].end_ns >= leases[i].end_ns);
    sum += steps[i].end_ns - steps[i].begin_ns;
  }
  CHECK(sum == m.mem.count().step_ns);
}

TEST_CASE("a transfer that was cancelled or failed says so", "[runtime][timeline]") {
  using vtier::transfer_state;
  std::map<transfer_state, std::size_t> ended;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    machine m{seed, recorded()};
    if (seed > 15) m.world->fail_at(vtier::sim::fault::file_write, 1 + seed % 3);
    auto stream = m.gpu.make_stream();
    auto a = m.make(7000);
    auto b = m.make(7000);
    try {
      m.fill(stream, a, 1);
      for (int lap = 0; lap < 4; ++lap) {
        m.mem.evict(a, 0);
        m.mem.evict(a, 1);  // a write to files begins
        m.gpu.pause(2'000);
        m.mem.poll();
        m.fill(stream, a, 2);  // what is on its way is old
      }
      m.gpu.synchronize(stream);
    } catch (const vtier::error&) {
    }
    for (int i = 0; i < 2000; ++i) {
      m.gpu.pause(100'000);
      m.mem.poll();
    }
    for (const auto& e : of_kind(m.mem.timeline(), timeline_kind::transfer)) ++ended[e.ended];
    if (seed == 15) CHECK(ended[transfer_state::failed] == 0);
  }
  CHECK(ended[transfer_state::done] > 0);
  CHECK(ended[transfer_state::cancelled] > 0);
  CHECK(ended[transfer_state::failed] > 0);
}

TEST_CASE("a small record keeps the newest and says how many are gone", "[runtime][timeline]") {
  machine big{4, recorded()};
  machine small{4, recorded(16)};
  for (machine* m : {&big, &small}) {
    traffic t{*m};
    t.lap();
  }
  const auto all = big.mem.timeline();
  const auto newest = small.mem.timeline();
  REQUIRE(newest.events.size() == 16);
  CHECK(newest.lost_count + 16 == all.events.size());
  CHECK(all.lost_count == 0);
  const auto by_begin = [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; };
  CHECK(std::is_sorted(newest.events.begin(), newest.events.end(), by_begin));
  CHECK(std::is_sorted(all.events.begin(), all.events.end(), by_begin));
  for (const auto& e : newest.events) {
    CHECK(std::find(all.events.begin(), all.events.end(), e) != all.events.end());
  }
}

TEST_CASE("several threads record beside the progress thread", "[runtime][timeline]") {
  const vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::options limits;
  limits.chunk_bytes_max = 64_KiB;
  limits.timeline_events_max = 100'000;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 2_MiB}},
                       vtier::mapped_file{directory.path(), {.budget = 64_MiB}}, limits};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      auto stream = gpu.make_stream();
      std::vector<decltype(mem)::tensor<std::uint8_t>> mine;
      for (int k = 0; k < 8; ++k) mine.push_back(mem.make_tensor<std::uint8_t>({200'000}, role::activation));
      for (int lap = 0; lap < 3; ++lap) {
        for (auto& t : mine) auto lease = t.write(stream);
        static_cast<void>(mem.timeline());
      }
      gpu.synchronize(stream);
    });
  }
  for (auto& t : threads) t.join();
  const auto all = mem.timeline();
  CHECK(all.lost_count == 0);
  CHECK(of_kind(all, timeline_kind::lease).size() == 72);
  for (const auto& e : all.events) {
    CHECK(e.begin_ns <= e.end_ns);
    CHECK(e.end_ns <= all.now_ns);
  }
}
