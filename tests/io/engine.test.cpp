// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/engine.hpp>

#include <cerrno>
#include <string>
#include <type_traits>

#include "contract/file_engine.hpp"
#include "io/child.hpp"
#include "support/catch.hpp"

using vtier::file_operation;
using vtier::io::engine;
using vtier::io::engine_kind;
using vtier::io::engine_options;
using vtier::io::make_engine;

static_assert(!std::is_copy_constructible_v<engine>);
static_assert(std::is_nothrow_move_constructible_v<engine>);
static_assert(!std::is_convertible_v<int, engine>);
static_assert(!std::is_constructible_v<engine, int>);

namespace {

// A set-up of io_uring that fails.
struct refusing_ring {
  int error_number;
  engine operator()(const engine_options&, const vtier::notes&) const {
    throw vtier::io_error(error_number, "io_uring cannot be set up (" + vtier::io::detail::errno_name(error_number) +
                                            "): a test says so");
  }
};

// A ring that is none, to see who was asked.
struct counting_engine {
  bool try_submit(const vtier::file_request&) { return false; }
  std::size_t reap(std::span<vtier::file_completion>) { return 0; }
  void wait(std::int64_t) {}
  bool register_buffers(std::span<const std::span<std::byte>>) { return true; }
  std::size_t in_flight() const { return 3; }
  std::size_t depth_max() const { return 17; }
  std::string_view name() const { return "counting"; }
};

}  // namespace

TEST_CASE("engine: the contract of file engines, automatic and threads") {
  vtier::notes remarks;
  vtier::test::check_file_engine(
      [&](const engine_options& limits) { return make_engine(engine_kind::automatic, limits, remarks); });
}

TEST_CASE("engine: takes any file engine and hands every call on") {
  engine any{counting_engine{}};
  CHECK_FALSE(any.try_submit({}));
  CHECK(any.register_buffers({}));
  CHECK(any.in_flight() == 3);
  CHECK(any.depth_max() == 17);
  CHECK(any.name() == "counting");
}

TEST_CASE("engine: automatic falls back to threads with one note (VO-B06)") {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    vtier::notes remarks;
    for (int again = 0; again < 3; ++again) {
      engine made = make_engine(engine_kind::automatic, {}, remarks, refusing_ring{error});
      CHECK(made.name() == "threads");
      const vtier::test::page_bytes memory{4096};
      CHECK(vtier::test::result_of(made, {-1, file_operation::read, 0, memory.span(), 1}) == -EBADF);
    }
    REQUIRE(remarks.list().size() == 1);
    const std::string note = remarks.list().front();
    CHECK(note.find(vtier::io::detail::errno_name(error)) != std::string::npos);
    CHECK(note.find("4 threads") != std::string::npos);
    CHECK(note.find("a test says so") != std::string::npos);
  }
}

TEST_CASE("engine: io_uring asked for and refused is an error with that errno") {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    vtier::notes remarks;
    try {
      const engine made = make_engine(engine_kind::uring, {}, remarks, refusing_ring{error});
      CHECK(false);
    } catch (const vtier::io_error& e) {
      CHECK(e.code().value() == error);
    }
    CHECK(remarks.list().empty());
  }
}

TEST_CASE("engine: mistakes in limits are not covered by the fallback") {
  vtier::notes remarks;
  engine_options none;
  none.depth_max = 0;
  for (const auto kind : {engine_kind::automatic, engine_kind::uring, engine_kind::threads}) {
    if (kind == engine_kind::uring && VTIER_HAS_URING == 0) continue;
    CHECK_THROWS_AS(make_engine(kind, none, remarks), vtier::usage_error);
  }
}

TEST_CASE("engine: threads asked for are threads, without a note") {
  vtier::notes remarks;
  const engine made = make_engine(engine_kind::threads, {}, remarks);
  CHECK(made.name() == "threads");
  CHECK(remarks.list().empty());
}

TEST_CASE("engine: what was built in decides what automatic can be") {
  vtier::notes remarks;
  const engine made = make_engine(engine_kind::automatic, {}, remarks);
#if VTIER_HAS_URING
  if (made.name() == "threads") WARN("no io_uring here: " + remarks.list().front());
  CHECK(remarks.list().size() == (made.name() == "threads" ? 1U : 0U));
#else
  CHECK(made.name() == "threads");
  REQUIRE(remarks.list().size() == 1);
  CHECK(remarks.list().front().find("ENOSYS") != std::string::npos);
  try {
    const engine ring = make_engine(engine_kind::uring, {}, remarks);
    CHECK(false);
  } catch (const vtier::io_error& e) {
    CHECK(e.code().value() == ENOSYS);
    CHECK(std::string(e.what()).find("liburing") != std::string::npos);
  }
#endif
}

#if VTIER_HAS_URING && defined(SYS_io_uring_setup)
TEST_CASE("engine: under a container's seccomp profile the data go through threads (VO-B06)") {
  for (const int error : {EPERM, ENOSYS}) {
    const std::string answer = vtier::test::in_child([&]() -> std::string {
      using vtier::test::need;
      if (!vtier::test::forbid(SYS_io_uring_setup, error)) return vtier::test::cannot_run + "no seccomp filters";
      vtier::notes remarks;
      engine made = make_engine(engine_kind::automatic, {}, remarks);
      need(made.name() == "threads", "falls back");
      need(remarks.list().size() == 1, "one note");
      need(remarks.list().front().find(vtier::io::detail::errno_name(error)) != std::string::npos,
           remarks.list().front());
      const vtier::test::scratch_directory place;
      const auto file = vtier::io::scratch_file::create(place.path());
      const vtier::test::page_bytes memory{8192};
      vtier::test::fill_bytes(memory.span(), 4);
      std::array<vtier::file_completion, 1> completions;
      for (const auto operation : {file_operation::write, file_operation::read}) {
        need(made.try_submit({file.descriptor(), operation, 0, memory.span(), 1}), "submit");
        made.wait(vtier::test::long_wait_ns);
        need(made.reap(completions) == 1 && completions[0].result == 8192, "moved");
        if (operation == file_operation::write) std::fill_n(memory.data(), 8192, std::byte{});
      }
      need(vtier::test::count_wrong(memory.span(), 4) == 0, "data right");
      try {
        const engine ring = make_engine(engine_kind::uring, {}, remarks);
      } catch (const vtier::io_error& e) {
        need(e.code().value() == error, "code() is the errno");
        return "works";
      }
      return "no error";
    });
    if (answer.starts_with(vtier::test::cannot_run)) {
      WARN(answer);
    } else {
      CHECK(answer == "works");
    }
  }
}
#endif
