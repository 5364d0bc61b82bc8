// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/threads.hpp>

#include <atomic>
#include <memory>

#include "contract/file_engine.hpp"
#include "io/child.hpp"
#include "support/catch.hpp"

using vtier::file_completion;
using vtier::file_operation;
using vtier::io::engine_options;
using vtier::io::threads;

TEST_CASE("threads: the contract of file engines") {
  vtier::test::check_file_engine([](const engine_options& limits) { return threads{limits}; });
}

TEST_CASE("threads: one thread is enough") {
  vtier::test::check_file_engine([](engine_options limits) {
    limits.thread_count = 1;
    return threads{limits};
  });
}

namespace {

// Calls that are interrupted twice before each success, and move at most 100 bytes.
struct interrupted_calls {
  struct counts {
    std::atomic<int> calls = 0;
    std::atomic<int> handled = 0;
  };
  std::shared_ptr<counts> seen = std::make_shared<counts>();

  std::int64_t pread(int, std::byte* target, std::size_t size, std::size_t) const {
    if (++seen->calls % 3 != 0) return -EINTR;
    const std::size_t moved = (std::min)(size, std::size_t{100});
    std::fill_n(target, moved, std::byte{7});
    return static_cast<std::int64_t>(moved);
  }
  std::int64_t pwrite(int, const std::byte*, std::size_t, std::size_t) const { return -ENOSPC; }
};

}  // namespace

TEST_CASE("threads: EINTR is retried inside, short transfers and errors are not (VO-B05)") {
  const interrupted_calls calls;
  engine_options limits;
  limits.thread_count = 1;
  vtier::io::basic_threads<interrupted_calls> engine{limits, calls};
  const vtier::test::page_bytes memory{4096};
  CHECK(vtier::test::result_of(engine, {0, file_operation::read, 0, memory.span(), 1}) == 100);
  CHECK(calls.seen->calls == 3);
  CHECK(memory.data()[99] == std::byte{7});
  CHECK(memory.data()[100] == std::byte{0});
  CHECK(vtier::test::result_of(engine, {0, file_operation::write, 0, memory.span(), 2}) == -ENOSPC);
}

TEST_CASE("threads: workers run none of the program's signal handlers") {
  // The signal stays pending in the process where every thread blocks it: here the only other thread does.
  const std::string answer = vtier::test::in_child([]() -> std::string {
    ::sigset_t alarm;
    ::sigemptyset(&alarm);
    ::sigaddset(&alarm, SIGALRM);
    threads engine;
    ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    ::kill(::getpid(), SIGALRM);  // deadly where a worker takes it
    ::sigset_t pending;
    ::sigpending(&pending);
    return ::sigismember(&pending, SIGALRM) == 1 ? "pending" : "taken";
  });
  CHECK(answer == "pending");
}

TEST_CASE("threads: a forked child can destroy its copy") {
  const vtier::test::page_bytes memory{4096};
  auto engine = std::make_unique<threads>();
  const std::string answer = vtier::test::in_child([&]() -> std::string {
    engine.reset();
    return "gone";
  });
  CHECK(answer == "gone");
  CHECK(vtier::test::result_of(*engine, {-1, file_operation::read, 0, memory.span(), 1}) == -EBADF);
}

TEST_CASE("threads: too many threads for the system is an explained error") {
  const std::string answer = vtier::test::in_child([]() -> std::string {
    const ::rlimit few{3, 3};
    if (::setrlimit(RLIMIT_NPROC, &few) != 0) return vtier::test::cannot_run + "setrlimit";
    vtier::test::become_ordinary_user();
    engine_options many;
    many.thread_count = 64;
    try {
      const threads engine{many};
    } catch (const vtier::io_error& e) {
      vtier::test::need(e.code().value() == EAGAIN, "code is EAGAIN");
      vtier::test::need(std::string(e.what()).find("thread_count") != std::string::npos, e.what());
      return "explained";
    }
    return vtier::test::cannot_run + "the limit does not bind";
  });
  if (answer.starts_with(vtier::test::cannot_run)) {
    WARN(answer);
  } else {
    CHECK(answer == "explained");
  }
}

TEST_CASE("threads: a call in a forked child is refused, and takes nothing from the parent (VO-C07)") {
  const vtier::test::page_bytes memory{4096};
  const vtier::test::scratch_directory place;
  const auto file = vtier::io::scratch_file::create(place.path());
  threads engine;
  REQUIRE(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 4}));
  const std::string answer = vtier::test::in_child([&]() -> std::string {
    ::alarm(60);
    std::array<file_completion, 2> completions;
    for (int i = 0; i < 100; ++i) {
      engine.wait(1'000'000);
      vtier::test::need(engine.reap(completions) == 0, "the parent's completion was taken");
    }
    try {
      static_cast<void>(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 5}));
    } catch (const vtier::usage_error& e) {
      return std::string{e.what()}.find("forked") != std::string::npos ? "refused" : e.what();
    }
    return "accepted";
  });
  CHECK(answer == "refused");
  std::array<file_completion, 2> completions;
  engine.wait(vtier::test::long_wait_ns);
  REQUIRE(engine.reap(completions) == 1);
  CHECK(completions[0].tag == 4);
  CHECK(completions[0].result == 4096);
}
