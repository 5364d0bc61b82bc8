// SPDX-License-Identifier: Apache-2.0
#include <vtier/observe/health.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>

#include "sim/machine.hpp"
#include "support/catch.hpp"
#include "support/sim_hierarchy.hpp"

using namespace vtier::literals;

namespace {

using vtier::check;
using vtier::health;
using vtier::role;
using vtier::severity;
using vtier::symptom;
using vtier::test::machine;
using roles = std::vector<role>;

constexpr std::int64_t ms = 1'000'000;

bool has(const std::string& where, const std::string& what) { return where.find(what) != std::string::npos; }
std::size_t at(role what) { return static_cast<std::size_t>(what); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream from{text};
  for (std::string line; std::getline(from, line);) result.push_back(line);
  return result;
}

const vtier::finding& the(const health& h, symptom what) {
  const auto found =
      std::find_if(h.findings().begin(), h.findings().end(), [&](const auto& f) { return f.what == what; });
  if (found == h.findings().end()) throw std::runtime_error("not found: " + std::string{name(what)} + "\n" + h.text());
  return *found;
}

// Exactly one finding, of that kind.
bool only(const health& h, symptom what) { return h.findings().size() == 1 && h.has(what); }

// Ten steps of 100 ms on three tiers, with traffic that is worth no word.
vtier::statistics sound() {
  vtier::statistics s;
  s.tiers.resize(3);
  s.tiers[0].name = "hbm";
  s.tiers[0].kind = vtier::memory_kind::device;
  s.tiers[0].budget_bytes = 1_GiB;
  s.tiers[1].name = "pinned";
  s.tiers[1].budget_bytes = 4_GiB;
  s.tiers[2].name = "file";
  s.tiers[2].kind = vtier::memory_kind::file;
  s.tiers[2].budget_bytes = 64_GiB;
  s.links.resize(3);
  s.links[0].name = "pinned -> hbm";
  s.links[0].from = 1;
  s.links[0].to = 0;
  s.links[1].name = "file -> pinned";
  s.links[1].from = 2;
  s.links[1].to = 1;
  s.links[2].name = "hbm -> file";
  s.links[2].from = 0;
  s.links[2].to = 2;
  for (auto& l : s.links) {
    l.moved_bytes = 1_GiB;
    l.transfer_count = 128;
    l.role_moved_bytes[at(role::parameter)] = 1_GiB;
  }
  s.tensor_peak_bytes = 6_GiB;
  s.step_count = 10;
  s.step_ns = 1000 * ms;
  s.lease_count = 1000;
  return s;
}

// So many bytes come back into hbm in each of so many steps.
vtier::statistics swaps(std::size_t step_bytes, std::uint64_t steps) {
  vtier::statistics s = sound();
  auto& l = s.links[0];
  l.swapped_bytes = step_bytes * s.step_count;
  l.swapped_step_count = steps;
  l.role_swapped_bytes[at(role::activation)] = l.swapped_bytes / 4 * 3;
  l.role_swapped_bytes[at(role::parameter)] = l.swapped_bytes / 4;
  l.moved_bytes = l.swapped_bytes / 4 * 5;
  return s;
}

}  // namespace

TEST_CASE("a run without fault is one line that says so", "[observe][health]") {
  const health h = check(sound());
  CHECK(h.findings().empty());
  CHECK(h.healthy());
  CHECK(h.text() == "  healthy: nothing found in 10 steps, host blocked for 0.0 % of their time\n");
  CHECK(check(vtier::statistics{}).text() == "  healthy: nothing found\n");
}

TEST_CASE("swapping is found where it is much and in most steps", "[observe][health]") {
  const health h = check(swaps(512_MiB, 9));
  REQUIRE(only(h, symptom::swapping));
  const auto& f = the(h, symptom::swapping);
  CHECK(f.severity == severity::warning);
  CHECK_FALSE(h.healthy());
  CHECK(f.roles == roles{role::activation, role::parameter});
  CHECK(f.tier == 0U);
  CHECK_FALSE(f.from.has_value());
  CAPTURE(f.text);
  for (const char* part :
       {"into hbm come back 512 MiB a step, in 9 of 10 steps", "80.0 % of what comes up",
        "activation 3.75 GiB, parameter 1.25 GiB in all", "does not fit: hbm has 1 GiB, all tensors are at most 6 GiB",
        "a larger budget for hbm", "activations that are computed again", "parameters of fewer bits"}) {
    CAPTURE(part);
    CHECK(has(f.text, part));
  }
  CHECK_FALSE(has(f.text, "gradients"));
  CHECK_FALSE(has(f.text, "hidden"));
  CHECK(has(h.text(), "  warning: continuous swapping: into hbm"));

  CHECK(check(swaps(1_GiB / 10 + 1, 10)).has(symptom::swapping));  // a tenth of the tier a step
  CHECK_FALSE(check(swaps(1_GiB / 10 - 1, 10)).has(symptom::swapping));
  CHECK(check(swaps(512_MiB, 5)).has(symptom::swapping));  // in half of the steps
  CHECK_FALSE(check(swaps(512_MiB, 4)).has(symptom::swapping));
  auto once = swaps(10_GiB, 1);
  once.step_count = 1;
  CHECK_FALSE(check(once).has(symptom::swapping));  // once is no habit
}

TEST_CASE("without steps, swapping is the tier twice over", "[observe][health]") {
  auto s = swaps(1_GiB, 1);
  s.step_count = 0;
  s.step_ns = 0;
  s.links[0].swapped_bytes = 2_GiB - 1;
  CHECK_FALSE(check(s).has(symptom::swapping));
  s.links[0].swapped_bytes = 2_GiB;
  const auto h = check(s);
  CHECK(has(the(h, symptom::swapping).text, "into hbm come back 2 GiB, that"));
  CHECK(the(h, symptom::swapping).severity == severity::warning);
}

TEST_CASE("swapping that nobody waits for is a remark, one that fills a link says so", "[observe][health]") {
  auto s = swaps(512_MiB, 10);
  s.links[0].busy_ns = 299 * ms;
  auto f = the(check(s), symptom::swapping);
  CHECK(f.severity == severity::remark);
  CHECK(has(f.text, "hidden"));

  s.blocked_ns = 50 * ms;  // somebody waits
  CHECK(the(check(s), symptom::swapping).severity == severity::warning);
  s.blocked_ns = 49 * ms;
  CHECK(the(check(s), symptom::swapping).severity == severity::remark);

  s.links[0].busy_ns = 300 * ms;
  f = the(check(s), symptom::swapping);
  CHECK(f.severity == severity::warning);
  CHECK(has(f.text, "pinned -> hbm is busy for 30.0 % of a step. "));
  s.links[0].busy_ns = 900 * ms;
  CHECK(has(the(check(s), symptom::swapping).text, "busy for 90.0 % of a step and sets its time"));

  // What is not known of one of the links is not hidden.
  s.links[0].busy_ns = 100 * ms;
  vtier::link_statistics direct;
  direct.name = "file -> hbm";
  direct.from = 2;
  direct.swapped_bytes = 1;
  s.links.push_back(direct);
  CHECK(the(check(s), symptom::swapping).severity == severity::warning);
  s.links.back().swapped_bytes = 0;
  CHECK(the(check(s), symptom::swapping).severity == severity::remark);
}

TEST_CASE("roles with less than a tenth of what comes back are not accused", "[observe][health]") {
  auto s = swaps(512_MiB, 10);
  auto& bytes = s.links[0].role_swapped_bytes;
  bytes = {};
  bytes[at(role::optimizer)] = 900;
  bytes[at(role::gradient)] = 100;
  CHECK(the(check(s), symptom::swapping).roles == roles{role::optimizer, role::gradient});
  bytes[at(role::gradient)] = 99;
  CHECK(the(check(s), symptom::swapping).roles == roles{role::optimizer});
}

TEST_CASE("where all tensors would fit, swapping has other reasons than size", "[observe][health]") {
  auto s = swaps(512_MiB, 10);
  s.tensor_peak_bytes = 1_GiB;
  CHECK(has(the(check(s), symptom::swapping).text, "All tensors would fit"));
  CHECK_FALSE(has(the(check(s), symptom::swapping).text, "larger budget"));
  s.tiers[0].reserved_bytes = 256;
  const std::string text = the(check(s), symptom::swapping).text;
  CHECK(has(text, "hbm has 1 GiB less 256 B for staging and reservations"));
}

TEST_CASE("a link below 60 % of its own limit is slow, once it has moved something", "[observe][health]") {
  auto s = sound();
  auto& l = s.links[1];
  l.moved_bytes = 64_MiB;
  l.transfer_count = 4;
  l.busy_ns = static_cast<std::int64_t>(64_MiB);  // 1 GB/s
  l.limit_bytes_per_ns = 1.0 / 0.61;
  CHECK(check(s).findings().empty());
  l.limit_bytes_per_ns = 1.0 / 0.59;
  l.role_moved_bytes = {};
  l.role_moved_bytes[at(role::optimizer)] = 64_MiB;
  const auto h = check(s);
  REQUIRE(only(h, symptom::slow_link));
  const auto& f = the(h, symptom::slow_link);
  CHECK(f.severity == severity::warning);
  CHECK((f.from == 2U && f.tier == 1U));
  CHECK(f.roles == roles{role::optimizer});
  CHECK(has(f.text, "file -> pinned moves 1.00 GB/s, 59.0 % of the 1.69 GB/s that it can do, in transfers of 16 MiB"));
  CHECK(has(f.text, "staging_budget"));
  CHECK_FALSE(has(f.text, "larger tensors"));
  l.transfer_count = 65;
  CHECK(has(the(check(s), symptom::slow_link).text, "fewer and larger tensors"));

  --l.moved_bytes;
  CHECK_FALSE(check(s).has(symptom::slow_link));  // too little to tell
  ++l.moved_bytes;
  l.limit_bytes_per_ns = 0.0;
  CHECK_FALSE(check(s).has(symptom::slow_link));
  l.limit_bytes_per_ns = 2.0;
  l.busy_ns = 0;
  CHECK_FALSE(check(s).has(symptom::slow_link));
  l.busy_ns = static_cast<std::int64_t>(64_MiB);
  s.links[0] = l;  // between memories
  s.links[0].from = 1;
  s.links[0].to = 0;
  CHECK(has(the(check(s), symptom::slow_link).text, "page-locked"));
}

TEST_CASE("a link that is busy for 30 % of a step is told, one that is full is a warning", "[observe][health]") {
  auto s = sound();
  auto& l = s.links[2];
  l.busy_ns = 299 * ms;
  CHECK(check(s).findings().empty());
  l.busy_ns = 300 * ms;
  auto h = check(s);
  REQUIRE(only(h, symptom::busy_link));
  CHECK(h.healthy());
  CHECK(the(h, symptom::busy_link).severity == severity::remark);
  CHECK((the(h, symptom::busy_link).from == 0U && the(h, symptom::busy_link).tier == 2U));
  CHECK(the(h, symptom::busy_link).roles == roles{role::parameter});
  CHECK(has(the(h, symptom::busy_link).text,
            "hbm -> file is busy for 30.0 % of the steps' time, for 102.39 MiB a step."));
  l.busy_ns = 899 * ms;
  CHECK(the(check(s), symptom::busy_link).severity == severity::remark);
  l.busy_ns = 5000 * ms;
  h = check(s);
  CHECK(the(h, symptom::busy_link).severity == severity::warning);
  CHECK(has(the(h, symptom::busy_link).text, "busy for 100.0 %"));  // what is more was outside of steps
  l.busy_ns = 900 * ms;
  CHECK(the(check(s), symptom::busy_link).severity == severity::warning);

  l.busy_ns = 0;  // what is not measured follows from the limit
  l.limit_bytes_per_ns = static_cast<double>(1_GiB) / static_cast<double>(301 * ms);
  CHECK(has(the(check(s), symptom::busy_link).text, "hbm -> file must be busy for 30.1 %"));
  l.limit_bytes_per_ns = static_cast<double>(1_GiB) / static_cast<double>(299 * ms);
  CHECK(check(s).findings().empty());
}

TEST_CASE("each cause of stalls is found from 5 % of the steps' time on, with its own advice", "[observe][health]") {
  struct cause {
    std::int64_t vtier::statistics::*ns;
    symptom what;
    const char* advice;
    roles concerned;
  };
  for (const cause& c :
       {cause{&vtier::statistics::blocked_fetch_ns, symptom::fetch_stall, "prefetch", {role::optimizer}},
        cause{&vtier::statistics::blocked_room_ns, symptom::room_stall, "clean_share", {role::gradient}},
        cause{&vtier::statistics::blocked_reserve_ns, symptom::reserve_stall, "try_reserve", {}},
        cause{&vtier::statistics::blocked_flush_ns, symptom::flush_stall, "flush less", {role::gradient}},
        cause{&vtier::statistics::blocked_events_ns, symptom::events_stall, "a step later", {}}}) {
    auto s = sound();
    s.links[1].role_moved_bytes = {};  // from files
    s.links[1].role_moved_bytes[at(role::optimizer)] = 1;
    s.links[2].role_moved_bytes = {};  // to files
    s.links[2].role_moved_bytes[at(role::gradient)] = 1;
    CAPTURE(c.advice);
    s.*c.ns = s.blocked_ns = 50 * ms - 1;
    CHECK(check(s).findings().empty());
    s.*c.ns = s.blocked_ns = 50 * ms;
    const auto h = check(s);
    REQUIRE(only(h, c.what));
    CHECK(the(h, c.what).severity == severity::warning);
    CHECK(has(the(h, c.what).text, "the host was blocked for 5.0 ms a step, 5.0 % of its time"));
    CHECK(has(the(h, c.what).text, c.advice));
    CHECK(the(h, c.what).roles == c.concerned);
  }
}

TEST_CASE("without steps there is nothing to hold times against, and that is said", "[observe][health]") {
  auto s = sound();
  s.step_count = 0;
  s.step_ns = 0;
  s.blocked_ns = s.blocked_fetch_ns = 900 * ms;
  s.links[0].busy_ns = 900 * ms;
  CHECK(only(check(s), symptom::no_steps));
  CHECK(check(s).healthy());
  s.links.clear();
  CHECK(only(check(s), symptom::no_steps));
  s.blocked_ns = s.blocked_fetch_ns = 0;
  CHECK(check(s).findings().empty());
}

TEST_CASE("prefetches that leave unused are found from a fifth on", "[observe][health]") {
  auto s = sound();
  s.prefetched_bytes = 1000;
  s.prefetch_unused_bytes = 199;
  CHECK(check(s).findings().empty());
  s.prefetch_unused_bytes = 200;
  const auto h = check(s);
  REQUIRE(only(h, symptom::unused_prefetch));
  CHECK(the(h, symptom::unused_prefetch).severity == severity::warning);
  CHECK(has(the(h, symptom::unused_prefetch).text, "200 B were prefetched and left again unused, 20.0 %"));
  s.prefetched_bytes = 0;  // between two moments: prefetched before the first
  CHECK(has(the(check(s), symptom::unused_prefetch).text, "100.0 %"));
}

TEST_CASE("prefetches that are dropped are found from a tenth on", "[observe][health]") {
  auto s = sound();
  s.prefetch_hit_count = 91;
  s.prefetch_dropped_count = 10;
  CHECK(check(s).findings().empty());
  s.prefetch_hit_count = 90;
  CHECK(only(check(s), symptom::refused_prefetch));
  CHECK(check(s).healthy());
  CHECK(has(check(s).text(), "10 prefetches and evictions were dropped"));
}

TEST_CASE("a recorded step that is far from its bound, or not as recorded", "[observe][health]") {
  auto s = sound();
  s.schedules.push_back({"train", true, 20, 1, 149 * ms, 90 * ms, 100 * ms, 101 * ms});
  CHECK(check(s).findings().empty());
  s.schedules[0].last_step_ns = 150 * ms;
  auto h = check(s);
  REQUIRE(only(h, symptom::slow_step));
  CHECK(has(the(h, symptom::slow_step).text,
            "train took 150.0 ms, 1.5 times the least that is possible on these tiers, 100.0 ms; it "
            "computes for 90.0 ms."));
  CHECK_FALSE(has(the(h, symptom::slow_step).text, "not planned"));
  s.schedules[0].planned = false;
  CHECK(has(the(check(s), symptom::slow_step).text, "not planned"));
  s.schedules[0].bound_ns = 0;
  CHECK(check(s).findings().empty());

  s.schedules[0].deviation_count = 2;
  h = check(s);
  REQUIRE(only(h, symptom::unsteady_step));
  CHECK(has(the(h, symptom::unsteady_step).text, "train: 2 of 20 steps"));
  CHECK_FALSE(h.healthy());
}

TEST_CASE("the oldest lease is found once it is ten steps old", "[observe][health]") {
  auto s = sound();
  s.leased = {{7, role::gradient, "hbm", 4_KiB, 1, 1000 * ms - 1}, {8, role::parameter, "hbm", 4_KiB, 1, 1}};
  CHECK(check(s).findings().empty());
  s.leased[0].age_ns = 1000 * ms;
  const auto h = check(s);
  REQUIRE(only(h, symptom::old_lease));
  CHECK(the(h, symptom::old_lease).roles == roles{role::gradient});
  CHECK(
      has(the(h, symptom::old_lease).text, "tensor #7, gradient of 4 KiB in hbm, has been under lease for 1000.0 ms"));
  s.step_count = 0;
  s.step_ns = 0;
  CHECK_FALSE(check(s).has(symptom::old_lease));
}

TEST_CASE("failures come first, writes by themselves", "[observe][health]") {
  auto s = swaps(512_MiB, 10);
  s.errors = {"a write: no space left", "a fetch: it is gone", "a write: I/O error"};
  const auto h = check(s);
  REQUIRE(h.findings().size() == 3);
  CHECK(h.findings()[0].what == symptom::failed_write);
  CHECK(h.findings()[0].severity == severity::failure);
  CHECK(has(h.findings()[0].text, "2 times, "));
  CHECK(has(h.findings()[0].text, "the last: a write: I/O error"));
  CHECK(h.findings()[1].what == symptom::other_failure);
  CHECK(has(h.findings()[1].text, "once, the last: a fetch: it is gone"));
  CHECK(h.findings()[2].what == symptom::swapping);
}

TEST_CASE("what the machine does without is told, unlocked memory as a warning", "[observe][health]") {
  auto s = sound();
  s.notes = {"no direct I/O", "pinned: memory stays unlocked, the limit is 64 KiB (ulimit -l)",
             "dram: the device does not take this memory as page-locked; its copies are slower"};
  const auto h = check(s);
  REQUIRE(h.findings().size() == 3);
  CHECK(h.findings()[0].what == symptom::unlocked_memory);
  CHECK(h.findings()[0].severity == severity::warning);
  CHECK(h.findings()[1].what == symptom::unlocked_memory);
  CHECK(h.findings()[2].what == symptom::note);
  CHECK(h.findings()[2].severity == severity::remark);
  CHECK(has(h.text(), "  remark: note: no direct I/O\n"));
}

TEST_CASE("between two moments only what happened in between counts", "[observe][health]") {
  auto before = swaps(2_GiB, 10);
  before.blocked_ns = before.blocked_fetch_ns = 900 * ms;
  before.errors = {"a write: no space left"};
  before.prefetched_bytes = before.prefetch_unused_bytes = 100;
  before.links[1].busy_ns = 900 * ms;
  CHECK_FALSE(check(before).healthy());
  auto now = before;
  now.step_count += 10;
  now.step_ns += 1000 * ms;
  CHECK(check(before, now).findings().empty());
  now.errors.emplace_back("a fetch: it is gone");
  now.blocked_ns += 100 * ms;
  now.blocked_fetch_ns += 100 * ms;
  const auto h = check(before, now);
  REQUIRE(h.findings().size() == 2);
  CHECK(h.has(symptom::other_failure));
  CHECK(has(the(h, symptom::fetch_stall).text, "10.0 ms a step"));
}

TEST_CASE("limits are the caller's", "[observe][health]") {
  auto s = sound();
  s.blocked_ns = s.blocked_fetch_ns = 10 * ms;
  CHECK(check(s).findings().empty());
  CHECK(only(check(s, {.stall_time = 0.01}), symptom::fetch_stall));
  CHECK(only(check(vtier::statistics{}, s, {.stall_time = 0.01}), symptom::fetch_stall));
}

TEST_CASE("no line is longer than 120 columns, whatever the names", "[observe][health]") {
  auto s = swaps(512_MiB, 10);
  for (auto& t : s.tiers) t.name = std::string(300, 'x');
  for (auto& l : s.links) {
    l.name = std::string(300, 'y');
    l.busy_ns = 950 * ms;
    l.limit_bytes_per_ns = 100.0;
  }
  s.blocked_ns = s.blocked_fetch_ns = 900 * ms;
  s.errors = {"a write: " + std::string(300, '/')};
  s.notes = {std::string(500, 'n')};
  const auto h = check(s);
  CHECK(h.findings().size() >= 8);
  for (const auto& line : lines_of(h.text())) CHECK(line.size() <= 120);
  CHECK(h.text().back() == '\n');
  std::ostringstream to;
  to << std::setw(9) << h;
  CHECK(has(to.str(), h.text().substr(0, 40)));
}

namespace {

vtier::test::machine_options roomy() {
  vtier::test::machine_options o;
  o.host = 1024 * 1024;
  o.staging = 512 * 1024;  // less is a note
  o.chunk = 64 * 1024;
  o.plan_steps = false;  // a plan would make the best of it
  return o;
}

// So many tensors, used one behind the other.
std::vector<machine::bytes> tensors(machine& m, std::size_t count, role what) {
  std::vector<machine::bytes> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(m.make(4096, what));
  return result;
}

}  // namespace

TEST_CASE("a trainer with twice as much as the tier swaps, and is told which roles do", "[observe][health][sim]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    machine m{seed, roomy()};
    auto stream = m.gpu.make_stream();
    auto weights = tensors(m, 4, role::parameter);
    auto moments = tensors(m, 4, role::optimizer);
    auto small = m.mem.make_tensor<std::uint8_t>({256}, role::gradient);
    for (auto& t : weights) m.fill(stream, t, 1);
    for (auto& t : moments) m.fill(stream, t, 2);
    m.fill(stream, small, 3);
    const auto before = m.mem.count();
    for (int step = 0; step < 6; ++step) {
      auto scope = m.mem.step();
      for (std::size_t i = 0; i < weights.size(); ++i) {
        m.expect(stream, weights[i], 1);
        m.add(stream, small, 1);
        m.add(stream, moments[i], 1);
        m.add(stream, small, 1);
      }
    }
    const auto now = m.mem.count();
    const health h = m.mem.health(before);
    CAPTURE(h.text());
    const auto& f = the(h, symptom::swapping);
    CHECK(f.severity == severity::warning);
    CHECK(f.tier == 0U);
    auto found = f.roles;
    std::sort(found.begin(), found.end());
    CHECK(found == roles{role::parameter, role::optimizer});
    CHECK(has(h.text(), "continuous swapping"));
    CHECK(m.mem.health().has(symptom::swapping));
    for (const auto& l : now.links) {
      CHECK(l.swapped_bytes <= l.moved_bytes);
      std::size_t sum = 0;
      for (std::size_t r = 0; r < vtier::role_count; ++r) {
        CHECK(l.role_swapped_bytes[r] <= l.role_moved_bytes[r]);
        sum += l.role_moved_bytes[r];
      }
      CHECK(sum == l.moved_bytes);
    }
  }
}

TEST_CASE("the sums of what comes back are right to the byte", "[observe][health][sim]") {
  machine m{1, roomy()};
  auto stream = m.gpu.make_stream();
  auto weights = tensors(m, 8, role::parameter);  // hbm takes four
  for (auto& t : weights) m.fill(stream, t, 1);
  const auto before = m.mem.count();
  for (int step = 0; step < 5; ++step) {
    auto scope = m.mem.step();
    for (auto& t : weights) m.expect(stream, t, 1);
  }
  const auto counted = vtier::counted_since(before, m.mem.count());
  std::size_t up = 0;
  std::size_t back = 0;
  std::uint64_t steps = 0;
  for (const auto& l : counted.links) {
    if (l.to != 0) continue;
    up += l.moved_bytes;
    back += l.swapped_bytes;
    steps = (std::max)(steps, l.swapped_step_count);
  }
  CHECK(up == std::size_t{5} * 8 * 4096);  // used in a circle, none of them is ever there
  CHECK(back == up);
  CHECK(steps == 5);
}

TEST_CASE("a trainer that fits, or whose bytes are written anew, swaps nothing", "[observe][health][sim]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    machine m{seed, roomy()};
    auto stream = m.gpu.make_stream();
    {
      auto weights = tensors(m, 3, role::parameter);
      for (auto& t : weights) m.fill(stream, t, 1);
      for (int step = 0; step < 6; ++step) {
        auto scope = m.mem.step();
        for (auto& t : weights) m.expect(stream, t, 1);
      }
      const health h = m.mem.health();
      CAPTURE(h.text());
      CHECK(h.findings().empty());
    }
    auto fresh = tensors(m, 8, role::activation);
    const auto before = m.mem.count();
    for (int step = 0; step < 6; ++step) {
      auto scope = m.mem.step();
      for (auto& t : fresh) m.fill(stream, t, 1);
    }
    CHECK_FALSE(m.mem.health(before).has(symptom::swapping));
  }
}

TEST_CASE("stalls on a drive that is waited for are found, by cause, and the link is busy", "[observe][health][sim]") {
  std::size_t fetches = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    auto sizes = roomy();
    sizes.host = 544 * 1024;
    machine m{seed, sizes};
    auto stream = m.gpu.make_stream();
    auto weights = tensors(m, 24, role::parameter);
    for (auto& t : weights) m.fill(stream, t, 1);
    const auto before = m.mem.count();
    const std::int64_t began = m.gpu.now_ns();
    for (int step = 0; step < 3; ++step) {
      auto scope = m.mem.step();
      for (auto& t : weights) m.add(stream, t, 1);
    }
    const auto counted = vtier::counted_since(before, m.mem.count());
    const std::int64_t took = m.gpu.now_ns() - began;
    CHECK(counted.blocked_ns == counted.blocked_fetch_ns + counted.blocked_room_ns + counted.blocked_reserve_ns +
                                    counted.blocked_flush_ns + counted.blocked_events_ns);
    const health h = check(counted);
    CAPTURE(h.text());
    if (h.has(symptom::fetch_stall)) {
      ++fetches;
      CHECK(the(h, symptom::fetch_stall).roles == roles{role::parameter});
    }
    for (const auto& l : counted.links) {
      const bool with_files = l.from == 2 || l.to == 2;
      CHECK(l.busy_ns <= took);
      if (!with_files) CHECK(l.busy_ns == 0);
      if (with_files && l.moved_bytes > 0) CHECK(l.busy_ns > 0);
    }
  }
  CHECK(fetches > 5);
}

TEST_CASE("what a flush and a lease of the host wait for is counted", "[observe][health][sim]") {
  machine m{3, roomy()};
  auto stream = m.gpu.make_stream();
  auto t = m.make(4096);
  m.fill(stream, t, 1);
  m.mem.flush(t);
  auto counted = m.mem.count();
  CHECK(counted.blocked_flush_ns > 0);
  CHECK(counted.blocked_ns == counted.blocked_flush_ns + counted.blocked_events_ns);
  const auto before = counted.blocked_events_ns;
  m.add(stream, t, 1);
  { auto lease = t.read(vtier::on_host); }
  counted = m.mem.count();
  CHECK(counted.blocked_events_ns > before);
  CHECK(counted.blocked_ns == counted.blocked_flush_ns + counted.blocked_events_ns);
}

TEST_CASE("a prefetch that leaves unused is counted, one that was used is not", "[observe][health][sim]") {
  machine m{3, roomy()};
  auto stream = m.gpu.make_stream();
  auto weights = tensors(m, 8, role::parameter);
  for (auto& t : weights) m.fill(stream, t, 1);
  CHECK(m.mem.count().prefetched_bytes == 0);
  m.mem.prefetch(weights[0]);
  CHECK(m.mem.count().prefetched_bytes == 4096);
  m.expect(stream, weights[0], 1);
  m.mem.evict(weights[0]);
  CHECK(m.mem.count().prefetch_unused_bytes == 0);
  m.mem.prefetch(weights[0]);
  m.mem.evict(weights[0]);
  CHECK(m.mem.count().prefetched_bytes == 8192);
  CHECK(m.mem.count().prefetch_unused_bytes == 4096);
}

TEST_CASE("bytes that were prefetched halfway up and went on from there were of use", "[observe][health][sim]") {
  machine m{3, roomy()};
  auto stream = m.gpu.make_stream();
  auto t = m.make(4096);
  m.fill(stream, t, 1);
  m.mem.flush(t);
  m.mem.evict(t, 0);
  m.mem.evict(t, 1);
  REQUIRE(m.mem.count().tiers[0].used_bytes == 0);
  m.mem.prefetch(t, 1);
  for (int i = 0; i < 200; ++i) {  // until it is there
    m.gpu.pause(20'000);
    m.mem.poll();
  }
  m.expect(stream, t, 1);
  const auto links = m.mem.count().links;
  REQUIRE(std::any_of(links.begin(), links.end(), [](const auto& l) { return l.from == 1 && l.to == 0; }));
  m.mem.evict(t, 1);
  CHECK(m.mem.count().prefetched_bytes == 4096);
  CHECK(m.mem.count().prefetch_unused_bytes == 0);
}
