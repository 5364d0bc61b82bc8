// SPDX-License-Identifier: Apache-2.0
// How much of the machine's bandwidth is left when bytes move between tiers through the library.
//
//   tier_bandwidth [--size 256MiB] [--rounds 9] [--disk DIR] [--json FILE] [--smoke] [--benchmark_filter=...]
//
// Each line puts a limit (memcpy on one thread between huge pages, or a raw loop of direct file I/O) beside the library
// moving as many bytes, in the same rounds; the share is the median of the ratios within a round. The device is the
// host's. Before it is over, each tensor is read back from where it went and compared; bytes that did not move count as
// a failure, never as speed.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <vtier/tier.hpp>

#include "support/arguments.hpp"
#include "support/comparison.hpp"
#include "support/huge_pages.hpp"
#include "support/json.hpp"
#include "support/raw_file.hpp"

namespace {

using namespace vtier::literals;
using vtier::bench::huge_pages;
using vtier::bench::raw_file;
using vtier::bench::results;
using vtier::bench::side;
using device = vtier::host::device;
using hierarchy = vtier::hierarchy<device>;
using word = std::uint64_t;

const std::string usage =
    "tier_bandwidth [--size 256MiB] [--rounds 9] [--disk DIR] [--json FILE] [--smoke] and what Google Benchmark takes";

struct settings {
  std::size_t size_bytes = 256_MiB;
  std::size_t rounds = 9;
  std::filesystem::path disk;
  std::string json_path;
  std::size_t lease_count = 10'000;  // in each round
  std::size_t tensor_count_max = 1'000'000;
};

/// The results and what the hierarchies had to say.
struct session {
  settings chosen;
  results table;
  vtier::notes remarks;
};

// What stands where after so many changes; a change touches one word in each page.
constexpr std::size_t changed_every = 512;
word pattern(std::size_t at, word changes) noexcept {
  return (at + 1) * 0x9E3779B97F4A7C15U + (at % changed_every == 0 ? changes : 0);
}

vtier::options quiet() {
  vtier::options limits;
  limits.clean_share = 0.0;  // nothing is written before the clock runs
  return limits;
}

/// Two tiers and one tensor that goes from one to the other.
class shuttle {
 public:
  template <class... Tiers>
  shuttle(session& s, const device& gpu, Tiers... tiers)
      : to_{s},
        gpu_{gpu},
        mem_{std::move(tiers)..., quiet()},
        stream_{gpu_.make_stream()},
        tensor_{mem_.make_tensor<word>({s.chosen.size_bytes / sizeof(word)}, vtier::role::parameter)} {
    auto lease = tensor_.write(stream_);
    gpu_.launch(stream_, [p = lease.data(), n = lease.size()] {
      for (std::size_t i = 0; i < n; ++i) p[i] = pattern(i, 0);
    });
    lease.end();
    gpu_.synchronize(stream_);
  }

  /// Makes the bytes of the first tier the only new ones.
  void change() {
    auto lease = tensor_.read_write(stream_);
    gpu_.launch(stream_, [p = lease.data(), n = lease.size()] {
      for (std::size_t i = 0; i < n; i += changed_every) ++p[i];
    });
    lease.end();
    gpu_.synchronize(stream_);
    ++changes_;
  }

  /// The tensor leaves the first tier for another in memory; the bytes have arrived on return.
  void evict() {
    mem_.evict(tensor_);
    const auto arrived = tensor_.read(vtier::on_host);
  }

  /// The tensor is written to files and stays where it is.
  void flush() { mem_.flush(tensor_); }

  /// The tensor comes to the first tier; the bytes have arrived on return.
  void fetch() {
    tensor_.read(stream_).end();
    gpu_.synchronize(stream_);
  }

  /// The first tier forgets what the second has too.
  void forget() {
    mem_.evict(tensor_);
    const auto held = [this] {
      const auto first = mem_.count().tiers.front();
      return first.used_bytes - first.staging_bytes;
    };
    const vtier::steady_clock clock;
    for (const std::int64_t began = clock.now_ns(); held() != 0; std::this_thread::yield()) {
      if (clock.now_ns() - began > 30'000'000'000) throw std::runtime_error("an eviction has not happened in 30 s");
    }
  }

  /// Looks at what the library counted on a link since the last look: one tensor, or something is wrong.
  void check_moved(std::size_t from, std::size_t to) {
    std::size_t moved_bytes = 0;
    for (const auto& link : mem_.count().links) {
      if (link.from == from && link.to == to) moved_bytes = link.moved_bytes;
    }
    const std::size_t since = moved_bytes - std::exchange(moved_bytes_, moved_bytes);
    if (since != tensor_.bytes()) {
      throw std::runtime_error(std::to_string(since) + " bytes moved in a round instead of " +
                               std::to_string(tensor_.bytes()));
    }
  }
  void skip_moved(std::size_t from, std::size_t to) {
    for (const auto& link : mem_.count().links) {
      if (link.from == from && link.to == to) moved_bytes_ = link.moved_bytes;
    }
  }

  /// Fetches the tensor from the second tier once more and compares every byte.
  void check_bytes() {
    forget();
    overwrite_first_tier();
    const auto wrong = std::make_shared<std::size_t>(0);
    auto lease = tensor_.read(stream_);
    gpu_.launch(stream_, [p = lease.data(), n = lease.size(), changes = changes_, wrong] {
      for (std::size_t i = 0; i < n; ++i) *wrong += p[i] == pattern(i, changes) ? 0U : 1U;
    });
    lease.end();
    gpu_.synchronize(stream_);
    if (*wrong != 0) throw std::runtime_error(std::to_string(*wrong) + " words are not what they were");
    const auto counted = mem_.count();
    if (!counted.errors.empty()) throw std::runtime_error(counted.errors.front());
    for (const auto& note : counted.notes) to_.remarks.say(note);
  }

  side down(void (shuttle::*move)()) {
    return {[this] {
              change();
              skip_moved(0, 1);
            },
            [this, move] { (this->*move)(); }, [this] { check_moved(0, 1); }};
  }
  side up() {
    return {[this] {
              forget();
              skip_moved(1, 0);
            },
            [this] { fetch(); }, [this] { check_moved(1, 0); }};
  }

 private:
  // What the tensor has left behind there would pass for what was fetched.
  void overwrite_first_tier() {
    auto other = mem_.make_tensor<word>({tensor_.size()}, vtier::role::workspace, vtier::placement_rule{1U});
    auto lease = other.write(stream_);
    gpu_.fill(stream_, lease.data(), std::byte{0}, other.bytes());
    lease.end();
    gpu_.synchronize(stream_);
  }

  session& to_;
  device gpu_;
  hierarchy mem_;
  device::stream stream_;
  hierarchy::tensor<word> tensor_;
  word changes_ = 0;
  std::size_t moved_bytes_ = 0;
};

side memcpy_side(const huge_pages& target, const huge_pages& source) {
  return {.timed = [to = target.data(), from = source.data(), size = source.size()] {
    std::memcpy(to, from, size);
    benchmark::DoNotOptimize(to);
    benchmark::ClobberMemory();
  }};
}

// --- memory ---------------------------------------------------------------------------------------------------------

void device_copy(session& s, benchmark::State& state, bool to_device) {
  const std::size_t size = s.chosen.size_bytes;
  const huge_pages source{size};
  const huge_pages target{size};
  const huge_pages host{size, std::byte{2}};
  const device gpu;
  auto stream = gpu.make_stream();
  const std::unique_ptr<void, std::function<void(void*)>> memory{gpu.allocate(size),
                                                                 [&](void* p) { gpu.deallocate(p, size); }};
  gpu.fill(stream, memory.get(), std::byte{3}, size);
  gpu.synchronize(stream);
  const side ours{.timed = [&] {
    if (to_device) {
      gpu.copy(stream, memory.get(), host.data(), size, vtier::copy_direction::host_to_device);
    } else {
      gpu.copy(stream, host.data(), memory.get(), size, vtier::copy_direction::device_to_host);
    }
    gpu.synchronize(stream);
  }};
  s.table.compare(state, to_device ? "host -> device, stream copy" : "device -> host, stream copy", size,
                  memcpy_side(target, source), ours);
  if (std::memcmp(memory.get(), host.data(), size) != 0) throw std::runtime_error("the copy is not equal");
}

void memory_tiers(session& s, benchmark::State& state, bool up) {
  const std::size_t size = s.chosen.size_bytes;
  const huge_pages source{size};
  const huge_pages target{size};
  const device gpu;
  shuttle tensor{s, gpu, vtier::hbm{gpu, {.budget = size + 1_MiB}}, vtier::pinned{{.budget = 2 * size + 1_MiB}}};
  tensor.evict();
  s.table.compare(state, up ? "pinned -> hbm, lease" : "hbm -> pinned, eviction", size, memcpy_side(target, source),
                  up ? tensor.up() : tensor.down(&shuttle::evict));
  tensor.check_bytes();
}

// --- files ----------------------------------------------------------------------------------------------------------

template <class First>
void file_tiers(session& s, benchmark::State& state, const device& gpu, First first, const std::string& what, bool up) {
  const std::size_t size = s.chosen.size_bytes;
  const huge_pages memory{size};
  raw_file raw{s.chosen.disk, memory.span()};
  raw.write();
  s.remarks.say("the raw loop: " + raw.how());
  const vtier::mapped_file files{s.chosen.disk, {.budget = 2 * size + 64_MiB}};
  const bool direct = vtier::io::scratch_file::create(s.chosen.disk.string()).direct();
  const auto measure = [&](shuttle& tensor) {
    tensor.flush();
    const side limit{.timed = [&] { up ? raw.read() : raw.write(); }};
    s.table.compare(state, direct ? what : what + " (buffered)", size, limit,
                    up ? tensor.up() : tensor.down(&shuttle::flush));
    tensor.check_bytes();
  };
  if constexpr (First::kind == vtier::memory_kind::device) {
    shuttle tensor{s, gpu, std::move(first), files};
    measure(tensor);
  } else {
    shuttle tensor{s, gpu, gpu, std::move(first), files};
    measure(tensor);
  }
}

void device_and_files(session& s, benchmark::State& state, bool up) {
  const device gpu;
  file_tiers(s, state, gpu, vtier::hbm{gpu, {.budget = s.chosen.size_bytes + 1_MiB}},
             up ? "file -> hbm, lease" : "hbm -> file, flush", up);
}

void host_and_files(session& s, benchmark::State& state, bool up) {
  // Staging is taken from this tier too.
  file_tiers(s, state, device{}, vtier::pinned{{.budget = s.chosen.size_bytes + 64_MiB}},
             up ? "file -> pinned, lease" : "pinned -> file, flush", up);
}

// --- leases ---------------------------------------------------------------------------------------------------------

// Tensors one after another as they were made, which is how a step walks through them, or each far from the one before.
struct lease_order {
  std::size_t tensor_count;
  bool in_order;
};

void resident_leases(session& s, benchmark::State& state, lease_order order) {
  const std::size_t tensor_count = order.tensor_count;
  const std::size_t stride = order.in_order ? 1 : 7919;
  const device gpu;
  auto stream = gpu.make_stream();
  hierarchy mem{vtier::hbm{gpu, {.budget = tensor_count * 1_KiB + 1_MiB}}, vtier::pinned{{.budget = 1_MiB}}, quiet()};
  std::vector<hierarchy::tensor<word>> tensors;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    tensors.push_back(mem.make_tensor<word>({16}, vtier::role::parameter));
    const auto lease = tensors.back().write(stream);
    gpu.fill(stream, lease.data(), std::byte{0}, tensors.back().bytes());
  }
  gpu.synchronize(stream);
  std::size_t next = 0;
  const side ours{.timed =
                      [&] {
                        for (std::size_t i = 0; i < s.chosen.lease_count; ++i) {
                          next = (next + stride) % tensor_count;
                          benchmark::DoNotOptimize(tensors[next].read(stream).data());
                        }
                      },
                  .after = [&] { gpu.synchronize(stream); }};
  const std::string how = tensor_count == 1 ? "" : order.in_order ? ", in order" : ", far apart";
  s.table.time(state, "read lease on resident bytes, " + std::to_string(tensor_count) + " live" + how,
               s.chosen.lease_count, ours);
  const auto counted = mem.count();
  if (counted.hit_count + tensor_count < counted.lease_count) throw std::runtime_error("a lease found its tensor away");
}

settings read_arguments(int argc, char** argv) {
  vtier::bench::arguments given{argc, argv};
  settings chosen;
  if (given.flag("--smoke")) {
    chosen.size_bytes = 4_MiB;
    chosen.rounds = 3;
    chosen.lease_count = 1000;
    chosen.tensor_count_max = 20'000;
  }
  constexpr std::size_t unit = raw_file::request_bytes;
  chosen.size_bytes = (given.bytes("--size", chosen.size_bytes) + unit - 1) / unit * unit;
  chosen.rounds = given.count("--rounds", chosen.rounds);
  chosen.json_path = given.text("--json", "");
  chosen.disk = given.text("--disk", "");
  if (chosen.disk.empty()) chosen.disk = std::filesystem::temp_directory_path();
  given.finish(usage);
  return chosen;
}

}  // namespace

int main(int argc, char** argv) try {
  benchmark::Initialize(&argc, argv);
  session s{read_arguments(argc, argv), {}, {}};
  const auto add = [&s](const char* name, auto run, auto argument) {
    s.table.add(name, s.chosen.rounds, [&s, run, argument](benchmark::State& state) { run(s, state, argument); });
  };
  add("host_to_device", device_copy, true);
  add("device_to_host", device_copy, false);
  add("pinned_to_hbm", memory_tiers, true);
  add("hbm_to_pinned", memory_tiers, false);
  add("hbm_to_file", device_and_files, false);
  add("file_to_hbm", device_and_files, true);
  add("pinned_to_file", host_and_files, false);
  add("file_to_pinned", host_and_files, true);
  add("lease_1", resident_leases, lease_order{1, true});
  add("lease_10000", resident_leases, lease_order{10'000, true});
  add("lease_10000_apart", resident_leases, lease_order{10'000, false});
  add("lease_many", resident_leases, lease_order{s.chosen.tensor_count_max, true});
  add("lease_many_apart", resident_leases, lease_order{s.chosen.tensor_count_max, false});

  std::cout << "tier_bandwidth: " << vtier::format_bytes(s.chosen.size_bytes) << ", files in " << s.chosen.disk.string()
            << "; limits: memcpy on one thread, a raw loop of file I/O\n";
  vtier::bench::table_reporter reporter{s.table};
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();

  std::vector<std::string> notes;
  for (const auto& note : s.remarks.list()) {
    std::cout << "note  " << note << '\n';
    notes.push_back(vtier::bench::json_text(note));
  }
  auto json = s.table.json();
  json.add("size_bytes", s.chosen.size_bytes).add_value("notes", vtier::bench::json_list(notes));
  vtier::bench::write_file(s.chosen.json_path, json.text());
  return s.table.failures.empty() ? 0 : 1;
} catch (const std::exception& problem) {
  std::cerr << "tier_bandwidth: " << problem.what() << '\n';
  return 1;
}
