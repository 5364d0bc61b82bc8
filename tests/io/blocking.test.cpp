// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/blocking.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <string>

#include <vtier/io/engine.hpp>

#include "contract/file_engine.hpp"
#include "support/catch.hpp"
#include "support/scripted_engine.hpp"

using vtier::file_operation;
using vtier::io::blocking_options;
using vtier::io::engine_kind;
using vtier::io::engine_options;
using vtier::io::read_exact;
using vtier::io::write_exact;
using vtier::test::engine_script;
using vtier::test::page_bytes;
using vtier::test::scripted_engine;
using namespace vtier::literals;

namespace {

constexpr bool under_thread_sanitizer =
#if defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

// An engine whose results are written down beforehand: moves as many bytes of `file` as the script's next entry says.
class told_engine {
 public:
  std::vector<std::byte> file = std::vector<std::byte>(64 * 1024);
  std::deque<std::int64_t> results;           // for requests in order; none left: all that was asked
  std::vector<vtier::file_completion> stale;  // handed out first
  std::vector<vtier::file_request> requests;
  bool last_first = false;
  bool refuses = false;

  bool try_submit(const vtier::file_request& request) {
    if (refuses || flying_.size() == depth_max()) return false;
    requests.push_back(request);
    std::int64_t result = static_cast<std::int64_t>(request.memory.size());
    if (!results.empty()) {
      result = results.front();
      results.pop_front();
    }
    if (result > 0 && request.operation == file_operation::read) {
      std::copy_n(file.data() + request.offset_bytes, static_cast<std::size_t>(result), request.memory.data());
    }
    flying_.push_back({request.tag, result});
    return true;
  }
  std::size_t reap(std::span<vtier::file_completion> completions) {
    std::size_t count = 0;
    while (count < completions.size() && !stale.empty()) {
      completions[count++] = stale.back();
      stale.pop_back();
    }
    while (count < completions.size() && !flying_.empty()) {
      completions[count++] = last_first ? flying_.back() : flying_.front();
      last_first ? flying_.pop_back() : flying_.pop_front();
    }
    return count;
  }
  void wait(std::int64_t) {}
  bool register_buffers(std::span<const std::span<std::byte>>) { return false; }
  std::size_t in_flight() const { return flying_.size(); }
  std::size_t depth_max() const { return 4; }
  std::string_view name() const { return "told"; }

 private:
  std::deque<vtier::file_completion> flying_;
};

template <class Call>
std::string io_error_text(Call&& call, int error_number) {
  try {
    call();
  } catch (const vtier::io_error& e) {
    CHECK(e.code().value() == error_number);
    return e.what();
  }
  CHECK(false);
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class Function>
void on_each_engine(const engine_options& limits, Function&& function) {
  for (const auto kind : {engine_kind::threads, engine_kind::automatic}) {
    vtier::notes remarks;
    auto engine = make_engine(kind, limits, remarks);
    CAPTURE(engine.name());
    function(engine);
  }
}

}  // namespace

TEST_CASE("blocking: each part is checked by itself, never a sum (VO-B04)") {
  const blocking_options parts_of_4096{4096, 1};
  for (const bool last_first : {false, true}) {
    for (const std::deque<std::int64_t>& results :
         {std::deque<std::int64_t>{100, 4096}, {4096, 100}, {100, 100}, {-EINTR, 1, -EAGAIN, 4000}}) {
      told_engine engine;
      vtier::test::fill_bytes(engine.file, 2);
      engine.results = results;
      engine.last_first = last_first;
      const page_bytes memory{8192};
      read_exact(engine, 0, 0, memory.span(), "a file", parts_of_4096);
      CHECK(vtier::test::count_wrong(memory.span(), 2) == 0);
      CHECK(engine.in_flight() == 0);
    }
  }
}

TEST_CASE("blocking: completions of an earlier batch count for nothing") {
  told_engine engine;
  vtier::test::fill_bytes(engine.file, 2);
  for (std::uint64_t tag = 100; tag < 200; ++tag) engine.stale.push_back({tag, 4096});
  engine.stale.push_back({0, 4096});
  engine.results = {100, 100};
  const page_bytes memory{8192};
  read_exact(engine, 0, 0, memory.span(), "a file", {4096, 1});
  CHECK(vtier::test::count_wrong(memory.span(), 2) == 0);
}

TEST_CASE("blocking: a part that makes no progress is an error that names path, offset, wanted and got") {
  told_engine engine;
  const page_bytes memory{8192};
  SECTION("the file ends") {
    engine.results = {4096, 100, 0};
    const std::string said = io_error_text(
        [&] {
          read_exact(engine, 0, 1000, memory.span(), "/some/file", {4096, 1});
        },
        ENODATA);
    CHECK(has(said, "'/some/file'"));
    CHECK(has(said, "at offset 5096"));
    CHECK(has(said, "wanted 4096 bytes, got 100"));
    CHECK_FALSE(has(said, "Success"));
  }
  SECTION("a write moves nothing") {
    engine.results = {0};
    const std::string said = io_error_text([&] { write_exact(engine, 0, 0, memory.span(), "f", {8192, 1}); }, EIO);
    CHECK(has(said, "cannot write"));
    CHECK(has(said, "wanted 8192 bytes, got 0"));
  }
  SECTION("an errno") {
    engine.results = {4096, -EIO};
    const std::string said = io_error_text([&] { read_exact(engine, 0, 0, memory.span(), "f", {4096, 1}); }, EIO);
    CHECK(has(said, "at offset 4096"));
    CHECK(has(said, "EIO"));
  }
  SECTION("more than was asked") {
    engine.results = {4097};
    engine.file.resize(16384);
    const page_bytes more{16384};
    CHECK(has(io_error_text([&] { read_exact(engine, 0, 0, more.span().first(4096), "f", {4096, 1}); }, EIO), "more"));
  }
  SECTION("interrupted without end") {
    engine.results.assign(20'000, -EINTR);
    CHECK(has(io_error_text([&] { read_exact(engine, 0, 0, memory.span(), "f", {8192, 1}); }, EINTR), "without end"));
  }
  SECTION("an engine that takes nothing") {
    engine.refuses = true;
    CHECK(has(io_error_text([&] { read_exact(engine, 0, 0, memory.span(), "f"); }, EBUSY), "takes no requests"));
  }
  CHECK(engine.in_flight() == 0);
}

TEST_CASE("blocking: on a direct file the rest is asked for from an aligned place") {
  told_engine engine;
  vtier::test::fill_bytes(engine.file, 6);
  const page_bytes memory{8192};
  SECTION("and goes on where blocks were whole") {
    engine.results = {1000, 4096};
    read_exact(engine, 0, 0, memory.span(), "f", {8192, 512});
    CHECK(vtier::test::count_wrong(memory.span(), 6) == 0);
    for (const auto& request : engine.requests) {
      CHECK(request.offset_bytes % 512 == 0);
      CHECK(request.memory.size() % 512 == 0);
      CHECK(request.memory.data() == memory.data() + request.offset_bytes);
    }
    REQUIRE(engine.requests.size() == 3);
    CHECK(engine.requests[1].offset_bytes == 512);
    CHECK(engine.requests[2].offset_bytes == 4608);
  }
  SECTION("and ends where the file ends inside a block") {
    engine.results = {5000, 392};  // 4608 + 392: nothing new
    CHECK(has(io_error_text([&] { read_exact(engine, 0, 0, memory.span(), "f", {8192, 512}); }, ENODATA), "got 5000"));
  }
  SECTION("and parts begin aligned also where the transfer does not") {
    read_exact(engine, 0, 100, memory.span().first(5000), "f", {1000, 512});
    std::size_t next = 100;
    for (const auto& request : engine.requests) {
      CHECK(request.offset_bytes == next);
      next += request.memory.size();
      CHECK((next % 512 == 0 || next == 5100));
    }
    CHECK(next == 5100);
  }
}

TEST_CASE("blocking: an engine that misbehaves in every way that it may") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    auto script = std::make_shared<engine_script>();
    script->file.resize(300'000);
    script->seed = seed;
    script->depth_max = 1 + seed % 5;
    script->bytes_max = 100 + seed * 37;
    script->interrupt_every = 3;
    script->refuse_every_other = true;
    scripted_engine engine{script};
    const page_bytes memory{200'000};
    vtier::test::fill_bytes(memory.span(), seed);
    write_exact(engine, 0, 777, memory.span(), "f", {4000, 1});
    const page_bytes back{200'000};
    read_exact(engine, 0, 777, back.span(), "f", {10'000, 1});
    CHECK(vtier::test::count_wrong(back.span(), seed) == 0);
    CHECK(script->file[776] == std::byte{});
    CHECK(script->file[200'777] == std::byte{});
    CHECK(engine.in_flight() == 0);
  }
}

TEST_CASE("blocking: every request fails once, and nothing is in flight afterwards") {
  for (int at = 1; at <= 10; ++at) {
    auto script = std::make_shared<engine_script>();
    script->file.resize(40'960);
    script->fail_at = at;
    scripted_engine engine{script};
    const page_bytes memory{40'960};
    CHECK(has(io_error_text([&] { read_exact(engine, 0, 0, memory.span(), "f", {4096, 1}); }, EIO), "EIO"));
    CHECK(engine.in_flight() == 0);
  }
}

TEST_CASE("blocking: uses that cannot work") {
  told_engine engine;
  const page_bytes memory{4096};
  CHECK_THROWS_AS(read_exact(engine, 0, 0, memory.span(), "f", {0, 1}), vtier::usage_error);
  CHECK_THROWS_AS(read_exact(engine, 0, 0, memory.span(), "f", {4096, 3}), vtier::usage_error);
  CHECK_THROWS_AS(read_exact(engine, 0, ~std::size_t{0} - 10, memory.span(), "f"), vtier::usage_error);
  REQUIRE(engine.try_submit({0, file_operation::read, 0, memory.span(), 1}));
  CHECK_THROWS_AS(read_exact(engine, 0, 0, memory.span(), "f"), vtier::usage_error);
  std::array<vtier::file_completion, 1> completions;
  CHECK(engine.reap(completions) == 1);
  read_exact(engine, 0, 0, {}, "f");
  CHECK(engine.requests.size() == 1);
}

TEST_CASE("blocking: 96 bytes by 7 at a time (VO-A02)") {
  engine_options limits;
  limits.transfer_bytes_max = 7;
  on_each_engine(limits, [](auto& engine) {
    const vtier::test::scratch_directory place;
    vtier::io::scratch_file_options buffered;
    buffered.direct = false;
    const auto file = vtier::io::scratch_file::create(place.path(), buffered);
    const page_bytes memory{96};
    vtier::test::fill_bytes(memory.span(), 1);
    write_exact(engine, file.descriptor(), 3, memory.span(), file.path());
    const page_bytes back{96};
    read_exact(engine, file.descriptor(), 3, back.span(), file.path());
    CHECK(vtier::test::count_wrong(back.span(), 1) == 0);
    const std::string said =
        io_error_text([&] { read_exact(engine, file.descriptor(), 4, back.span(), file.path()); }, ENODATA);
    CHECK(has(said, "wanted 96 bytes, got 95"));
  });
}

TEST_CASE("blocking: direct files, more parts than depth") {
  engine_options limits;
  limits.depth_max = 3;
  on_each_engine(limits, [](auto& engine) {
    const vtier::test::scratch_directory place;
    auto file = vtier::io::scratch_file::create(place.path());
    const blocking_options parts{64_KiB, file.alignment_bytes()};
    const page_bytes memory{4_MiB + 4096};
    vtier::test::fill_bytes(memory.span(), 12);
    write_exact(engine, file.descriptor(), 8192, memory.span(), file.path(), parts);
    const page_bytes back{4_MiB + 4096};
    read_exact(engine, file.descriptor(), 8192, back.span(), file.path(), parts);
    CHECK(vtier::test::count_wrong(back.span(), 12) == 0);
  });
}

namespace {

// So much address space for so little memory: all but the first, the middle and the last part is one window, repeated.
class wide_target {
 public:
  static constexpr std::size_t window = 2_MiB;

  wide_target(std::size_t size, std::size_t middle) : size_{vtier::align_up(size, window)} {
    const int file = ::memfd_create("vtier-test", MFD_CLOEXEC);
    REQUIRE(file >= 0);
    REQUIRE(::ftruncate(file, static_cast<::off_t>(window)) == 0);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, -1, 0);
    REQUIRE(address != MAP_FAILED);
    base_ = static_cast<std::byte*>(address);
    for (std::size_t at = window; at + 2 * window < size_; at += window) {
      if (at + 2 * window > middle && at < middle + 2 * window) continue;
      const int shared = MAP_SHARED | MAP_FIXED;
      REQUIRE(::mmap(base_ + at, window, PROT_READ | PROT_WRITE, shared, file, 0) == base_ + at);
#ifdef MADV_POPULATE_WRITE
      ::madvise(base_ + at, window, MADV_POPULATE_WRITE);  // page faults inside a system call can be slow
#endif
    }
    ::close(file);
  }
  wide_target(const wide_target&) = delete;
  wide_target& operator=(const wide_target&) = delete;
  ~wide_target() { ::munmap(base_, size_); }
  [[nodiscard]] std::byte* data() const { return base_; }

 private:
  std::size_t size_;
  std::byte* base_ = nullptr;
};

}  // namespace

TEST_CASE("blocking: more than one system call moves, in one part (VO-A02)") {
  if (under_thread_sanitizer) {
    WARN("skipped: the thread sanitizer keeps notes about each of 2^31 bytes");
    return;
  }
  constexpr std::size_t size = 2_GiB + 12'288;
  constexpr std::size_t middle = 2_GiB - 8192;  // around 2^31 - 4096, where the system stops
  constexpr std::size_t last = size - 12'288;
  // A sparse file of memory: real system calls, no disk, no page for a hole.
  const vtier::io::detail::descriptor file{::memfd_create("vtier-test", MFD_CLOEXEC)};
  REQUIRE(file.get() >= 0);
  const wide_target memory{size, middle};
  const std::span<std::byte> target{memory.data(), size};
  const page_bytes pages{12'288};
  vtier::test::fill_bytes(pages.span(), 1);
  blocking_options whole;
  whole.chunk_bytes = 1_TiB;
  on_each_engine({}, [&](auto& engine) {
    const int fd = file.get();
    for (const std::size_t at : {std::size_t{0}, middle, last}) {
      write_exact(engine, fd, at, pages.span(), "sparse");
      std::fill_n(target.data() + at, 12'288, std::byte{0x77});
    }
    target[1_GiB] = std::byte{0x77};
    read_exact(engine, fd, 0, target, "sparse", whole);
    CHECK(std::equal(pages.data(), pages.data() + 12'288, target.data()));
    CHECK(std::equal(pages.data(), pages.data() + 8'192, target.data() + middle));
    CHECK(std::equal(pages.data(), pages.data() + 12'288, target.data() + last));
    CHECK(target[1_GiB] == std::byte{});
    // The file shrinks below what is wanted.
    REQUIRE(::ftruncate(fd, static_cast<::off_t>(2_GiB)) == 0);
    const std::string said = io_error_text([&] { read_exact(engine, fd, 0, target, "sparse", whole); }, ENODATA);
    CHECK(has(said, "'sparse' at offset 0: wanted 2147495936 bytes, got 2147483648"));
    CHECK_FALSE(has(said, "Success"));
  });
}
