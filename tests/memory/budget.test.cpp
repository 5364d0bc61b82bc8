// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/budget.hpp>

#include <atomic>
#include <cstddef>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

using vtier::budget;

TEST_CASE("a budget counts to its limit and no further", "[memory][budget]") {
  budget b{"tier", 100};
  CHECK(b.name() == "tier");
  CHECK(b.limit_bytes() == 100);
  CHECK(b.try_take(60));
  CHECK_FALSE(b.try_take(41));
  CHECK(b.used_bytes() == 60);
  CHECK(b.try_take(40));
  CHECK(b.try_take(0));
  CHECK_FALSE(b.try_take(1));
  b.give_back(70);
  CHECK(b.free_bytes() == 70);
  CHECK(b.peak_bytes() == 100);
  CHECK_FALSE(b.try_take((std::numeric_limits<std::size_t>::max)()));  // used + asked would wrap
  CHECK(b.used_bytes() == 30);
}

TEST_CASE("a refusal names the budget, what was asked and what is free", "[memory][budget]") {
  budget b{"hbm", 4096};
  b.take(1024);
  try {
    b.take(8192);
    FAIL("more than the limit was given");
  } catch (const vtier::out_of_memory& e) {
    CHECK(e.tier() == "hbm");
    CHECK(e.asked_bytes() == 8192);
    CHECK(e.free_bytes() == 3072);
    const std::string text = e.what();
    for (const char* part : {"hbm", "8 KiB", "3 KiB", "4 KiB"}) {
      CAPTURE(text, part);
      CHECK(text.find(part) != std::string::npos);
    }
  }
  CHECK(b.used_bytes() == 1024);
}

TEST_CASE("the rest can be taken at once", "[memory][budget]") {
  budget b{"tier", 100};
  b.take(30);
  CHECK(b.take_rest() == 70);
  CHECK(b.take_rest() == 0);
  CHECK(b.peak_bytes() == 100);
  b.give_back(70);
  CHECK(b.used_bytes() == 30);
}

TEST_CASE("threads together never pass the limit", "[memory][budget]") {
  constexpr std::size_t limit = 1'000;
  budget b{"tier", limit};
  std::atomic<std::size_t> held{0};
  std::atomic<bool> passed{false};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      vtier::random_source random{t};
      for (int i = 0; i < 5'000; ++i) {
        const std::size_t size = random.below(500);
        if (!b.try_take(size)) continue;
        if (held.fetch_add(size) + size > limit) passed = true;
        if (b.used_bytes() > limit) passed = true;
        held.fetch_sub(size);
        b.give_back(size);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(passed);
  CHECK(b.used_bytes() == 0);
  CHECK(b.peak_bytes() <= limit);
}

TEST_CASE("giving back what was not taken is a programmer's error", "[memory][budget]") {
  budget b{"tier", 100};
  b.take(10);
  CHECK(vtier::test::in_child([&] { b.give_back(11); }).asserted("more bytes were given back"));
}
