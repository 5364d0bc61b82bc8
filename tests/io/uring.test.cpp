// SPDX-License-Identifier: Apache-2.0

#include <vtier/core/config.hpp>

#if VTIER_HAS_URING

#include <vtier/io/uring.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "contract/file_engine.hpp"
#include "io/child.hpp"
#include "support/catch.hpp"

using vtier::file_completion;
using vtier::file_operation;
using vtier::io::basic_uring;
using vtier::io::engine_options;
using vtier::io::uring;
using vtier::test::fill_bytes;
using vtier::test::page_bytes;
using namespace vtier::literals;

namespace {

bool rings_work() {
  try {
    const uring engine;
    return true;
  } catch (const vtier::io_error& e) {
    WARN(std::string("skipped: ") + e.what());
    return false;
  }
}

// liburing, but for results that the script wants instead.
struct scripted_ring : vtier::io::detail::uring_system {
  struct script {
    int set_up = 0;
    int register_buffers = 0;
    std::deque<int> submits;            // taken from the front; 0: the real call
    std::deque<int> waits;              // likewise
    std::function<void()> after_waits;  // once, when the last of these was taken
    int real_submits = 0;
    std::size_t regions = 0;
  };
  std::shared_ptr<script> told = std::make_shared<script>();

  int set_up(unsigned entries, ::io_uring& ring, ::io_uring_params& params) const {
    return told->set_up != 0 ? told->set_up : uring_system::set_up(entries, ring, params);
  }
  int submit(::io_uring& ring) const {
    if (!told->submits.empty()) {
      const int result = told->submits.front();
      told->submits.pop_front();
      if (result != 0) return result;
    }
    ++told->real_submits;
    return uring_system::submit(ring);
  }
  int wait(::io_uring& ring, std::int64_t timeout_ns) const {
    if (told->waits.empty()) {
      if (const auto then = std::exchange(told->after_waits, nullptr)) then();
      return uring_system::wait(ring, timeout_ns);
    }
    const int result = told->waits.front();
    told->waits.pop_front();
    return result != 0 ? result : uring_system::wait(ring, timeout_ns);
  }
  int register_buffers(::io_uring& ring, std::span<const ::iovec> buffers) const {
    told->regions = buffers.size();
    return told->register_buffers != 0 ? told->register_buffers : uring_system::register_buffers(ring, buffers);
  }
};
using scripted_uring = basic_uring<scripted_ring>;

std::string text(const vtier::notes& remarks) {
  std::string all;
  for (const std::string& remark : remarks.list()) all += remark + "\n";
  return all;
}

}  // namespace

TEST_CASE("uring: the contract of file engines") {
  if (!rings_work()) return;
  vtier::test::check_file_engine([](const engine_options& limits) { return uring{limits}; });
}

TEST_CASE("uring: a refused set-up is an io_error with that errno (VO-B06)") {
  for (const int error : {EPERM, ENOSYS, ENOMEM, EMFILE, EINVAL}) {
    scripted_ring system;
    system.told->set_up = -error;
    errno = 0;
    try {
      const scripted_uring engine{engine_options{}, {}, system};
      CHECK(false);
    } catch (const vtier::io_error& e) {
      CHECK(e.code().value() == error);
      CHECK(std::string(e.what()).find(vtier::io::detail::errno_name(error)) != std::string::npos);
      if (error == EPERM) CHECK(std::string(e.what()).find("kernel.io_uring_disabled") != std::string::npos);
    }
  }
}

TEST_CASE("uring: a kernel that takes no more just now loses and doubles nothing (VO-B12)") {
  if (!rings_work()) return;
  const vtier::test::scratch_directory place;
  const auto file = vtier::io::scratch_file::create(place.path());
  const page_bytes memory{8 * 4096};
  for (const int refusal : {-EBUSY, -EAGAIN, -ENOMEM}) {
    scripted_ring system;
    scripted_uring engine{engine_options{}, {}, system};
    std::array<file_completion, 16> completions;
    const auto request = [&](std::uint64_t tag) {
      return vtier::file_request{file.descriptor(), file_operation::write, tag * 4096,
                                 memory.span().subspan(tag * 4096, 4096), tag};
    };
    for (std::uint64_t tag = 0; tag < 3; ++tag) REQUIRE(engine.try_submit(request(tag)));
    // The fourth is accepted and kept; no fifth before the kernel has it.
    system.told->submits = {refusal, refusal, refusal, -EINTR, refusal};
    CHECK(engine.try_submit(request(3)));
    CHECK(engine.in_flight() == 4);
    CHECK_FALSE(engine.try_submit(request(4)));
    CHECK_FALSE(engine.try_submit(request(4)));
    CHECK(engine.in_flight() == 4);
    CHECK_FALSE(engine.try_submit(request(4)));
    REQUIRE(system.told->submits.empty());
    std::vector<int> seen(8, 0);
    bool fifth = false;
    while (engine.in_flight() > 0 || !fifth) {
      if (!fifth) fifth = engine.try_submit(request(4));
      engine.wait(vtier::test::long_wait_ns);
      const std::size_t got = engine.reap(completions);
      for (std::size_t i = 0; i < got; ++i) {
        ++seen[completions[i].tag];
        CHECK(completions[i].result == 4096);
      }
    }
    CHECK(seen == std::vector<int>{1, 1, 1, 1, 1, 0, 0, 0});
    CHECK(system.told->real_submits == 5);
  }
}

namespace {

// A pipe: a read of it goes on until the test writes.
struct pipe_ends {
  pipe_ends() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
  pipe_ends(const pipe_ends&) = delete;
  pipe_ends& operator=(const pipe_ends&) = delete;
  ~pipe_ends() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void write(std::byte value) const { REQUIRE(::write(ends[1], &value, 1) == 1); }
  int ends[2] = {-1, -1};
};

}  // namespace

TEST_CASE("uring: an interrupted wait goes on, and half of the completions is not all of them (VO-B05)") {
  if (!rings_work()) return;
  constexpr std::size_t count = 8;
  const std::vector<pipe_ends> pipes(count);
  const page_bytes memory{count};
  std::fill_n(memory.data(), count, std::byte{});
  scripted_ring system;
  {
    scripted_uring engine{engine_options{}, {}, system};
    for (std::uint64_t i = 0; i < count; ++i) {
      REQUIRE(engine.try_submit({pipes[i].ends[0], file_operation::read, 0, memory.span().subspan(i, 1), i}));
    }
    system.told->waits = {-EINTR, -EINTR, -EINTR};
    system.told->after_waits = [&] {
      for (std::size_t i = 0; i < count / 2; ++i) pipes[i].write(std::byte{1});
    };
    std::array<file_completion, 16> completions;
    std::size_t reaped = 0;
    while (reaped < count / 2) {
      engine.wait(vtier::test::long_wait_ns);
      const std::size_t got = engine.reap(completions);
      REQUIRE(got > 0);  // no interruption ends a wait
      for (std::size_t i = 0; i < got; ++i) {
        CHECK(completions[i].tag < count / 2);
        CHECK(completions[i].result == 1);
      }
      reaped += got;
    }
    CHECK(engine.in_flight() == count / 2);  // their memory is not free yet
    // Destruction: interrupted more often than it has patience for a drive that is silent, and nothing is cut short.
    system.told->waits.assign(1000, -EINTR);
    system.told->after_waits = [&] {
      for (std::size_t i = count / 2; i < count; ++i) pipes[i].write(std::byte{1});
    };
  }
  CHECK(std::count(memory.data(), memory.data() + count, std::byte{1}) == count);
}

TEST_CASE("uring: destruction hands over what the kernel refused for long (VO-B12)") {
  if (!rings_work()) return;
  const vtier::test::scratch_directory place;
  const auto file = vtier::io::scratch_file::create(place.path());
  const page_bytes memory{4096};
  fill_bytes(memory.span(), 5);
  {
    scripted_ring system;
    scripted_uring engine{engine_options{}, {}, system};
    system.told->submits.assign(20, -EBUSY);
    REQUIRE(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 1}));
  }
  const page_bytes back{4096};
  uring engine;
  CHECK(vtier::test::result_of(engine, {file.descriptor(), file_operation::read, 0, back.span(), 2}) == 4096);
  CHECK(vtier::test::count_wrong(back.span(), 5) == 0);
}

TEST_CASE("uring: waiting alone hands over what the kernel refused") {
  if (!rings_work()) return;
  const vtier::test::scratch_directory place;
  const auto file = vtier::io::scratch_file::create(place.path());
  const page_bytes memory{4096};
  scripted_ring system;
  scripted_uring engine{engine_options{}, {}, system};
  system.told->submits = {-EBUSY, -EBUSY, -EBUSY};
  REQUIRE(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 1}));
  engine.wait(vtier::test::long_wait_ns);
  std::array<file_completion, 2> completions;
  CHECK(engine.reap(completions) == 1);
  CHECK(completions[0].result == 4096);

  SECTION("and destruction does, too") {
    fill_bytes(memory.span(), 5);
    {
      scripted_uring second{engine_options{}, {}, system};
      system.told->submits = {-EBUSY};
      REQUIRE(second.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 1}));
    }
    const page_bytes back{4096};
    CHECK(vtier::test::result_of(engine, {file.descriptor(), file_operation::read, 0, back.span(), 2}) == 4096);
    CHECK(vtier::test::count_wrong(back.span(), 5) == 0);
  }
}

TEST_CASE("uring: a broken ring throws, and accounts for what it had accepted") {
  if (!rings_work()) return;
  const page_bytes memory{4096};
  scripted_ring system;
  scripted_uring engine{engine_options{}, {}, system};
  std::array<file_completion, 2> completions;
  SECTION("at the request itself: not accepted") {
    system.told->submits = {-EBADF};
    CHECK_THROWS_AS(engine.try_submit({-1, file_operation::read, 0, memory.span(), 1}), vtier::io_error);
    CHECK(engine.in_flight() == 0);
    CHECK(engine.reap(completions) == 0);
  }
  SECTION("after one was kept: it completes with the errno") {
    system.told->submits = {-EBUSY, -EBADF};
    REQUIRE(engine.try_submit({-1, file_operation::read, 0, memory.span(), 6}));
    CHECK_THROWS_AS(engine.try_submit({-1, file_operation::read, 0, memory.span(), 7}), vtier::io_error);
    CHECK(engine.in_flight() == 1);
    engine.wait(vtier::test::long_wait_ns);
    REQUIRE(engine.reap(completions) == 1);
    CHECK(completions[0].tag == 6);
    CHECK(completions[0].result == -EBADF);
    CHECK(engine.in_flight() == 0);
  }
  CHECK(system.told->real_submits == 0);
}

TEST_CASE("uring: registered memory is used where a request lies wholly inside it") {
  if (!rings_work()) return;
  const vtier::test::scratch_directory place;
  auto file = vtier::io::scratch_file::create(place.path());
  file.reserve(0, 1_MiB);
  vtier::notes remarks;
  uring engine{engine_options{}, remarks};
  const page_bytes memory{64_KiB};
  // Two regions that are neighbours, given out of order, and a hole after them.
  const std::array<std::span<std::byte>, 3> spans{memory.span().subspan(16_KiB, 16_KiB), memory.span().first(16_KiB),
                                                  std::span<std::byte>{}};
  const bool registered = engine.register_buffers(spans);
  if (!registered) WARN("not registered here: " + text(remarks));
  fill_bytes(memory.span(), 8);
  std::uint64_t tag = 0;
  // First, last, across the border of two regions, across the end, outside.
  for (const std::size_t at : {0_KiB, 12_KiB, 14_KiB, 28_KiB, 30_KiB, 40_KiB}) {
    CAPTURE(at);
    CHECK(vtier::test::result_of(
              engine, {file.descriptor(), file_operation::write, at, memory.span().subspan(at, 4096), ++tag}) == 4096);
  }
  const page_bytes back{64_KiB};
  CHECK(vtier::test::result_of(engine, {file.descriptor(), file_operation::read, 0, back.span(), 1}) == 64 * 1024);
  for (const std::size_t at : {0_KiB, 12_KiB, 14_KiB, 28_KiB, 30_KiB, 40_KiB}) {
    CHECK(std::equal(back.data() + at, back.data() + at + 4096, memory.data() + at));
  }
  // Other memory in their place, then none.
  const std::array<std::span<std::byte>, 1> other{back.span()};
  CHECK(engine.register_buffers(other) == registered);
  CHECK(vtier::test::result_of(engine, {file.descriptor(), file_operation::read, 0, back.span().first(8_KiB), 1}) ==
        8192);
  CHECK(engine.register_buffers({}));
  CHECK(vtier::test::result_of(engine, {file.descriptor(), file_operation::read, 0, back.span().first(8_KiB), 1}) ==
        8192);
}

TEST_CASE("uring: memory of more than 1 GiB is registered in pieces") {
  if (!rings_work()) return;
  scripted_ring system;
  system.told->register_buffers = -ENOMEM;  // the pieces are looked at, not registered
  scripted_uring engine{engine_options{}, {}, system};
  void* const address = ::mmap(nullptr, 3_GiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(address != MAP_FAILED);
  const std::array<std::span<std::byte>, 1> spans{std::span<std::byte>{static_cast<std::byte*>(address), 2_GiB + 1}};
  CHECK_FALSE(engine.register_buffers(spans));
  CHECK(system.told->regions == 3);
  ::munmap(address, 3_GiB);
}

TEST_CASE("uring: the locked memory limit is said once, and work goes on unregistered (VO-C03)") {
  if (!rings_work()) return;
  SECTION("as told by a script") {
    scripted_ring system;
    system.told->register_buffers = -ENOMEM;
    vtier::notes remarks;
    scripted_uring engine{engine_options{}, remarks, system};
    const page_bytes memory{4096};
    const std::array<std::span<std::byte>, 1> spans{memory.span()};
    CHECK_FALSE(engine.register_buffers(spans));
    CHECK_FALSE(engine.register_buffers(spans));
    CHECK(remarks.list().size() == 1);
    CHECK(text(remarks).find("ENOMEM") != std::string::npos);
    CHECK(text(remarks).find("wanted 4 KiB") != std::string::npos);
    CHECK(vtier::test::result_of(engine, {-1, file_operation::read, 0, memory.span(), 1}) == -EBADF);
  }
  SECTION("as an ordinary user") {
    const vtier::test::scratch_directory place;
    for (const ::rlim_t limit_bytes : {::rlim_t{0}, ::rlim_t{65536}, ::rlim_t{8} << 20U}) {
      const std::string answer = vtier::test::in_child([&]() -> std::string {
        const ::rlimit limit{limit_bytes, limit_bytes};
        vtier::test::need(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
        const auto file = vtier::io::scratch_file::create(place.path());
        vtier::test::become_ordinary_user();
        vtier::notes remarks;
        std::unique_ptr<uring> made;
        try {
          made = std::make_unique<uring>(engine_options{}, remarks);
        } catch (const vtier::io_error& e) {  // some kernels count the ring itself
          vtier::test::need(e.code().value() == ENOMEM, e.what());
          vtier::test::need(std::string(e.what()).find("locked memory limit of " + vtier::format_bytes(limit_bytes)) !=
                                std::string::npos,
                            e.what());
          return limit_bytes == 0 ? "works" : e.what();
        }
        uring& engine = *made;
        const page_bytes memory{64_MiB};
        const std::array<std::span<std::byte>, 1> spans{memory.span()};
        vtier::test::need(!engine.register_buffers(spans), "64 MiB are more than the limit");
        const std::string said = text(remarks);
        vtier::test::need(said.find("ENOMEM") != std::string::npos, said);
        const std::string told = "wanted 64 MiB, more than the locked memory limit of ";
        vtier::test::need(said.find(told + vtier::format_bytes(limit_bytes)) != std::string::npos, said);
        const std::span<std::byte> first = memory.span().first(1_MiB);
        vtier::test::need(engine.try_submit({file.descriptor(), file_operation::write, 0, first, 1}), "submit");
        engine.wait(vtier::test::long_wait_ns);
        std::array<file_completion, 1> completions;
        vtier::test::need(engine.reap(completions) == 1 && completions[0].result == 1024 * 1024, "written");
        return "works";
      });
      CAPTURE(limit_bytes);
      CHECK(answer == "works");
    }
  }
}

TEST_CASE("uring: members are called from several threads, one at a time") {
  if (!rings_work()) return;
  const vtier::test::scratch_directory place;
  auto file = vtier::io::scratch_file::create(place.path());
  file.reserve(0, 1_MiB);
  const page_bytes memory{1_MiB};
  std::unique_ptr<uring> engine;
  std::thread{[&] { engine = std::make_unique<uring>(); }}.join();
  for (std::uint64_t tag = 0; tag < 16; ++tag) {
    std::thread{[&] {
      // The thread that submits is gone before its completion is reaped.
      const std::size_t at = tag * 64_KiB;
      engine->try_submit({file.descriptor(), file_operation::write, at, memory.span().subspan(at, 64_KiB), tag});
    }}.join();
  }
  CHECK(engine->in_flight() == 16);
  std::array<file_completion, 16> completions;
  while (engine->in_flight() > 0) {
    std::thread{[&] { engine->wait(vtier::test::long_wait_ns); }}.join();
    const std::size_t got = engine->reap(completions);
    for (std::size_t i = 0; i < got; ++i) CHECK(completions[i].result == 64 * 1024);
  }
}

TEST_CASE("uring: a forked child can destroy its copy") {
  if (!rings_work()) return;
  const page_bytes memory{4096};
  const std::array<std::span<std::byte>, 1> spans{memory.span()};
  auto engine = std::make_unique<uring>();
  engine->register_buffers(spans);
  const vtier::test::scratch_directory place;
  const auto file = vtier::io::scratch_file::create(place.path());
  REQUIRE(engine->try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 4}));
  const std::string answer = vtier::test::in_child([&]() -> std::string {
    engine.reset();
    return "gone";
  });
  CHECK(answer == "gone");
  engine->wait(vtier::test::long_wait_ns);
  std::array<file_completion, 2> completions;
  REQUIRE(engine->reap(completions) == 1);
  CHECK(completions[0].result == 4096);
  CHECK(vtier::test::result_of(*engine, {file.descriptor(), file_operation::read, 0, memory.span(), 1}) == 4096);
}

TEST_CASE("uring: a call in a forked child is refused, and takes nothing from the parent (VO-C07)") {
  if (!rings_work()) return;
  const vtier::test::page_bytes memory{4096};
  const vtier::test::scratch_directory place;
  const auto file = vtier::io::scratch_file::create(place.path());
  uring engine;
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

#endif  // VTIER_HAS_URING
