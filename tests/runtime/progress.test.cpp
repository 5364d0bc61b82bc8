// SPDX-License-Identifier: Apache-2.0
#include <vtier/runtime/progress.hpp>

#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <vtier/core/notes.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

namespace {

using vtier::progress;
using vtier::progress_state;

void wait_until(const std::atomic<int>& count, int at_least) {
  for (int now = count.load(); now < at_least; now = count.load()) count.wait(now);
}

}  // namespace

TEST_CASE("the work is called by a thread of its own", "[runtime][progress]") {
  std::atomic<int> rounds{0};
  std::thread::id worker;
  {
    const progress thread{[&] {
                            worker = std::this_thread::get_id();
                            ++rounds;
                            rounds.notify_all();
                            return progress_state::idle;
                          },
                          {},
                          vtier::notes{}};
    wait_until(rounds, 1);
  }
  CHECK(worker != std::this_thread::get_id());
  CHECK(rounds >= 1);
}

TEST_CASE("while things move or are waited for, the work is called again without a wake", "[runtime][progress]") {
  for (const progress_state state : {progress_state::moved, progress_state::waiting}) {
    std::atomic<int> rounds{0};
    const progress thread{[&] {
                            ++rounds;
                            rounds.notify_all();
                            return state;
                          },
                          {},
                          vtier::notes{}};
    wait_until(rounds, 50);
    CHECK(rounds >= 50);
  }
}

// A wake that comes while the work is running must not be lost: this would hang.
TEST_CASE("every wake is followed by a round that begins after it", "[runtime][progress]") {
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  progress thread{[&] {
                    seen = asked.load();
                    seen.notify_all();
                    return progress_state::idle;
                  },
                  {},
                  vtier::notes{}};
  for (int i = 1; i <= 2'000; ++i) {
    asked = i;
    thread.wake();
    if (i % 3 == 0) wait_until(seen, i);
  }
  wait_until(seen, 2'000);
  CHECK(seen == 2'000);
}

TEST_CASE("wakes may come from several threads", "[runtime][progress]") {
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  progress thread{[&] {
                    seen = asked.load();
                    seen.notify_all();
                    return progress_state::idle;
                  },
                  {},
                  vtier::notes{}};
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        ++asked;
        thread.wake();
      }
    });
  }
  for (auto& caller : callers) caller.join();
  wait_until(seen, 1'500);
  CHECK(seen == 1'500);
}

TEST_CASE("what the work holds is gone when the thread is", "[runtime][progress]") {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  {
    const progress thread{[held = std::move(held)] { return progress_state::idle; }, {}, vtier::notes{}};
  }
  CHECK(watched.expired());
}

TEST_CASE("CPUs that are not there leave the thread unbound, with a note", "[runtime][progress]") {
  const vtier::notes remarks;
  std::atomic<int> rounds{0};
  const progress thread{[&] {
                          ++rounds;
                          rounds.notify_all();
                          return progress_state::idle;
                        },
                        {1'000'000},
                        remarks};
  wait_until(rounds, 1);
  REQUIRE(remarks.list().size() == 1);
  CHECK(remarks.list()[0].find("unbound") != std::string::npos);
}

TEST_CASE("a forked child, which has no such thread, can wake it and destroy its copy (VO-C07)",
          "[runtime][progress]") {
  std::atomic<int> rounds{0};
  auto thread = std::make_unique<progress>(
      [&] {
        ++rounds;
        rounds.notify_all();
        return progress_state::idle;  // the thread waits on its condition at the fork, as a rule
      },
      std::vector<unsigned>{}, vtier::notes{});
  wait_until(rounds, 1);
  const auto end = vtier::test::in_child([&] {
    ::alarm(60);
    for (int i = 0; i < 1000; ++i) thread->wake();
    const bool unbound = thread->bound().empty();
    thread.reset();
    return unbound;
  });
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  const int before = rounds;
  thread->wake();
  wait_until(rounds, before + 1);
  CHECK(rounds > before);
}
