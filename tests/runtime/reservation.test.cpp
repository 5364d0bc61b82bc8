// SPDX-License-Identifier: Apache-2.0
// Shares of a tier, and room made ahead of need, on the simulated machine: one thread, virtual time.

#include <vtier/runtime/reservation.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/observe/report.hpp>

#include "sim/machine.hpp"
#include "support/catch.hpp"
#include "support/host_hierarchy.hpp"
#include "support/sim_hierarchy.hpp"

namespace {

using vtier::test::machine;
using vtier::test::machine_options;
using vtier::test::over_seeds;
using reservation = machine::memory::reservation;

static_assert(!std::is_copy_constructible_v<reservation>);
static_assert(std::is_nothrow_move_constructible_v<reservation>);

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::size_t KiB = 1024;

bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

std::string why_refused(machine& m, std::size_t tier, std::size_t size, std::int64_t timeout_ns) {
  try {
    static_cast<void>(m.mem.reserve(tier, size, timeout_ns));
    return "it was had";
  } catch (const vtier::out_of_memory& e) {
    return e.what();
  }
}

// A kernel that fills a reservation, and one that looks whether it still holds that.
void fill(machine& m, const vtier::sim::stream& s, const reservation& r, std::uint8_t value) {
  m.gpu.launch(s, [w = m.world.get(), p = static_cast<std::uint8_t*>(r.data()), n = r.size_bytes(), value] {
    w->writes(p, n);
    for (std::size_t i = 0; i < n; ++i) p[i] = value;
  });
}
void expect(machine& m, const vtier::sim::stream& s, const reservation& r, std::uint8_t value) {
  m.gpu.launch(s, [w = m.world.get(), p = static_cast<std::uint8_t*>(r.data()), n = r.size_bytes(), value] {
    w->reads(p, n);
    for (std::size_t i = 0; i < n; ++i) {
      if (p[i] != value) return w->violation("somebody wrote into a reservation");
    }
  });
}

}  // namespace

TEST_CASE("a reservation is its owner's, whatever tensors come and go", "[runtime][reservation]") {
  const auto broken = over_seeds(300, {}, [](machine& m) {
    const auto s = m.gpu.make_stream();
    const auto other = m.gpu.make_stream();
    std::vector<machine::bytes> tensors;
    for (std::uint64_t i = 0; i < 6; ++i) {
      tensors.push_back(m.make(3000));
      m.fill(s, tensors.back(), i);
    }
    auto r = m.mem.reserve(0, 6 * KiB, second_ns);
    if (r.size_bytes() != 6 * KiB || r.data() == nullptr) m.world->violation("not what was asked");
    fill(m, other, r, 77);
    for (std::uint64_t i = 0; i < 6; ++i) m.expect(s, tensors[i], i);
    expect(m, other, r, 77);
    r.release(other);  // in stream order: what comes there next waits for the kernel
    for (std::uint64_t i = 0; i < 6; ++i) m.add(s, tensors[i], 1);
    for (std::uint64_t i = 0; i < 6; ++i) m.expect(s, tensors[i], i, 1);
    m.gpu.synchronize(s);
    m.gpu.synchronize(other);
  });
  CHECK(broken == "");
}

TEST_CASE("a reservation in host memory has a host address and keeps staging apart", "[runtime][reservation]") {
  const auto broken = over_seeds(100, {}, [](machine& m) {
    const auto s = m.gpu.make_stream();
    auto t = m.make(9000);
    m.fill(s, t, 3);
    auto r = m.mem.reserve(1, 12 * KiB, second_ns);
    auto* const p = static_cast<std::uint8_t*>(r.data());
    m.world->writes(p, r.size_bytes());
    for (std::size_t i = 0; i < r.size_bytes(); ++i) p[i] = 5;
    m.mem.flush(t);
    m.expect(s, t, 3);
    m.gpu.synchronize(s);
    m.world->reads(p, r.size_bytes());
    for (std::size_t i = 0; i < r.size_bytes(); ++i) {
      if (p[i] != 5) return m.world->violation("somebody wrote into a reservation");
    }
  });
  CHECK(broken == "");
}

TEST_CASE("what can never be had is refused at once, what is missing at the time in time", "[runtime][reservation]") {
  machine m{1};
  const auto s = m.gpu.make_stream();
  {
    auto t = m.make(10 * KiB);
    m.fill(s, t, 1);
    const auto before = m.gpu.now_ns();
    const std::string never = why_refused(m, 0, 8 * KiB, 1000 * second_ns);
    CHECK(has(never, "leaves no place for the tensors"));
    CHECK(m.gpu.now_ns() - before < second_ns);
    CHECK(has(why_refused(m, 0, 17 * KiB, second_ns), "larger than the tier"));
    CHECK(has(why_refused(m, 0, ~std::size_t{0}, second_ns), "larger than the tier"));
    CHECK(!m.mem.try_reserve(0, 17 * KiB));
    CHECK(!m.mem.try_reserve(0, ~std::size_t{0}));

    auto lease = t.read(s);
    auto small = m.mem.reserve(0, 4 * KiB, 0);
    const auto began = m.gpu.now_ns();
    const std::string late = why_refused(m, 0, 3 * KiB, 5'000'000);  // 2 KiB are free
    CHECK(m.gpu.now_ns() - began >= 5'000'000);
    CAPTURE(late, m.mem.report().text());
    CHECK(has(late, "asked 3 KiB"));
    CHECK(has(late, "free 2 KiB"));
    CHECK(has(late, "leased: parameter 10 KiB"));
    CHECK(has(late, "reserved: 4 KiB"));
    CHECK(m.mem.count().blocked_reserve_ns > 0);
    lease.end();
    CHECK(has(m.mem.report().text(), "reserved in hbm"));
  }
  CHECK_THROWS_AS(m.mem.reserve(2, 4096, 0), vtier::usage_error);  // files
  CHECK_THROWS_AS(m.mem.reserve(3, 4096, 0), vtier::usage_error);
  CHECK_THROWS_AS(m.mem.try_reserve(3, 4096), vtier::usage_error);
  CHECK_THROWS_AS(m.mem.reserve_up_to(2, 4096), vtier::usage_error);
  CHECK_THROWS_AS(m.mem.reserve(0, 0, 0), vtier::usage_error);
  CHECK(m.mem.count().tiers[0].reserved_bytes == 0);
  CHECK(m.mem.broken_rules().empty());
}

TEST_CASE("tensors are promised only what reservations leave", "[runtime][reservation]") {
  machine m{1, {.hbm = 16 * KiB, .host = 12 * KiB, .file = 4 * KiB, .staging = 4096}};
  // 16 + 8 KiB beside 8 KiB of a file: with 4 KiB tensors, one of room to exchange.
  std::vector<machine::bytes> tensors;
  auto r = std::optional{m.mem.reserve(0, 8 * KiB, 0)};
  for (int i = 0; i < 3; ++i) tensors.push_back(m.make(4096));
  CHECK(!m.mem.try_make_tensor<std::uint8_t>({6000}, vtier::role::parameter).has_value());
  const auto count = [&] {
    std::size_t n = 0;
    std::vector<machine::bytes> more;
    while (auto t = m.mem.try_make_tensor<std::uint8_t>({4096}, vtier::role::parameter)) {
      more.push_back(std::move(*t));
      ++n;
    }
    return n;
  };
  const std::size_t beside = count();
  r.reset();
  CHECK(count() == beside + 2);
  CHECK(m.mem.broken_rules().empty());
}

TEST_CASE("at once is what is free or clean and passed; up to is as much of it as there is", "[runtime][reservation]") {
  machine m{3};
  const auto s = m.gpu.make_stream();
  auto kept = m.make(4096);
  m.fill(s, kept, 1);
  auto clean = m.make(4096);
  m.fill(s, clean, 2);
  m.gpu.synchronize(s);
  m.mem.flush(clean);
  CHECK(!m.mem.try_reserve(0, 13 * KiB));  // only a write would make that room
  const auto drops = m.mem.count().clean_drop_count;
  {
    auto most = m.mem.try_reserve(0, 12 * KiB);
    REQUIRE(most.has_value());
    CHECK(m.mem.count().clean_drop_count == drops + 1);
    CHECK(!m.mem.try_reserve(0, 256));
    CHECK(!m.mem.reserve_up_to(0, 256));
  }
  {
    auto most = m.mem.reserve_up_to(0, 100 * KiB);
    REQUIRE(most.has_value());
    CHECK(most->size_bytes() == 12 * KiB);
  }
  auto little = m.mem.reserve_up_to(0, 300);
  REQUIRE(little.has_value());
  CHECK(little->size_bytes() == 512);
  m.expect(s, kept, 1);
  m.gpu.synchronize(s);
  CHECK(m.world->violations().empty());
  CHECK(m.mem.count().reservation_count == 3);
}

TEST_CASE("bytes that a kernel still uses are not had at once, and waited for otherwise", "[runtime][reservation]") {
  const auto broken = over_seeds(300, {}, [](machine& m) {
    const auto s = m.gpu.make_stream();
    auto first = m.mem.reserve(0, 16 * KiB, 0);
    fill(m, s, first, 1);
    first.release(s);
    const auto other = m.gpu.make_stream();
    if (auto early = m.mem.try_reserve(0, 16 * KiB)) {
      fill(m, other, *early, 2);  // a race if too early
      early->release(other);
    }
    auto r = m.mem.reserve(0, 16 * KiB, second_ns);
    fill(m, other, r, 3);  // nothing to wait for: the host knows that all is over
    m.gpu.synchronize(other);
  });
  CHECK(broken == "");
}

TEST_CASE("requests are served in order of asking", "[runtime][reservation]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    machine m{seed};
    auto all = std::optional{m.mem.reserve(0, 16 * KiB, 0)};
    std::vector<int> order;
    std::vector<reservation> had;
    // Others ask while one waits: first the large one, then small ones, then all is released.
    int asked = 0;
    m.world->when_waiting([&] {
      const int mine = ++asked;
      if (mine == 1) {
        CHECK(!m.mem.try_reserve(0, 256));
        had.push_back(m.mem.reserve(0, 2 * KiB, second_ns));
        order.push_back(2);
      } else if (mine == 2) {
        had.push_back(m.mem.reserve(0, 1 * KiB, second_ns));
        order.push_back(3);
      } else if (mine == 3) {
        all.reset();
      }
    });
    had.push_back(m.mem.reserve(0, 12 * KiB, second_ns));
    order.push_back(1);
    m.world->when_waiting({});
    CHECK(had.size() == 3);
    CHECK(m.mem.count().tiers[0].reserved_bytes == 15 * KiB);
    CHECK(m.mem.broken_rules().empty());
    // A release wakes the first: the large one was served before the small ones got what was left of it.
    std::size_t lowest = ~std::size_t{0};
    std::size_t large = 0;
    for (const auto& r : had) {
      const auto at = reinterpret_cast<std::size_t>(r.data());
      lowest = (std::min)(lowest, at);
      if (r.size_bytes() == 12 * KiB) large = at;
    }
    CHECK(large > lowest);  // the highest place goes to the first
    had.clear();
  }
}

TEST_CASE("a small request that comes later does not overtake a large one that waits", "[runtime][reservation]") {
  machine m{5};
  auto part = std::optional{m.mem.reserve(0, 8 * KiB, 0)};
  bool large_first = false;
  bool small_had = false;
  int turn = 0;
  std::optional<reservation> small;
  m.world->when_waiting([&] {
    if (++turn == 1) {
      // 8 KiB are free, but the one before wants 12: this one's time is over first.
      CHECK(has(why_refused(m, 0, 1 * KiB, 1'000'000), "asked 1 KiB"));
      CHECK(!m.mem.try_reserve(0, 1 * KiB));
      CHECK(!m.mem.reserve_up_to(0, 1 * KiB));
      part.reset();
      small_had = !large_first && m.mem.try_reserve(0, 8 * KiB).has_value();
    }
  });
  const auto large = m.mem.reserve(0, 12 * KiB, second_ns);
  m.world->when_waiting({});
  CHECK(large.size_bytes() == 12 * KiB);
  CHECK(!small_had);
}

TEST_CASE("room is made for a request that waits, before the last lease ends", "[runtime][reservation]") {
  machine m{2};
  const auto s = m.gpu.make_stream();
  auto held = m.make(4096);
  auto idle = m.make(4096);
  auto third = m.make(4096);
  m.fill(s, idle, 2);
  m.fill(s, held, 1);
  m.fill(s, third, 3);
  m.gpu.synchronize(s);
  auto lease = std::optional{held.read(s)};
  std::size_t gathered = 0;
  int turn = 0;
  m.world->when_waiting([&] {
    if (++turn != 3) return;
    gathered = m.mem.count().tiers[0].reserved_bytes;
    lease.reset();
  });
  const auto r = m.mem.reserve(0, 12 * KiB, second_ns);
  m.world->when_waiting({});
  CHECK(gathered >= 8 * KiB);
  CHECK(r.size_bytes() == 12 * KiB);
  m.expect(s, idle, 2);
  m.expect(s, held, 1);
  m.expect(s, third, 3);
  m.gpu.synchronize(s);
  CHECK(m.world->violations().empty());
}

TEST_CASE("a reservation gives out its own bytes", "[runtime][reservation]") {
  machine m{1};
  auto r = m.mem.reserve(0, 4 * KiB, 0);
  auto* const base = static_cast<std::byte*>(r.data());
  void* const a = r.allocate(1000, 256);
  void* const b = r.allocate(1, 1024);
  CHECK(a == base);
  CHECK(reinterpret_cast<std::size_t>(b) % 1024 == 0);
  CHECK(static_cast<std::byte*>(b) >= base + 1000);
  CHECK(static_cast<std::byte*>(b) < base + r.size_bytes());
  CHECK(r.allocate(0, 1) == nullptr);
  CHECK_THROWS_AS(r.allocate(4096, 256), vtier::out_of_memory);
  CHECK_THROWS_AS(r.allocate(~std::size_t{0}, 4096), vtier::out_of_memory);
  CHECK_THROWS_AS(r.allocate(8, 3), vtier::usage_error);
  r.deallocate(a, 1000, 256);
  r.deallocate(b, 1, 1024);
  r.deallocate(nullptr, 0, 1);
  CHECK(r.free_bytes() == 4 * KiB);
  CHECK(r.allocate(4096, 256) == base);
  auto moved = std::move(r);
  CHECK(!r.valid());
  CHECK(r.data() == nullptr);
  CHECK_THROWS_AS(r.allocate(8, 8), vtier::usage_error);
  CHECK(moved.free_bytes() == 0);
  moved.release();
  moved.release();
  CHECK(m.mem.count().tiers[0].used_bytes == 0);
}

TEST_CASE("a reservation outlives the hierarchy object", "[runtime][reservation]") {
  vtier::host::device cpu;
  std::optional<vtier::hierarchy<vtier::host::device>::reservation> r;
  {
    vtier::hierarchy mem{vtier::hbm{cpu, {.budget = 64 * KiB}}, vtier::options{}};
    r.emplace(mem.reserve(0, 32 * KiB, second_ns));
  }
  static_cast<char*>(r->data())[32 * KiB - 1] = 1;
  r.reset();
}

TEST_CASE("callers that reserve, lease and make in any order all come to an end", "[runtime][reservation]") {
  std::size_t had = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    machine m{seed, {.hbm = 16 * KiB, .host = 24 * KiB}};
    vtier::random_source random{seed};
    const auto s = m.gpu.make_stream();
    std::vector<machine::bytes> tensors;
    for (std::uint64_t i = 0; i < 5; ++i) {
      tensors.push_back(m.make(4096));
      m.fill(s, tensors.back(), i);
    }
    std::vector<reservation> reserved;
    std::vector<machine::bytes::read_lease> leases;
    int depth = 0;
    int calls = 0;
    // Each caller acts while another waits, up to four of them in one another.
    const std::function<void()> caller = [&] {
      if (depth >= 4 || ++calls > 60) return;
      ++depth;
      try {
        switch (random.below(5)) {
          case 0:
          case 1:
            reserved.push_back(m.mem.reserve(random.below(2), (1 + random.below(9)) * KiB, 1'000'000));
            ++had;
            break;
          case 2: leases.push_back(tensors[random.below(5)].read(s)); break;
          case 3:
            if (!leases.empty()) leases.erase(leases.begin());
            break;
          default:
            if (!reserved.empty()) {
              auto gone = std::move(reserved.back());
              reserved.pop_back();
              gone.release(s);
            }
        }
      } catch (const vtier::out_of_memory&) {  // an answer, and that is what counts
      }
      --depth;
    };
    m.world->when_waiting(caller);
    for (int i = 0; i < 20; ++i) caller();
    m.world->when_waiting({});
    leases.clear();
    for (std::uint64_t i = 0; i < 5; ++i) m.expect(s, tensors[i], i);  // what is reserved took no promise away
    reserved.clear();
    m.gpu.synchronize(s);
    CAPTURE(seed);
    REQUIRE(m.world->violations().empty());
    REQUIRE(m.mem.broken_rules().empty());
  }
  CHECK(had > 1000);
}

TEST_CASE("threads that reserve and lease at once all come to an end", "[runtime][reservation]") {
  vtier::host::device cpu;
  vtier::options limits;
  limits.watermarks = {{0.75, 0.5}, {0.75, 0.5}};
  vtier::hierarchy mem{vtier::hbm{cpu, {.budget = 64 * KiB}}, vtier::pinned{{.budget = 256 * KiB}}, limits};
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> had{0};
  std::vector<std::thread> threads;
  for (std::uint64_t id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      const auto s = cpu.make_stream();
      auto t = mem.make_tensor<std::uint8_t>({8 * KiB}, vtier::role::parameter);
      vtier::test::fill(cpu, s, t, id);
      for (int i = 0; i < 200; ++i) {
        try {
          auto r = mem.reserve(0, (8 + 4 * id) * KiB, second_ns);
          ++had;
          cpu.fill(s, r.data(), std::byte{1}, r.size_bytes());
          try {
            if (i % 4 == 0 && vtier::test::differences(cpu, s, t, id) != 0) ++wrong;
          } catch (const vtier::out_of_memory&) {  // others have reserved what the lease needs
          }
          r.release(s);  // also then: the fill may still be running
        } catch (const vtier::out_of_memory&) {
        }
      }
      if (vtier::test::differences(cpu, s, t, id) != 0) ++wrong;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(had > 0);
  CHECK(mem.broken_rules().empty());
  CHECK(mem.count().tiers[0].reserved_bytes == 0);
}

namespace {

// A machine whose first two tiers have watermarks.
struct marked_machine {
  explicit marked_machine(std::uint64_t seed, std::vector<vtier::watermarks> marks, double clean_share = 0.0)
      : world{std::make_shared<vtier::sim::world>(vtier::sim::world_options{.seed = seed})},
        gpu{world, vtier::sim::device_options{16 * KiB, "gpu", {}, 16.0, 256.0, 2000.0, 5000.0}},
        nvme{world},
        mem{vtier::hbm{gpu, {.budget = 16 * KiB}}, vtier::pinned{gpu, {.budget = 24 * KiB}},
            vtier::sim::file{nvme, {.budget = 256 * KiB}}, limits(std::move(marks), clean_share)} {}
  static vtier::options limits(std::vector<vtier::watermarks> marks, double clean_share) {
    vtier::options o;
    o.progress_thread = false;
    o.staging_budget = 8192;
    o.chunk_bytes_max = 4096;
    o.clean_share = clean_share;
    o.watermarks = std::move(marks);
    return o;
  }
  machine::bytes filled(const vtier::sim::stream& s, std::uint64_t seed) {
    auto t = mem.make_tensor<std::uint8_t>({2048}, vtier::role::parameter);
    auto lease = t.write(s);
    gpu.launch(s, [w = world.get(), p = lease.data(), n = lease.size(), seed] {
      w->writes(p, n);
      for (std::size_t i = 0; i < n; ++i) p[i] = vtier::test::pattern(seed, i);
    });
    return t;
  }
  // Until nothing moves any more; says in how many rounds something did.
  std::size_t settle() {
    std::size_t moved = 0;
    for (int still = 0; still < 20;) {
      if (mem.poll()) {
        ++moved;
        still = 0;
      } else {
        ++still;
        gpu.pause(1'000'000);
      }
      if (moved > 1000) break;
    }
    return moved;
  }
  std::shared_ptr<vtier::sim::world> world;
  vtier::sim::device gpu;
  vtier::sim::drive nvme;
  machine::memory mem;
};

}  // namespace

TEST_CASE("above the high watermark idle tensors leave until the low one is reached", "[runtime][watermark]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const double clean_share : {0.0, 1.0}) {
      marked_machine m{seed, {{0.75, 0.5}, {0.5, 0.25}}, clean_share};
      const auto s = m.gpu.make_stream();
      std::vector<machine::bytes> tensors;
      for (std::uint64_t i = 0; i < 6; ++i) tensors.push_back(m.filled(s, i));  // 12 KiB: not above
      if (clean_share == 0.0) {
        CHECK(m.settle() == 0);
        CHECK(m.mem.count().evicted_ahead_bytes == 0);
      }
      tensors.push_back(m.filled(s, 6));
      const std::size_t rounds = m.settle();
      CHECK(rounds < 200);
      const auto counted = m.mem.count();
      CHECK(counted.tiers[0].used_bytes == 8 * KiB);
      CHECK(counted.tiers[1].used_bytes - counted.tiers[1].staging_bytes <= 8 * KiB);
      CHECK(counted.evicted_ahead_bytes >= 6 * KiB);
      CHECK(has(m.mem.report().text(), "ahead of need"));
      CHECK(m.settle() == 0);  // and there it stays
      CHECK(m.mem.count().evicted_ahead_bytes == counted.evicted_ahead_bytes);
      CHECK(m.mem.broken_rules().empty());
    }
  }
}

TEST_CASE("watermarks move no lease and no prefetch that waits for its use", "[runtime][watermark]") {
  marked_machine m{1, {{0.5, 0.25}}};
  const auto s = m.gpu.make_stream();
  std::vector<machine::bytes> tensors;
  for (std::uint64_t i = 0; i < 8; ++i) tensors.push_back(m.filled(s, i));
  m.settle();
  CHECK(m.mem.count().tiers[0].used_bytes == 4 * KiB);
  for (std::size_t i = 0; i < 4; ++i) m.mem.prefetch(tensors[i]);
  m.settle();
  std::vector<machine::bytes::read_lease> leases;
  for (std::size_t i = 4; i < 8; ++i) leases.push_back(tensors[i].read(s));
  m.settle();
  CHECK(m.mem.count().tiers[0].used_bytes == 16 * KiB);
  leases.clear();
  const auto hits = m.mem.count().prefetch_hit_count;
  for (std::size_t i = 0; i < 4; ++i) static_cast<void>(tensors[i].read(s));
  CHECK(m.mem.count().prefetch_hit_count == hits + 4);
  m.settle();
  CHECK(m.mem.count().tiers[0].used_bytes == 4 * KiB);
  m.gpu.synchronize(s);
}

TEST_CASE("watermarks are checked", "[runtime][watermark]") {
  CHECK_THROWS_AS(marked_machine(1, std::vector<vtier::watermarks>(4)), vtier::usage_error);
  CHECK_NOTHROW(marked_machine(1, std::vector<vtier::watermarks>(3)));
}
