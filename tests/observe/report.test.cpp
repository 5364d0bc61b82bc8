// SPDX-License-Identifier: Apache-2.0
#include <vtier/observe/report.hpp>

#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;

namespace {

std::string text(const vtier::report& r) {
  std::ostringstream to;
  to << r;
  return to.str();
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream from{text};
  for (std::string line; std::getline(from, line);) result.push_back(line);
  return result;
}

// The line that begins with a word, without the blanks before it; empty where there is none.
std::string line_of(const std::string& text, const std::string& word, std::size_t number = 0) {
  for (const auto& line : lines_of(text)) {
    if (line.rfind("  " + word, 0) == 0 && number-- == 0) return line.substr(2);
  }
  return {};
}

bool has(const std::string& where, const std::string& what) { return where.find(what) != std::string::npos; }

vtier::statistics counted() {
  vtier::statistics s;
  vtier::tier_statistics hbm;
  hbm.name = "hbm";
  hbm.budget_bytes = 64_GiB;
  hbm.peak_bytes = 63_GiB;
  hbm.used_bytes = 62_GiB;
  hbm.role_bytes[static_cast<std::size_t>(vtier::role::parameter)] = 61_GiB;
  hbm.role_bytes[static_cast<std::size_t>(vtier::role::workspace)] = 1_GiB;
  vtier::tier_statistics pinned;
  pinned.name = "pinned";
  pinned.budget_bytes = 256_GiB;
  pinned.staging_bytes = 32_MiB;
  s.tiers = {hbm, pinned};
  s.links.resize(1);
  s.links[0].name = "pinned -> hbm";
  s.links[0].from = 1;
  s.links[0].moved_bytes = 3_TiB;
  s.links[0].transfer_count = 17;
  s.tensor_count = 5;
  s.tensor_bytes = 100_GiB;
  s.tensor_peak_bytes = 120_GiB;
  s.lease_count = 200;
  s.hit_count = 150;
  s.prefetch_hit_count = 40;
  s.blocked_ns = 250'000'000;
  s.blocked_fetch_ns = 200'000'000;
  s.blocked_room_ns = 50'000'000;
  s.step_count = 10;
  s.step_ns = 1'000'000'000;
  return s;
}

}  // namespace

TEST_CASE("a report of nothing is a report", "[observe][report]") {
  const vtier::report r{vtier::statistics{}};
  CHECK(r.hit_share() == 1.0);
  const std::string t = text(r);
  CHECK(t.back() == '\n');
  CHECK(has(t, "tensors: 0"));
  CHECK(has(t, "leases: 0, in place 100.0 %"));
  CHECK_FALSE(has(t, "steps"));  // no division by none
  CHECK_FALSE(has(t, "nan"));
}

TEST_CASE("a report shows every tier with its roles, every link, and the waiting", "[observe][report]") {
  const vtier::report r{counted()};
  CHECK(r.hit_share() == 0.75);
  const std::string t = text(r);
  CAPTURE(t);
  for (const char* part :
       {"hbm", "64 GiB", "63 GiB", "62 GiB", "61 GiB", "pinned", "256 GiB", "32 MiB", "pinned -> hbm", "3 TiB", "17",
        "tensors: 5 of 100 GiB (at most 120 GiB)", "leases: 200, in place 75.0 %", "by prefetch 40",
        "host blocked: 250.0 ms", "from files 200.0 ms", "for room 50.0 ms", "25.0 % of 10 steps of 100.0 ms"}) {
    CAPTURE(part);
    CHECK(has(t, part));
  }
  for (const vtier::role what : vtier::all_roles) CHECK(has(t, std::string{vtier::name(what)}));
}

TEST_CASE("columns of a table end below each other", "[observe][report]") {
  std::istringstream lines{text(vtier::report{counted()})};
  std::string head;
  std::string hbm;
  std::string pinned;
  std::getline(lines, head);
  std::getline(lines, hbm);
  std::getline(lines, pinned);
  CHECK(head.size() == hbm.size());
  CHECK(hbm.size() == pinned.size());
  CHECK(head.find("budget") + std::string{"budget"}.size() == hbm.find("64 GiB") + std::string{"64 GiB"}.size());
}

TEST_CASE("notes and errors are told one by one", "[observe][report]") {
  vtier::statistics s;
  s.notes = {"memory stays unlocked", "no direct I/O"};
  s.errors = {"a write to files failed"};
  const std::string t = text(vtier::report{s});
  CHECK(has(t, "note: memory stays unlocked\n"));
  CHECK(has(t, "note: no direct I/O\n"));
  CHECK(has(t, "error: a write to files failed\n"));
}

TEST_CASE("what is under lease is listed with its owner and its age, the oldest first (VO-D12)", "[observe][report]") {
  vtier::statistics s;
  for (std::uint64_t i = 1; i <= 10; ++i) {
    s.leased.push_back(
        {i, vtier::role::gradient, "hbm", 4096 * i, 1, static_cast<std::int64_t>(11 - i) * 1'500'000'000});
  }
  const std::string t = text(vtier::report{s});
  CAPTURE(t);
  CHECK(has(t, "leased: tensor #1, gradient of 4 KiB in hbm, for 15000.0 ms\n"));
  CHECK(has(t, "leased: tensor #8, "));
  CHECK_FALSE(has(t, "leased: tensor #9, "));
  CHECK(has(t, "leased: and 2 more\n"));
}

TEST_CASE("printing leaves the stream as it was", "[observe][report]") {
  std::ostringstream to;
  to << std::hex << std::setfill('*') << std::setprecision(3);
  to << vtier::report{counted()};
  CHECK(has(to.str(), "leases: 200"));  // not c8
  to.str("");
  to << 255 << ' ' << 1.23456;
  CHECK(to.str() == "ff 1.23");
}

TEST_CASE("names of any length and content leave the table a table (VO-B11)", "[observe][report]") {
  vtier::statistics s = counted();
  s.tiers[1].name = "two\nlines" + std::string(300, 'x');
  s.tiers[0].name = std::string(59, 'y') + "\xC3\xA9" + "z";  // a cut at 60 bytes would leave half a character
  s.links[0].name = s.tiers[1].name + " -> " + s.tiers[0].name;
  const std::string t = text(vtier::report{s});
  CAPTURE(t);
  CHECK(has(t, "two lines"));
  CHECK_FALSE(has(t, std::string(61, 'x')));
  CHECK(has(t, std::string(59, 'y') + "..."));
  std::istringstream lines{t};
  std::string head;
  std::string first;
  std::string second;
  std::getline(lines, head);
  std::getline(lines, first);
  std::getline(lines, second);
  CHECK(head.size() == first.size());
  CHECK(head.size() == second.size());
}

TEST_CASE("stalls are told by cause, those that there were", "[observe][report]") {
  vtier::statistics s = counted();
  CHECK_FALSE(has(text(vtier::report{s}), "reservations"));
  CHECK_FALSE(has(text(vtier::report{s}), "flushes"));
  CHECK_FALSE(has(text(vtier::report{s}), "kernels"));
  s.blocked_reserve_ns = 10'000'000;
  s.blocked_flush_ns = 20'000'000;
  s.blocked_events_ns = 30'000'000;
  s.blocked_ns += 60'000'000;
  const std::string t = text(vtier::report{s});
  CAPTURE(t);
  CHECK(line_of(t, "host blocked") ==
        "host blocked: 310.0 ms (for bytes from files 200.0 ms, for room 50.0 ms, for reservations 10.0 ms, in flushes "
        "20.0 ms,");
  CHECK(has(t, "\n      for kernels and copies 30.0 ms), 31.0 % of 10 steps of 100.0 ms\n"));
}

TEST_CASE("a link shows what it moved in all and a step, what came back, and its bandwidth where known",
          "[observe][report]") {
  vtier::statistics s = counted();
  CHECK(line_of(text(vtier::report{s}), "link") ==
        "link           moved  transfers      a step  came back  busy  GB/s  limit");
  CHECK(line_of(text(vtier::report{s}), "pinned -> hbm") ==
        "pinned -> hbm  3 TiB         17  307.19 GiB        0 B     -     -      -");
  s.links[0].swapped_bytes = 1_TiB;
  s.links[0].busy_ns = 412'000'000'000;
  s.links[0].limit_bytes_per_ns = 12.5;
  CHECK(line_of(text(vtier::report{s}), "pinned -> hbm") ==
        "pinned -> hbm  3 TiB         17  307.19 GiB      1 TiB  412000.0 ms  8.01  12.50");
  CHECK_FALSE(has(text(vtier::report{s}), "\n  moved"));
  s.links[0].role_moved_bytes[static_cast<std::size_t>(vtier::role::optimizer)] = 3_TiB;
  const std::string t = text(vtier::report{s});
  CAPTURE(t);
  CHECK(line_of(t, "moved") == "moved          parameter  gradient  optimizer  activation  workspace");
  CHECK(line_of(t, "pinned -> hbm", 1) == "pinned -> hbm        0 B       0 B      3 TiB         0 B        0 B");
  s.step_count = 0;
  CHECK(has(line_of(text(vtier::report{s}), "pinned -> hbm"), " 17       -  "));
}

TEST_CASE("a recorded step shows how far it is from its bound", "[observe][report]") {
  vtier::statistics s = counted();
  CHECK_FALSE(has(text(vtier::report{s}), "bound"));
  s.schedules.push_back({"train", true, 20, 1, 150'000'000, 90'000'000, 100'000'000, 120'000'000});
  s.schedules.push_back({"evaluate", false, 2, 0, 0, 0, 0, 0});
  const std::string t = text(vtier::report{s});
  CAPTURE(t);
  CHECK(line_of(t, "step ") == "step      times  otherwise      last  compute      plan     bound  last/bound");
  CHECK(line_of(t, "train") == "train        20          1  150.0 ms  90.0 ms  120.0 ms  100.0 ms         1.5");
  CHECK(line_of(t, "evaluate") == "evaluate      2          0         -        -      none         -           -");
}

TEST_CASE("unused prefetches are told where there were any", "[observe][report]") {
  vtier::statistics s = counted();
  CHECK_FALSE(has(text(vtier::report{s}), "unused"));
  s.prefetch_unused_bytes = 4_MiB;
  CHECK(has(text(vtier::report{s}), "prefetches dropped 0, unused 4 MiB; "));
}

TEST_CASE("no line is longer than 120 columns, whatever the names, notes and numbers", "[observe][report]") {
  vtier::statistics s = counted();
  constexpr std::size_t most = ~std::size_t{0};
  for (auto& t : s.tiers) {
    t.name = std::string(300, 'x');
    t.budget_bytes = t.peak_bytes = t.used_bytes = t.staging_bytes = t.reserved_bytes = (std::size_t{1} << 60U) - 1;
    t.role_bytes.fill(t.budget_bytes);
  }
  auto& l = s.links[0];
  l.name = std::string(300, 'y');
  l.moved_bytes = l.transfer_count = l.swapped_bytes = most;
  l.role_moved_bytes.fill(most);
  l.busy_ns = 1;
  l.limit_bytes_per_ns = 1e30;
  s.schedules.push_back({std::string(300, 'z'), true, ~std::uint64_t{0}, ~std::uint64_t{0}, 1'000'000'000'000'000'000,
                         1'000'000'000'000'000'000, 1, 1'000'000'000'000'000'000});
  s.staging_bytes = s.tensor_bytes = s.tensor_peak_bytes = s.evicted_ahead_bytes = s.prefetch_unused_bytes = most;
  s.lease_count = s.prefetch_hit_count = s.prefetch_dropped_count = s.clean_drop_count = ~std::uint64_t{0};
  s.blocked_reserve_ns = s.blocked_flush_ns = s.blocked_events_ns = 1'000'000'000'000'000'000;
  s.notes = {std::string(500, 'n'), "a path/" + std::string(200, 'p') + " and words after it"};
  s.errors = {std::string(119, 'e') + " " + std::string(119, 'f')};
  s.leased.push_back(
      {~std::uint64_t{0}, vtier::role::activation, std::string(300, 't'), most, 1, 1'000'000'000'000'000});
  const auto lines = lines_of(text(vtier::report{s}));
  CHECK(lines.size() > 20);
  for (const auto& line : lines) {
    CAPTURE(line);
    CHECK(line.size() <= 120);
  }
}
