// SPDX-License-Identifier: Apache-2.0
// The whole library through its front door, on the host device, with and without a progress thread.

#include <vtier/runtime/hierarchy.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/observe/report.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/sysfs.hpp>

#include "support/catch.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::add;
using vtier::test::differences;
using vtier::test::fill;
using hierarchy = vtier::hierarchy<vtier::host::device>;
using bytes_tensor = hierarchy::tensor<std::uint8_t>;

struct fixture {
  explicit fixture(bool with_thread, std::size_t hbm = 1_MiB, std::size_t dram = 2_MiB, std::size_t disk = 64_MiB)
      : limits{make_limits(with_thread)},
        mem{vtier::hbm{gpu, {.budget = hbm}}, vtier::pinned{{.budget = dram}},
            vtier::mapped_file{directory.path(), {.budget = disk}}, limits},
        stream{gpu.make_stream()} {}

  static vtier::options make_limits(bool with_thread) {
    vtier::options o;
    o.progress_thread = with_thread;
    o.chunk_bytes_max = 64_KiB;
    return o;
  }

  void check_sound() {
    CHECK(mem.broken_rules() == std::vector<std::string>{});
    for (const auto& t : mem.count().tiers) {
      CAPTURE(t.name);
      CHECK(t.peak_bytes <= t.budget_bytes);
    }
    CHECK(mem.count().errors.empty());
  }

  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::options limits;
  hierarchy mem;
  vtier::host::stream stream;
};

}  // namespace

TEST_CASE("tensors larger than the fast tiers keep every byte") {
  const bool with_thread = GENERATE(true, false);
  CAPTURE(with_thread);
  fixture f{with_thread};
  std::vector<bytes_tensor> tensors;
  for (std::size_t i = 0; i < 40; ++i) {
    // VO-A01: sizes that are no whole blocks, together more than HBM and DRAM
    const std::size_t odd[] = {1, 3, 511, 513, 4095, 4097, 300'001, 448'000};
    tensors.push_back(f.mem.make_tensor<std::uint8_t>({odd[i % 8]}, role::parameter));
    fill(f.gpu, f.stream, tensors.back(), i);
  }
  for (int lap = 0; lap < 3; ++lap) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (i + 2 < tensors.size()) f.mem.prefetch(tensors[i + 2]);
      CAPTURE(lap, i);
      REQUIRE(differences(f.gpu, f.stream, tensors[i], i, static_cast<std::uint8_t>(lap)) == 0);
      add(f.gpu, f.stream, tensors[i], 1);
    }
  }
  f.gpu.synchronize(f.stream);
  f.check_sound();
  std::size_t from_file = 0;
  for (const auto& link : f.mem.count().links) {
    if (link.name == "file -> hbm") from_file = link.moved_bytes;
  }
  CHECK(from_file > 0);  // the file tier worked for its living
  tensors.clear();
  for (const auto& t : f.mem.count().tiers) CHECK(t.used_bytes == t.staging_bytes);
}

TEST_CASE("the host does not wait for a kernel in order to evict") {
  fixture f{true, 1_MiB, 8_MiB};
  std::vector<bytes_tensor> tensors;
  for (std::size_t i = 0; i < 12; ++i) tensors.push_back(f.mem.make_tensor<std::uint8_t>({256_KiB}, role::activation));
  std::promise<void> go;
  f.gpu.launch(f.stream, [waits = go.get_future().share()] { waits.wait(); });
  // Three times the tier is leased while the first kernel has not even begun: all of it in stream order.
  for (std::size_t i = 0; i < tensors.size(); ++i) fill(f.gpu, f.stream, tensors[i], i);
  CHECK(f.mem.count().blocked_ns == 0);
  go.set_value();
  for (std::size_t i = 0; i < tensors.size(); ++i) CHECK(differences(f.gpu, f.stream, tensors[i], i) == 0);
  f.check_sound();
}

TEST_CASE("a lease on one stream is ordered after leases on others") {
  fixture f{true, 1_MiB, 4_MiB};
  auto other = f.gpu.make_stream();
  auto t = f.mem.make_tensor<std::uint8_t>({200'000}, role::workspace);
  std::promise<void> go;
  f.gpu.launch(f.stream, [waits = go.get_future().share()] { waits.wait(); });
  fill(f.gpu, f.stream, t, 7);  // writer on a stream that is held up
  const auto seen = std::make_shared<std::atomic<std::size_t>>(0);
  {
    auto lease = t.read(other);  // reader on another: must wait for it
    f.gpu.launch(other, [p = lease.data(), n = lease.size(), seen] {
      for (std::size_t i = 0; i < n; ++i) *seen += p[i] == vtier::test::pattern(7, i) ? 1U : 0U;
    });
  }
  fill(f.gpu, f.stream, t, 8);  // next writer on the first: must wait for the reader
  go.set_value();
  f.gpu.synchronize(other);
  CHECK(*seen == 200'000);
  CHECK(differences(f.gpu, f.stream, t, 8) == 0);
}

TEST_CASE("a clean replica is dropped without a write") {
  fixture f{false, 1_MiB, 8_MiB};
  auto a = f.mem.make_tensor<std::uint8_t>({512_KiB}, role::parameter);
  auto b = f.mem.make_tensor<std::uint8_t>({768_KiB}, role::parameter);
  fill(f.gpu, f.stream, a, 1);
  fill(f.gpu, f.stream, b, 2);  // evicts a
  const auto moved_down = [&] {
    std::size_t sum = 0;
    for (const auto& link : f.mem.count().links) sum += link.from < link.to ? link.moved_bytes : 0;
    return sum;
  };
  CHECK(differences(f.gpu, f.stream, a, 1) == 0);  // evicts b
  CHECK(differences(f.gpu, f.stream, b, 2) == 0);
  const std::size_t before = moved_down();
  for (int i = 0; i < 5; ++i) {
    CHECK(differences(f.gpu, f.stream, a, 1) == 0);
    CHECK(differences(f.gpu, f.stream, b, 2) == 0);
  }
  CHECK(moved_down() == before);
  CHECK(f.mem.count().clean_drop_count >= 10);
  add(f.gpu, f.stream, a, 1);  // dirty again: the old copy below is worth nothing
  CHECK(differences(f.gpu, f.stream, b, 2) == 0);
  CHECK(moved_down() == before + 512_KiB);
  CHECK(differences(f.gpu, f.stream, a, 1, 1) == 0);
}

TEST_CASE("leases that cannot be are refused and change nothing") {
  fixture f{true};
  auto t = f.mem.make_tensor<std::uint8_t>({1000}, role::gradient);
  CHECK_THROWS_AS(t.read(f.stream), vtier::usage_error);  // never written
  CHECK_THROWS_AS(t.read_write(f.stream), vtier::usage_error);
  fill(f.gpu, f.stream, t, 3);
  {
    auto reader = t.read(f.stream);
    auto second = t.read(f.stream);  // many readers are fine
    CHECK_THROWS_AS(t.write(f.stream), vtier::usage_error);
    CHECK_THROWS_AS(t.read_write(f.stream), vtier::usage_error);
    CHECK_THROWS_AS(f.mem.flush(t), vtier::usage_error);
    reader.end();
    reader.end();
    CHECK(reader.data() == nullptr);
    CHECK(reader.size() == 0);
  }
  {
    auto writer = t.read_write(f.stream);
    CHECK_THROWS_AS(t.read(f.stream), vtier::usage_error);
    CHECK_THROWS_AS(t.write(f.stream), vtier::usage_error);
  }
  CHECK(differences(f.gpu, f.stream, t, 3) == 0);

  auto moved = std::move(t);
  CHECK_FALSE(t.valid());
  CHECK_THROWS_AS(t.read(f.stream), vtier::usage_error);
  CHECK_THROWS_AS(t.write(f.stream), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.prefetch(t), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.prefetch(moved, 3), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.prefetch(t, 0, 1), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.prefetch(moved, 3, 1), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.cancel_prefetch(t), vtier::usage_error);
  CHECK(differences(f.gpu, f.stream, moved, 3) == 0);
  f.check_sound();
}

TEST_CASE("when leases hold everything the error lists them, and nothing is lost") {
  // VO-D07
  const bool with_thread = GENERATE(true, false);
  fixture f{with_thread};
  std::vector<bytes_tensor> tensors;
  for (std::size_t i = 0; i < 5; ++i) {
    tensors.push_back(f.mem.make_tensor<std::uint8_t>({256_KiB}, i == 0 ? role::optimizer : role::parameter));
  }
  for (std::size_t i = 0; i < 5; ++i) fill(f.gpu, f.stream, tensors[i], i);
  {
    std::vector<bytes_tensor::read_lease> leases;
    for (std::size_t i = 0; i < 4; ++i) leases.push_back(tensors[i].read(f.stream));
    std::string message;
    try {
      auto fifth = tensors[4].read(f.stream);
    } catch (const vtier::out_of_memory& e) {
      message = e.what();
      CHECK(e.tier() == "hbm");
      CHECK(e.asked_bytes() == 256_KiB);
      CHECK(e.free_bytes() == 0);
    }
    CAPTURE(message);
    for (const char* word : {"hbm", "asked 256 KiB", "free 0 B", "budget of 1 MiB", "parameter 768 KiB",
                             "optimizer 256 KiB", "#1", "#4", "end leases"}) {
      CAPTURE(word);
      CHECK(message.find(word) != std::string::npos);
    }
    CHECK_FALSE(tensors[4].try_read(f.stream).has_value());
    CHECK_FALSE(tensors[4].try_write(f.stream).has_value());
    leases.pop_back();
    CHECK(tensors[4].try_read(f.stream).has_value());
  }
  for (std::size_t i = 0; i < 5; ++i) CHECK(differences(f.gpu, f.stream, tensors[i], i) == 0);
  f.check_sound();
}

TEST_CASE("tensors of no bytes work everywhere and cost nothing") {
  // VO-A04
  fixture f{true};
  for (const vtier::shape& s : {vtier::shape{0}, vtier::shape{0, 5}, vtier::shape{5, 0, 3}}) {
    auto t = f.mem.make_tensor<float>(s, role::activation);
    CHECK(t.size() == 0);
    CHECK(t.bytes() == 0);
    {
      auto lease = t.read(f.stream);
      CHECK(lease.size() == 0);
      CHECK(lease.span().empty());
    }
    {
      auto lease = t.write(f.stream);
      CHECK(lease.data() == nullptr);
    }
    { auto lease = t.read_write(vtier::on_host); }
    f.mem.prefetch(t);
    CHECK(f.mem.prefetch(t, 0, 5));
    f.mem.cancel_prefetch(t);
    f.mem.evict(t);
    f.mem.flush(t);
    auto moved = std::move(t);
  }
  const auto counted = f.mem.count();
  CHECK(counted.links.empty());
  for (const auto& t : counted.tiers) CHECK(t.used_bytes == t.staging_bytes);
  f.check_sound();
}

TEST_CASE("sizes that cannot be are refused where the tensor is made") {
  fixture f{true};
  CHECK_THROWS_AS(f.mem.make_tensor<double>({1_TiB, 1_TiB}, role::parameter), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.make_tensor<double>({~std::size_t{0} / 2}, role::parameter), vtier::usage_error);
  CHECK_THROWS_AS(f.mem.make_tensor<std::uint8_t>({1_TiB}, role::parameter), vtier::out_of_memory);
  CHECK_FALSE(f.mem.try_make_tensor<std::uint8_t>({1_TiB}, role::parameter).has_value());

  // Fits in a file, but not where a device could use it: an error at the lease that says so, and nothing else suffers.
  auto wide = f.mem.make_tensor<std::uint8_t>({4_MiB}, role::parameter);
  auto narrow = f.mem.make_tensor<std::uint8_t>({4_KiB}, role::parameter);
  fill(f.gpu, f.stream, narrow, 5);
  std::string message;
  try {
    auto lease = wide.write(f.stream);
  } catch (const vtier::out_of_memory& e) {
    message = e.what();
  }
  CHECK(message.find("larger than the tier") != std::string::npos);
  CHECK(differences(f.gpu, f.stream, narrow, 5) == 0);

  // More tensors than all tiers together hold: refused one by one, those made before stay whole.
  std::vector<bytes_tensor> many;
  while (auto t = f.mem.try_make_tensor<std::uint8_t>({1_MiB}, role::parameter)) {
    many.push_back(std::move(*t));
    REQUIRE(many.size() < 100);
  }
  CHECK(many.size() > 50);
  for (std::size_t i = 0; i < many.size(); ++i) fill(f.gpu, f.stream, many[i], i);
  for (std::size_t i = 0; i < many.size(); ++i) CHECK(differences(f.gpu, f.stream, many[i], i) == 0);
  many.pop_back();
  CHECK(f.mem.try_make_tensor<std::uint8_t>({1_MiB}, role::parameter).has_value());
  f.check_sound();
}

TEST_CASE("a single tensor larger than all staging goes through it in chunks") {
  // VO-A08
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  const std::size_t staging = GENERATE(std::size_t{1_MiB}, std::size_t{64_KiB}, std::size_t{8_KiB});
  CAPTURE(staging);
  vtier::options limits;
  limits.staging_budget = staging;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 6_MiB}}, vtier::pinned{{.budget = 2_MiB}},
                       vtier::mapped_file{directory.path(), {.budget = 32_MiB}}, limits};
  auto a = mem.make_tensor<std::uint8_t>({5_MiB + 256_KiB + 12}, role::parameter);
  auto b = mem.make_tensor<std::uint8_t>({5_MiB + 256_KiB + 12}, role::parameter);
  for (std::uint64_t lap = 0; lap < 3; ++lap) {
    fill(gpu, stream, a, lap);
    fill(gpu, stream, b, lap + 10);
    CHECK(differences(gpu, stream, a, lap) == 0);
    CHECK(differences(gpu, stream, b, lap + 10) == 0);
  }
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("limits that do not fit together are refused by the constructor") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  const auto make = [&](std::size_t hbm, std::size_t dram, std::size_t disk, const vtier::options& limits) {
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = hbm}}, vtier::pinned{{.budget = dram}},
                         vtier::mapped_file{directory.path(), {.budget = disk}}, limits};
  };
  CHECK_NOTHROW(make(1_MiB, 1_MiB, 1_MiB, {}));
  CHECK_THROWS_AS(make(0, 1_MiB, 1_MiB, {}), vtier::usage_error);
  CHECK_THROWS_AS(make(1_MiB, 0, 1_MiB, {}), vtier::usage_error);
  CHECK_THROWS_AS(make(1_MiB, 1_MiB, 0, {}), vtier::usage_error);
  vtier::options limits;
  limits.staging_budget = 2_MiB;  // all of the tier that is to hold it, and more
  CHECK_THROWS_AS(make(1_MiB, 1_MiB, 1_MiB, limits), vtier::usage_error);
  limits.staging_budget = 100;  // less than any file system's block
  std::string message;
  try {
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}},
                         vtier::mapped_file{directory.path(), {.budget = 1_MiB}}, limits};
  } catch (const vtier::usage_error& e) {
    message = e.what();
  }
  CHECK(message.find("staging_budget") != std::string::npos);
  CHECK(message.find("at least") != std::string::npos);
  CHECK_THROWS_AS(make(1_MiB, 1_MiB, 1_MiB,
                       [] {
                         vtier::options o;
                         o.clean_share = 2.0;
                         return o;
                       }()),
                  vtier::usage_error);
  CHECK(directory.empty());
}

TEST_CASE("a prefetch makes a later lease find its bytes in place") {
  fixture f{false, 1_MiB, 4_MiB};
  auto a = f.mem.make_tensor<std::uint8_t>({400'000}, role::parameter);
  fill(f.gpu, f.stream, a, 1);
  f.mem.evict(a);
  f.gpu.synchronize(f.stream);
  const auto hits = f.mem.count().hit_count;
  f.mem.prefetch(a);
  CHECK(differences(f.gpu, f.stream, a, 1) == 0);
  CHECK(f.mem.count().hit_count == hits + 1);
  CHECK(f.mem.count().prefetch_hit_count == 1);

  f.mem.flush(a);  // and the same out of a file
  f.mem.evict(a, 0);
  f.mem.evict(a, 1);
  f.mem.prefetch(a, 1);
  CHECK(differences(f.gpu, f.stream, a, 1) == 0);
  f.check_sound();
}

TEST_CASE("a flush returns when the bytes are there, in memory as in files") {
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 4_MiB}}, vtier::numa{{.budget = 4_MiB}}};
  auto t = mem.make_tensor<std::uint8_t>({2_MiB}, role::parameter);
  std::promise<void> go;
  gpu.launch(stream, [waits = go.get_future().share()] { waits.wait(); });
  fill(gpu, stream, t, 1);
  std::atomic<bool> flushed{false};
  std::thread flusher{[&] {
    mem.flush(t);
    flushed = true;
  }};
  while (mem.count().links.empty()) std::this_thread::yield();  // the copy is queued behind the kernel
  const bool early = flushed;
  go.set_value();
  flusher.join();
  CHECK_FALSE(early);
  CHECK(differences(gpu, stream, t, 1) == 0);
}

TEST_CASE("tensors may die while their bytes are on the way") {
  // VO-D10, VO-D09
  const bool with_thread = GENERATE(true, false);
  fixture f{with_thread, 2_MiB, 2_MiB};
  for (std::uint64_t round = 0; round < 30; ++round) {
    std::vector<bytes_tensor> tensors;
    for (std::size_t i = 0; i < 12; ++i) {
      tensors.push_back(f.mem.make_tensor<std::uint8_t>({500'001}, role::parameter));
      fill(f.gpu, f.stream, tensors.back(), i + round);
    }
    for (auto& t : tensors) f.mem.prefetch(t, 0);
    f.mem.evict(tensors[11]);
    f.mem.prefetch(tensors[11]);
    auto kept = std::move(tensors[3]);
    tensors.clear();
    REQUIRE(differences(f.gpu, f.stream, kept, 3 + round) == 0);
  }
  f.gpu.synchronize(f.stream);
  auto last = f.mem.make_tensor<std::uint8_t>({1}, role::parameter);
  for (int i = 0; i < 10'000 && f.mem.count().tiers[0].used_bytes + f.mem.count().tiers[1].used_bytes >
                                    f.mem.count().tiers[1].staging_bytes;
       ++i) {
    f.mem.prefetch(last);
    std::this_thread::yield();
  }
  for (const auto& t : f.mem.count().tiers) CHECK(t.used_bytes == t.staging_bytes);
  f.check_sound();
}

TEST_CASE("tensors and leases may outlive the hierarchy object") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  std::optional<bytes_tensor> a;
  std::optional<bytes_tensor> b;
  std::optional<bytes_tensor::read_lease> lease;
  {
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::mapped_file{directory.path(), {.budget = 8_MiB}}};
    a = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
    b = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
    fill(gpu, stream, *a, 1);
    fill(gpu, stream, *b, 2);
    lease = b->read(stream);
  }
  lease.reset();
  CHECK(differences(gpu, stream, *a, 1) == 0);
  CHECK(differences(gpu, stream, *b, 2) == 0);
  lease = b->read(stream);
  b.reset();  // the bytes stay for the lease
  lease.reset();
  CHECK(differences(gpu, stream, *a, 1) == 0);
}

TEST_CASE("host leases see what kernels wrote, and kernels what the host wrote") {
  fixture f{true};
  auto t = f.mem.make_tensor<std::uint8_t>({300'000}, role::parameter);
  auto u = f.mem.make_tensor<std::uint8_t>({900'000}, role::parameter);
  for (std::uint64_t lap = 0; lap < 20; ++lap) {
    fill(f.gpu, f.stream, t, lap);
    {
      auto lease = t.read_write(vtier::on_host);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < lease.size(); ++i) {
        wrong += lease.data()[i] != vtier::test::pattern(lap, i) ? 1U : 0U;
        lease.data()[i] = static_cast<std::uint8_t>(lease.data()[i] + 9);
      }
      CHECK(wrong == 0);
    }
    CHECK(differences(f.gpu, f.stream, t, lap, 9) == 0);
    fill(f.gpu, f.stream, u, lap);  // pushes t around
  }
  f.check_sound();
}

TEST_CASE("a hierarchy without host memory maps its files for the host") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::mapped_file{directory.path(), {.budget = 8_MiB}}};
  auto t = mem.make_tensor<std::uint8_t>({300'001}, role::parameter);
  {
    auto lease = t.write(vtier::on_host);
    for (std::size_t i = 0; i < lease.size(); ++i) lease.data()[i] = vtier::test::pattern(4, i);
  }
  CHECK(differences(gpu, stream, t, 4) == 0);
  add(gpu, stream, t, 1);
  mem.flush(t);
  const auto lease = t.read(vtier::on_host);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < lease.size(); ++i)
    wrong += lease.data()[i] != static_cast<std::uint8_t>(vtier::test::pattern(4, i) + 1);
  CHECK(wrong == 0);
}

TEST_CASE("a plain CPU trainer needs no device memory at all") {
  vtier::test::scratch_directory directory;
  vtier::host::device cpu;
  auto stream = cpu.make_stream();
  vtier::hierarchy mem{cpu, vtier::numa{{.budget = 1_MiB}}, vtier::mapped_file{directory.path(), {.budget = 16_MiB}}};
  std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
  for (std::size_t i = 0; i < 20; ++i) {
    tensors.push_back(mem.make_tensor<std::uint8_t>({200'000}, role::parameter));
    fill(cpu, stream, tensors.back(), i);
  }
  for (std::size_t i = 0; i < 20; ++i) CHECK(differences(cpu, stream, tensors[i], i) == 0);
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("several threads train at once on their own streams") {
  fixture f{true, 2_MiB, 2_MiB};
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t who = 0; who < 4; ++who) {
    threads.emplace_back([&, who] {
      auto own = f.gpu.make_stream();
      std::vector<bytes_tensor> tensors;
      for (std::size_t i = 0; i < 8; ++i) {
        tensors.push_back(f.mem.make_tensor<std::uint8_t>({150'000 + who}, role::gradient));
        fill(f.gpu, own, tensors.back(), who * 100 + i);
      }
      for (std::uint8_t lap = 0; lap < 10; ++lap) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          if (i + 1 < tensors.size()) f.mem.prefetch(tensors[i + 1]);
          wrong += differences(f.gpu, own, tensors[i], who * 100 + i, lap);
          add(f.gpu, own, tensors[i], 1);
        }
      }
      f.gpu.synchronize(own);
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  f.check_sound();
}

TEST_CASE("random programs agree with plain memory") {
  const bool with_thread = GENERATE(true, false);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(with_thread, seed);
    vtier::random_source random{seed};
    fixture f{with_thread, 1_MiB, 1_MiB + 512_KiB, 16_MiB};
    auto second = f.gpu.make_stream();
    struct pair {
      bytes_tensor t;
      std::optional<std::pair<std::uint64_t, std::uint8_t>> content;
    };
    std::vector<pair> all;
    for (int i = 0; i < 250; ++i) {
      const auto& stream = random.below(2) == 0 ? f.stream : second;
      const auto what = random.below(10);
      if (all.size() < 5 || (what == 0 && all.size() < 25)) {
        all.push_back(
            {f.mem.make_tensor<std::uint8_t>({static_cast<std::size_t>(random.below(400'000))}, role::activation), {}});
        continue;
      }
      auto& one = all[random.below(all.size())];
      switch (what) {
        case 1:
          std::swap(one, all.back());
          all.pop_back();
          break;
        case 2: f.mem.prefetch(one.t, random.below(3)); break;
        case 3: f.mem.evict(one.t, random.below(3)); break;
        case 4: f.mem.flush(one.t); break;
        case 5:
        case 6: {
          const std::uint64_t s = random();
          fill(f.gpu, stream, one.t, s);
          one.content = {s, std::uint8_t{0}};
          break;
        }
        case 7:
          if (one.content) {
            add(f.gpu, stream, one.t, 3);
            one.content->second = static_cast<std::uint8_t>(one.content->second + 3);
          }
          break;
        default:
          if (one.content) REQUIRE(differences(f.gpu, stream, one.t, one.content->first, one.content->second) == 0);
      }
      if (i % 16 == 0) REQUIRE(f.mem.broken_rules() == std::vector<std::string>{});
    }
    for (auto& one : all) {
      if (one.content) CHECK(differences(f.gpu, f.stream, one.t, one.content->first, one.content->second) == 0);
    }
    f.gpu.synchronize(second);
    f.check_sound();
  }
}

TEST_CASE("the progress thread runs where it was told, or near the memory it serves, and says so") {
  const auto allowed = vtier::bound_cpus();
  if (allowed.empty()) {
    WARN("skipped: the system does not say on which CPUs this process may run");
    return;
  }
  vtier::host::device gpu;
  const auto bound_with = [&](std::vector<unsigned> cpus, std::optional<unsigned> node) {
    vtier::options limits;
    limits.progress_cpus = std::move(cpus);
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{node, {.budget = 1_MiB}}, limits};
    for (int i = 0; i < 100'000 && mem.count().progress_cpus.empty() && mem.count().notes.empty(); ++i) {
      std::this_thread::yield();
    }
    return mem.count();
  };
  CHECK(bound_with({allowed.back()}, std::nullopt).progress_cpus == std::vector<unsigned>{allowed.back()});
  const auto nowhere = bound_with({1'000'000}, std::nullopt);
  CHECK(nowhere.progress_cpus.empty());
  CHECK(std::any_of(nowhere.notes.begin(), nowhere.notes.end(), [](const std::string& note) {
    return note.find("progress thread runs unbound") != std::string::npos;
  }));
  const auto cpus_of_node = vtier::cpus_of_memory(0);
  if (!cpus_of_node.empty()) CHECK(bound_with({}, 0U).progress_cpus == cpus_of_node);
}

TEST_CASE("steps are counted and do not nest") {
  fixture f{true};
  {
    auto step = f.mem.step();
    CHECK_THROWS_AS(f.mem.step(), vtier::usage_error);
  }
  { auto step = f.mem.step(); }
  CHECK(f.mem.count().step_count == 2);
}

TEST_CASE("placement rules keep roles out of tiers") {
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  vtier::options limits;
  limits.place.by_role[static_cast<std::size_t>(role::activation)] = {.allowed_tiers = 0b011};
  limits.clean_share = 0.0;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 4_MiB}},
                       vtier::mapped_file{directory.path(), {.budget = 16_MiB}}, limits};
  std::vector<decltype(mem)::tensor<std::uint8_t>> kept;
  for (std::size_t i = 0; i < 8; ++i) {
    kept.push_back(mem.make_tensor<std::uint8_t>({400'000}, role::activation));
    fill(gpu, stream, kept.back(), i);
  }
  const auto activation = static_cast<std::size_t>(role::activation);
  CHECK(mem.count().tiers[1].role_bytes[activation] > 0);
  CHECK(mem.count().tiers[2].role_peak_bytes[activation] == 0);
  for (std::size_t i = 0; i < 8; ++i) CHECK(differences(gpu, stream, kept[i], i) == 0);
}
