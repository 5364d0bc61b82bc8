// SPDX-License-Identifier: Apache-2.0
// Transfers on the host device with a file engine that misbehaves as told.

#include <vtier/transfer/copier.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/io/engine.hpp>

#include "support/catch.hpp"
#include "support/scripted_engine.hpp"

namespace {

using namespace vtier::literals;
using vtier::memory_kind;
using vtier::transfer_state;
using vtier::test::engine_script;
using copier = vtier::copier<vtier::host::device>;
using handles = std::vector<copier::handle>;

struct memory_backing final : vtier::detail::slab_backing {
  memory_backing(std::size_t size_bytes, std::size_t stripe) : bytes(size_bytes + 65'536), stripe_bytes{stripe} {}
  std::byte* base() override {
    return reinterpret_cast<std::byte*>(vtier::align_up(reinterpret_cast<std::size_t>(bytes.data()), 65'536));
  }
  vtier::file_place locate(std::size_t offset) const override {
    return {0, offset, stripe_bytes - offset % stripe_bytes};
  }
  std::vector<std::byte> bytes;
  std::size_t stripe_bytes;
};

vtier::slab make_slab(memory_kind kind, std::size_t size_bytes, std::size_t alignment = 1, std::size_t stripe = 1_TiB) {
  vtier::slab_properties p;
  p.name = kind == memory_kind::file ? "file" : kind == memory_kind::host ? "pinned" : "hbm";
  p.kind = kind;
  p.size_bytes = size_bytes;
  p.offset_alignment_bytes = alignment;
  p.place = "a test";
  return {p, std::make_unique<memory_backing>(size_bytes, stripe)};
}

struct rig {
  explicit rig(std::size_t chunk = 4096, std::size_t slots = 3, std::size_t alignment = 1, std::size_t stripe = 1_TiB)
      : hbm{make_slab(memory_kind::device, 1_MiB)},
        pinned{make_slab(memory_kind::host, 1_MiB)},
        file{make_slab(memory_kind::file, 1_MiB, alignment, stripe)},
        staging{make_slab(memory_kind::host, chunk * slots)},
        script{std::make_shared<engine_script>()},
        engine{vtier::test::scripted_engine{script}} {
    script->file.resize(1_MiB);
    script->offset_alignment = alignment;
    moving = std::make_unique<copier>(gpu, staging.base(), vtier::staging_shape{chunk, slots},
                                      std::vector<vtier::io::engine*>{nullptr, nullptr, &engine});
  }

  copier::handle start(vtier::slab& from, std::size_t from_tier, std::size_t from_offset, vtier::slab& to,
                       std::size_t to_tier, std::size_t to_offset, std::size_t size,
                       vtier::urgency priority = vtier::urgency::demand) {
    copier::transfer_type t;
    t.source = {&from, from_tier, from_offset};
    t.target = {&to, to_tier, to_offset};
    t.size_bytes = size;
    t.priority = priority;
    return moving->start(std::move(t));
  }

  void finish(const copier::handle& t) {
    handles ended;
    for (int i = 0; i < 1'000'000 && !t->ended(); ++i) {
      moving->advance(ended);
      std::this_thread::yield();  // the streams have threads that want to run
    }
    REQUIRE(t->ended());
    for (const auto& e : t->finished) gpu.synchronize(e);
  }

  vtier::host::device gpu;
  vtier::slab hbm;
  vtier::slab pinned;
  vtier::slab file;
  vtier::slab staging;
  std::shared_ptr<engine_script> script;
  vtier::io::engine engine;
  std::unique_ptr<copier> moving;
};

std::byte counter(std::size_t i, int salt) {
  return static_cast<std::byte>((i * 7 + i / 256 + static_cast<std::size_t>(salt)) & 0xFFU);
}

void put(std::byte* at, std::size_t size, int salt) {
  for (std::size_t i = 0; i < size; ++i) at[i] = counter(i, salt);
}

std::size_t wrong(const std::byte* at, std::size_t size, int salt) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; ++i) count += at[i] != counter(i, salt) ? 1U : 0U;
  return count;
}

}  // namespace

TEST_CASE("every route moves every byte, whatever the size") {
  // VO-A01, VO-A05: the engine refuses what is not aligned, and counts it.
  const std::size_t alignment = GENERATE(std::size_t{1}, std::size_t{512}, std::size_t{4096}, std::size_t{16384});
  for (const std::size_t size : {std::size_t{1}, std::size_t{3}, std::size_t{511}, std::size_t{513}, std::size_t{4095},
                                 std::size_t{4097}, std::size_t{100'000}, std::size_t{262'144}}) {
    CAPTURE(alignment, size);
    rig r{(std::max)(alignment, std::size_t{4096}), 3, alignment};
    put(r.hbm.base(), size, 1);
    r.finish(r.start(r.hbm, 0, 0, r.file, 2, 65'536, size));
    r.finish(r.start(r.file, 2, 65'536, r.pinned, 1, 131'072, size));
    CHECK(wrong(r.pinned.base() + 131'072, size, 1) == 0);
    r.finish(r.start(r.pinned, 1, 131'072, r.file, 2, 0, size));
    r.finish(r.start(r.file, 2, 0, r.hbm, 0, 65'536 * 5, size));
    CHECK(wrong(r.hbm.base() + 65'536 * 5, size, 1) == 0);
    const auto copied = r.start(r.hbm, 0, 65'536 * 5, r.pinned, 1, 0, size);
    CHECK(copied->state == transfer_state::done);  // between memories: enqueued at once
    r.finish(copied);
    CHECK(wrong(r.pinned.base(), size, 1) == 0);
    CHECK(r.script->misaligned == 0);
    handles ended;
    while (!r.moving->idle()) r.moving->advance(ended);  // the last slots come back: a lost one would hang here
  }
}

TEST_CASE("short transfers are continued, each chunk by itself") {
  // VO-B04, VO-A02
  for (const std::size_t bytes_max : {std::size_t{7}, std::size_t{100}, std::size_t{4095}}) {
    for (std::uint64_t seed = 1; seed < 5; ++seed) {
      CAPTURE(bytes_max, seed);
      rig r;
      r.script->bytes_max = bytes_max;
      r.script->seed = seed * 1000;
      const std::size_t size = bytes_max == 7 ? 9'000 : 50'000;
      put(r.hbm.base(), size, 2);
      r.finish(r.start(r.hbm, 0, 0, r.file, 2, 10, size));
      const auto t = r.start(r.file, 2, 10, r.hbm, 0, 300'000, size);
      r.finish(t);
      CHECK(t->state == transfer_state::done);
      CHECK(wrong(r.hbm.base() + 300'000, size, 2) == 0);
    }
  }
}

TEST_CASE("a short transfer on a direct file goes on at an aligned place") {
  rig r{8192, 3, 512};
  r.script->bytes_max = 1300;  // no multiple of the alignment
  put(r.pinned.base(), 60'000, 3);
  r.finish(r.start(r.pinned, 1, 0, r.file, 2, 0, 60'000));
  r.finish(r.start(r.file, 2, 0, r.hbm, 0, 0, 60'000));
  CHECK(wrong(r.hbm.base(), 60'000, 3) == 0);
  CHECK(r.script->misaligned == 0);
}

TEST_CASE("a transfer that makes no progress is an error that says where") {
  rig r;
  r.script->file.resize(50'000);  // the file shrank
  const auto t = r.start(r.file, 2, 40'000, r.pinned, 1, 0, 20'000);
  r.finish(t);
  REQUIRE(t->state == transfer_state::failed);
  std::string message;
  try {
    std::rethrow_exception(t->error);
  } catch (const vtier::io_error& e) {
    message = e.what();
    CHECK(e.code().value() == EIO);
  }
  CAPTURE(message);
  for (const char* word : {"file", "reading", "a test", "wanted", "got 0"})
    CHECK(message.find(word) != std::string::npos);
  CHECK(message.find("Success") == std::string::npos);
}

TEST_CASE("an error of the drive fails its transfer alone, and every slot comes back") {
  for (int fail_at = 1; fail_at <= 8; ++fail_at) {
    CAPTURE(fail_at);
    rig r;
    put(r.hbm.base(), 30'000, 4);
    r.script->fail_at = fail_at;
    const auto a = r.start(r.hbm, 0, 0, r.file, 2, 0, 30'000);
    r.finish(a);
    CHECK(a->state == transfer_state::failed);
    r.script->fail_at = 0;
    for (int i = 0; i < 5; ++i) {  // more than there are slots: a lost one would stop this
      const auto b = r.start(r.hbm, 0, 0, r.file, 2, 100'000, 30'000);
      r.finish(b);
      CHECK(b->state == transfer_state::done);
    }
    r.finish(r.start(r.file, 2, 100'000, r.pinned, 1, 0, 30'000));
    CHECK(wrong(r.pinned.base(), 30'000, 4) == 0);
  }
}

TEST_CASE("interruptions and refusals are tried again") {
  rig r;
  r.script->interrupt_every = 3;
  r.script->refuse_every_other = true;
  put(r.hbm.base(), 100'000, 5);
  r.finish(r.start(r.hbm, 0, 0, r.file, 2, 0, 100'000));
  const auto t = r.start(r.file, 2, 0, r.pinned, 1, 0, 100'000);
  r.finish(t);
  CHECK(t->state == transfer_state::done);
  CHECK(wrong(r.pinned.base(), 100'000, 5) == 0);
}

TEST_CASE("a drive that never answers anything but EINTR or EAGAIN is an error, and stays usable (VO-B05)") {
  rig r;
  r.script->interrupt_every = 1;
  put(r.hbm.base(), 30'000, 6);
  const auto t = r.start(r.hbm, 0, 0, r.file, 2, 0, 30'000);
  r.finish(t);
  REQUIRE(t->state == transfer_state::failed);
  CHECK_THROWS_AS(std::rethrow_exception(t->error), vtier::io_error);
  r.script->interrupt_every = 0;
  r.finish(r.start(r.hbm, 0, 0, r.file, 2, 0, 30'000));
  r.finish(r.start(r.file, 2, 0, r.pinned, 1, 0, 30'000));
  CHECK(wrong(r.pinned.base(), 30'000, 6) == 0);
}

TEST_CASE("an engine that takes 3 of 8 and then no more is asked once a round, the most urgent first (VO-B12)") {
  rig r{4096, 10};
  r.script->depth_max = 8;
  r.script->held = true;
  r.script->taken_max = 3;
  for (std::size_t i = 0; i < 32'768; ++i) r.script->file[i] = counter(i, 1);
  for (std::size_t i = 0; i < 8192; ++i) r.script->file[524'288 + i] = counter(i, 2);
  handles ended;
  const auto prefetch = r.start(r.file, 2, 0, r.hbm, 0, 0, 32'768, vtier::urgency::prefetch);
  for (int i = 0; i < 5; ++i) r.moving->advance(ended);
  CHECK(r.script->requests == 3);
  const auto demand = r.start(r.file, 2, 524'288, r.hbm, 0, 524'288, 8192);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(r.moving->advance(ended));  // nothing changed: whoever drives it may sleep
  CHECK(r.script->refused == 10);
  CHECK(ended.empty());
  r.script->taken_max = ~std::size_t{0};
  r.moving->advance(ended);
  r.script->held = false;
  r.finish(demand);
  r.finish(prefetch);
  using offsets = std::vector<std::size_t>;
  CHECK(r.script->taken ==
        offsets{0, 4096, 8192, 524'288, 528'384, 12'288, 16'384, 20'480, 24'576, 28'672});  // each once
  CHECK(wrong(r.hbm.base(), 32'768, 1) == 0);
  CHECK(wrong(r.hbm.base() + 524'288, 8192, 2) == 0);
}

TEST_CASE("what an engine took in part and then refuses is asked for by urgency, too (VO-B12)") {
  rig r{4096, 10};
  r.script->depth_max = 8;
  r.script->bytes_max = 1000;
  r.script->held = true;
  handles ended;
  const auto prefetch = r.start(r.file, 2, 0, r.hbm, 0, 0, 8192, vtier::urgency::prefetch);
  r.moving->advance(ended);
  const auto demand = r.start(r.file, 2, 524'288, r.hbm, 0, 524'288, 4096);
  r.moving->advance(ended);
  REQUIRE(r.script->taken == std::vector<std::size_t>{0, 4096, 524'288});
  r.script->taken_max = 3;
  r.script->held = false;
  for (int i = 0; i < 3; ++i) r.moving->advance(ended);  // all came back short, and none may go on
  r.script->taken_max = 4;
  r.moving->advance(ended);
  CHECK(r.script->taken.back() == 525'288);
  r.script->taken_max = ~std::size_t{0};
  r.finish(demand);
  r.finish(prefetch);
}

TEST_CASE("10,000 transfers at once through an engine of depth 8 end once each, by urgency (VO-B12)") {
  constexpr std::size_t count = 10'000;
  constexpr std::size_t size = 4096;
  constexpr std::size_t places = 256;
  rig r{size, 12};
  r.script->depth_max = 8;
  r.script->refuse_every_other = true;
  handles started;
  for (std::size_t i = 0; i < count; ++i) {
    const auto priority = i % 2 == 0 ? vtier::urgency::write_back : vtier::urgency::prefetch;
    const std::size_t at = i % places * size;
    started.push_back(r.start(r.pinned, 1, at, r.file, 2, at, size, priority));
  }
  put(r.pinned.base(), 1_MiB, 3);
  handles ended;
  for (int i = 0; i < 1'000'000 && ended.size() < count; ++i) r.moving->advance(ended);
  REQUIRE(ended.size() == count);
  CHECK(r.moving->idle());
  CHECK(r.script->requests == count);
  CHECK(std::all_of(started.begin(), started.end(), [](const auto& t) { return t->state == transfer_state::done; }));
  // The odd places were the more urgent ones: all of them before the first even one.
  const auto odd = [](std::size_t offset) { return offset / size % 2 == 1; };
  CHECK(std::all_of(r.script->taken.begin(), r.script->taken.begin() + count / 2, odd));
  CHECK(std::none_of(r.script->taken.begin() + count / 2, r.script->taken.end(), odd));
  CHECK(wrong(r.script->file.data(), 1_MiB, 3) == 0);
}

TEST_CASE("an engine that breaks fails the transfers that need it, and no others") {
  rig r;
  r.script->bytes_max = 1000;
  r.script->held = true;
  handles ended;
  const auto begun = r.start(r.file, 2, 0, r.hbm, 0, 0, 8192);
  r.moving->advance(ended);
  const auto queued = r.start(r.file, 2, 65'536, r.hbm, 0, 65'536, 8192);
  r.script->broken = true;
  r.script->held = false;
  r.finish(begun);
  r.finish(queued);
  for (const auto& t : {begun, queued}) {
    CHECK(t->state == transfer_state::failed);
    CHECK_THROWS_AS(std::rethrow_exception(t->error), vtier::io_error);
  }
  const auto copy = r.start(r.hbm, 0, 0, r.pinned, 1, 0, 8192);
  r.finish(copy);
  CHECK(copy->state == transfer_state::done);
  CHECK(r.moving->idle());
}

TEST_CASE("a chunk that crosses two stripes is cut there") {
  rig r{8192, 3, 512, 5120};
  put(r.hbm.base(), 70'000, 6);
  r.finish(r.start(r.hbm, 0, 0, r.file, 2, 512, 70'000));
  r.finish(r.start(r.file, 2, 512, r.pinned, 1, 0, 70'000));
  CHECK(wrong(r.pinned.base(), 70'000, 6) == 0);
}

TEST_CASE("one slot serves two transfers in opposite directions") {
  // VO-D07
  rig r{4096, 1};
  put(r.hbm.base(), 40'000, 7);
  for (std::size_t i = 0; i < 40'000; ++i) r.script->file[200'000 + i] = counter(i, 8);
  const auto down = r.start(r.hbm, 0, 0, r.file, 2, 0, 40'000, vtier::urgency::write_back);
  const auto up = r.start(r.file, 2, 200'000, r.hbm, 0, 100'000, 40'000, vtier::urgency::prefetch);
  r.finish(down);
  r.finish(up);
  CHECK(wrong(r.hbm.base() + 100'000, 40'000, 8) == 0);
  CHECK(wrong(r.script->file.data(), 40'000, 7) == 0);
}

TEST_CASE("demand overtakes what is queued, and has a slot of its own") {
  rig r{4096, 3};
  r.script->held = true;
  handles ended;
  const auto prefetch = r.start(r.file, 2, 0, r.hbm, 0, 0, 400'000, vtier::urgency::prefetch);
  for (int i = 0; i < 10; ++i) r.moving->advance(ended);
  CHECK(r.script->requests == 2);  // the third slot is kept for demand
  const auto demand = r.start(r.file, 2, 500'000, r.hbm, 0, 500'000, 8192);
  for (int i = 0; i < 10; ++i) r.moving->advance(ended);
  CHECK(r.script->requests == 3);
  r.script->held = false;
  for (int i = 0; i < 1'000'000 && !demand->ended(); ++i) r.moving->advance(ended);
  CHECK_FALSE(prefetch->ended());
  r.finish(prefetch);
}

TEST_CASE("a transfer does not begin before what it waits for") {
  rig r;
  auto stream = r.gpu.make_stream();
  std::promise<void> go;
  r.gpu.launch(stream, [waits = go.get_future().share()] { waits.wait(); });
  r.gpu.launch(stream, [p = r.hbm.base()] { put(p, 10'000, 9); });
  copier::transfer_type t;
  t.source = {&r.hbm, 0, 0};
  t.target = {&r.file, 2, 0};
  t.size_bytes = 10'000;
  t.source_after.push_back(r.gpu.record(stream));
  const auto down = r.moving->start(std::move(t));
  handles ended;
  for (int i = 0; i < 100; ++i) r.moving->advance(ended);
  CHECK(r.script->requests == 0);
  go.set_value();
  r.finish(down);
  CHECK(wrong(r.script->file.data(), 10'000, 9) == 0);
}

TEST_CASE("a cancelled transfer ends when what it has in flight has ended") {
  rig r;
  r.script->held = true;
  const auto t = r.start(r.file, 2, 0, r.hbm, 0, 0, 400'000);
  handles ended;
  for (int i = 0; i < 10; ++i) r.moving->advance(ended);
  r.moving->cancel(*t);
  for (int i = 0; i < 10; ++i) r.moving->advance(ended);
  CHECK_FALSE(t->ended());
  r.script->held = false;
  r.finish(t);
  CHECK(t->state == transfer_state::cancelled);
  CHECK(r.script->requests <= 4);
}

TEST_CASE("a copier that dies waits for what the drive still has") {
  // VO-D09: the sanitizer is the judge.
  rig r;
  const auto t = r.start(r.file, 2, 0, r.hbm, 0, 0, 400'000);
  handles ended;
  r.moving->advance(ended);
  r.moving.reset();
  CHECK(r.engine.in_flight() == 0);
}
