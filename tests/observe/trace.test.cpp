// SPDX-License-Identifier: Apache-2.0
// The file is read back by a strict reader of JSON, and held against what Perfetto makes of it.

#include <vtier/observe/trace.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/machine.hpp"
#include "support/catch.hpp"
#include "support/sim_hierarchy.hpp"

namespace {

using vtier::role;
using vtier::timeline_event;
using vtier::timeline_kind;
using vtier::test::machine;

// A value of JSON; numbers as they are written, so that no digit is lost.
struct value {
  enum class type { object, array, string, number, word } is = type::word;
  std::string text;
  std::map<std::string, value> members;
  std::vector<value> items;

  [[nodiscard]] const value& at(const std::string& name) const {
    const auto found = members.find(name);
    if (found == members.end()) throw std::runtime_error("no " + name);
    return found->second;
  }
  [[nodiscard]] bool has(const std::string& name) const { return members.count(name) != 0; }
  [[nodiscard]] std::int64_t number() const { return std::stoll(at_type(type::number).text); }
  // Microseconds with exactly three decimals, as ns.
  [[nodiscard]] std::int64_t ns() const {
    const std::string& digits = at_type(type::number).text;
    const auto dot = digits.find('.');
    if (dot == std::string::npos || digits.size() - dot != 4) throw std::runtime_error("no three decimals: " + digits);
    const bool negative = digits.front() == '-';
    const std::int64_t rest = std::stoll(digits.substr(dot + 1));
    return std::stoll(digits.substr(0, dot)) * 1000 + (negative ? -rest : rest);
  }
  [[nodiscard]] const value& at_type(type wanted) const {
    if (is != wanted) throw std::runtime_error("not of the type: " + text);
    return *this;
  }
};

class reader {
 public:
  explicit reader(std::string text) : text_{std::move(text)} {}

  value read() {
    value result = any();
    skip();
    if (at_ != text_.size()) fail("something behind the end");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(why + " at " + std::to_string(at_) + ": " + text_.substr(at_, 40));
  }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (peek() == ' ' || peek() == '\n') ++at_;
  }
  void expect(char c) {
    skip();
    if (peek() != c) fail(std::string{"no "} + c);
    ++at_;
  }
  [[nodiscard]] bool next_is(char c) {
    skip();
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  value any() {
    skip();
    switch (peek()) {
      case '{': return object();
      case '[': return array();
      case '"': return string();
      default: return number_or_word();
    }
  }

  value object() {
    value result;
    result.is = value::type::object;
    expect('{');
    if (next_is('}')) return result;
    do {
      skip();
      const std::string name = string().text;
      expect(':');
      if (!result.members.emplace(name, any()).second) fail("twice " + name);
    } while (next_is(','));
    expect('}');
    return result;
  }

  value array() {
    value result;
    result.is = value::type::array;
    expect('[');
    if (next_is(']')) return result;
    do {
      result.items.push_back(any());
    } while (next_is(','));
    expect(']');
    return result;
  }

  value string() {
    value result;
    result.is = value::type::string;
    expect('"');
    while (peek() != '"') {
      const auto c = static_cast<unsigned char>(peek());
      if (at_ >= text_.size() || c < 0x20) fail("a bare control character in a string");
      if (c == '\\') {
        ++at_;
        if (peek() == 'u') {
          const std::string code = text_.substr(at_ + 1, 4);
          if (code.size() != 4 || code.find_first_not_of("0123456789abcdef") != std::string::npos) fail("no code");
          result.text += "<" + code + ">";
          at_ += 4;
        } else if (peek() == '"' || peek() == '\\') {
          result.text += peek();
        } else {
          fail("an escape that is none");
        }
        ++at_;
      } else {
        result.text += text_[at_++];
      }
    }
    ++at_;
    return result;
  }

  value number_or_word() {
    value result;
    const std::size_t from = at_;
    while (std::string{"+-.0123456789eE"}.find(peek()) != std::string::npos && peek() != '\0') ++at_;
    result.text = text_.substr(from, at_ - from);
    if (!result.text.empty()) {
      result.is = value::type::number;
      return result;
    }
    for (const char* word : {"true", "false", "null"}) {
      if (text_.compare(at_, std::string{word}.size(), word) != 0) continue;
      result.text = word;
      at_ += result.text.size();
      return result;
    }
    fail("no value");
  }

  std::string text_;
  std::size_t at_ = 0;
};

// What a viewer makes of the file: tracks with their names, slices and counters.
struct picture {
  struct slice {
    std::string name;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    bool instant;
    value args;
  };
  std::map<std::int64_t, std::string> groups;                                          // by pid
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> names;                  // by pid and tid
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<slice>> tracks;          // the same
  std::map<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>> counters;  // (ns, bytes)
  std::string lost;

  explicit picture(const std::string& text) {
    const value all = reader{text}.read();
    lost = all.at("otherData").at("lost_count").at_type(value::type::string).text;
    for (const value& e : all.at("traceEvents").at_type(value::type::array).items) {
      const std::string ph = e.at("ph").at_type(value::type::string).text;
      const std::string name = e.at("name").at_type(value::type::string).text;
      const std::pair track{e.at("pid").number(), e.at("tid").number()};
      if (ph == "M") {
        if (name == "process_name") groups[track.first] = e.at("args").at("name").text;
        if (name == "thread_name") {
          CHECK(names.emplace(track, e.at("args").at("name").text).second);
          CHECK(groups.count(track.first) == 1);
          CHECK(groups.count(track.second) == 0);  // a viewer would take it for the main thread of that group
        }
      } else if (ph == "C") {
        counters[name].emplace_back(e.at("ts").ns(), e.at("args").at("bytes").number());
      } else {
        CHECK((ph == "X" || ph == "i"));
        if (ph == "i") CHECK(e.at("s").text == "t");
        const std::int64_t begin = e.at("ts").ns();
        tracks[track].push_back({name, begin, ph == "X" ? begin + e.at("dur").ns() : begin, ph == "i", e.at("args")});
        CHECK(e.has("cat"));
      }
    }
  }

  // Slices of all rows of a track.
  [[nodiscard]] std::vector<slice> rows(const std::string& title) const {
    std::vector<slice> result;
    for (const auto& [key, name] : names) {
      if (name != title && name.rfind(title + " (", 0) != 0) continue;
      const auto& found = tracks.at(key);
      result.insert(result.end(), found.begin(), found.end());
    }
    return result;
  }

  void check_sound() const {
    for (const auto& [key, slices] : tracks) {
      REQUIRE(names.count(key) == 1);
      CAPTURE(names.at(key));
      std::int64_t free = slices.front().begin_ns;
      for (const auto& s : slices) {
        CHECK(s.begin_ns >= free);  // no overlap, and in order of time
        CHECK(s.end_ns >= s.begin_ns);
        free = s.end_ns;
      }
    }
    for (const auto& [key, name] : names) CHECK(tracks.count(key) == 1);  // no empty tracks
    for (const auto& [name, samples] : counters) {
      CAPTURE(name);
      for (std::size_t i = 1; i < samples.size(); ++i) CHECK(samples[i].first >= samples[i - 1].first);
    }
  }
};

timeline_event event(timeline_kind kind, std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t number = 1) {
  timeline_event e;
  e.kind = kind;
  e.begin_ns = begin_ns;
  e.end_ns = end_ns;
  e.number = number;
  e.size_bytes = 64;
  return e;
}

vtier::timeline three_tiers() {
  vtier::timeline t;
  t.tiers = {{"hbm", vtier::memory_kind::device, 100, 10},
             {"pinned", vtier::memory_kind::host, 200, 20},
             {"file", vtier::memory_kind::file, 300, 30}};
  t.now_ns = 9'000'000;
  return t;
}

}  // namespace

TEST_CASE("a trace of nothing is a trace", "[observe][trace]") {
  const std::string text = vtier::trace{vtier::timeline{}}.text();
  CHECK(text.back() == '\n');
  const picture seen{text};
  CHECK(seen.tracks.empty());
  CHECK(seen.counters.empty());
  CHECK(seen.lost == "0");
  CHECK(seen.groups.size() == 4);
}

TEST_CASE("every kind of event has its track, its words and its time", "[observe][trace]") {
  vtier::timeline t = three_tiers();
  t.lost_count = 17;
  t.events.push_back(event(timeline_kind::step, 1'000, 500'000, 3));
  timeline_event lease = event(timeline_kind::lease, 1'234'567, 2'000'000, 12);
  lease.what = role::optimizer;
  lease.mode = vtier::access::read_write;
  t.events.push_back(lease);
  lease.what = role::gradient;
  lease.mode = vtier::access::write;
  lease.on_host = true;
  lease.tier = 1;
  t.events.push_back(lease);
  timeline_event copy = event(timeline_kind::transfer, 1'300'000, 1'300'000, 5);
  copy.from = 0;
  copy.tier = 1;
  copy.enqueued = true;
  copy.priority = vtier::urgency::write_back;
  t.events.push_back(copy);
  timeline_event read = event(timeline_kind::transfer, 1'400'000, 1'900'000, 6);
  read.from = 2;
  read.tier = 0;
  read.priority = vtier::urgency::prefetch;
  read.ended = vtier::transfer_state::failed;
  t.events.push_back(read);
  read.begin_ns = read.end_ns;
  read.ended = vtier::transfer_state::cancelled;
  t.events.push_back(read);
  timeline_event stall = event(timeline_kind::stall, 1'500'000, 1'600'001, 6);
  for (const auto why : {vtier::stall_cause::fetch, vtier::stall_cause::room, vtier::stall_cause::reserve,
                         vtier::stall_cause::events, vtier::stall_cause::flush}) {
    stall.cause = why;
    t.events.push_back(stall);
    stall.begin_ns = stall.end_ns;
    stall.end_ns += 1000;
  }
  timeline_event sample = event(timeline_kind::occupancy, 1'700'000, 1'700'000);
  sample.tier = 2;
  sample.size_bytes = 123;
  t.events.push_back(sample);

  const picture seen{vtier::trace{t}.text()};
  seen.check_sound();
  CHECK(seen.lost == "17");
  const auto step = seen.rows("steps").at(0);
  CHECK((step.name == "step 3" && step.begin_ns == 1'000 && step.end_ns == 500'000));
  const auto one = seen.rows("optimizer").at(0);
  CHECK((one.name == "#12 read_write" && one.begin_ns == 1'234'567 && one.end_ns == 2'000'000));
  CHECK(one.args.at("bytes").number() == 64);
  CHECK(one.args.at("tensor").number() == 12);
  CHECK(one.args.at("role").text == "optimizer");
  CHECK(one.args.at("tier").text == "hbm");
  CHECK(seen.rows("gradient").at(0).name == "#12 write on host");
  const auto down = seen.rows("hbm -> pinned").at(0);
  CHECK((down.name == "#5" && down.instant && down.begin_ns == 1'300'000));
  CHECK(down.args.at("enqueued").text == "true");
  CHECK(down.args.at("priority").text == "write_back");
  const auto up = seen.rows("file -> hbm");
  REQUIRE(up.size() == 2);
  CHECK((up[0].name == "#6 failed" && !up[0].instant && up[0].end_ns == 1'900'000));
  CHECK((up[0].args.at("from").text == "file" && up[0].args.at("tier").text == "hbm"));
  CHECK(up[0].args.at("priority").text == "prefetch");
  CHECK(up[1].name == "#6 cancelled");
  const auto stalls = seen.rows("stalls");
  REQUIRE(stalls.size() == 5);
  const char* const causes[] = {"fetch: ", "room: ", "reserve: ", "events: ", "flush: "};
  for (std::size_t i = 0; i < 5; ++i) CHECK(stalls[i].name.rfind(causes[i], 0) == 0);
  CHECK(stalls[0].end_ns - stalls[0].begin_ns == 100'001);
  using samples = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(seen.counters.at("tier 0: hbm") == samples{{9'000'000, 10}});
  CHECK(seen.counters.at("tier 2: file") == samples{{1'700'000, 123}, {9'000'000, 30}});
}

TEST_CASE("times keep every ns, however long the machine runs", "[observe][trace]") {
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1}, std::int64_t{999}, std::int64_t{1'000},
                                std::int64_t{1'000'000'000'000'000'007}, std::int64_t{-1}, std::int64_t{-1'001}}) {
    CAPTURE(at);
    vtier::timeline t = three_tiers();
    t.now_ns = at + 5;
    t.events.push_back(event(timeline_kind::step, at, at + 3));
    const picture seen{vtier::trace{t}.text()};
    CHECK(seen.rows("steps").at(0).begin_ns == at);
    CHECK(seen.rows("steps").at(0).end_ns == at + 3);
    CHECK(seen.counters.at("tier 0: hbm").at(0).first == at + 5);
  }
}

TEST_CASE("what overlaps stands in rows, and no more of them than needed", "[observe][trace]") {
  vtier::timeline t = three_tiers();
  const std::pair<std::int64_t, std::int64_t> spans[] = {{0, 100},   {10, 50},   {20, 30},   {30, 40},  {50, 120},
                                                         {100, 110}, {105, 107}, {120, 120}, {120, 120}};
  std::uint64_t number = 0;
  for (const auto& [begin, end] : spans) t.events.push_back(event(timeline_kind::lease, begin, end, ++number));
  const picture seen{vtier::trace{t}.text()};
  seen.check_sound();
  CHECK(seen.rows("parameter").size() == std::size(spans));
  std::set<std::string> titles;
  for (const auto& [key, name] : seen.names) titles.insert(name);
  CHECK(titles == std::set<std::string>{"parameter", "parameter (2)", "parameter (3)"});
}

TEST_CASE("names of tiers cannot break the file, and tiers of one name are two", "[observe][trace]") {
  vtier::timeline t = three_tiers();
  t.tiers[0].name = "a\"b\\c\n\x01\xFF";
  t.tiers[1].name = t.tiers[2].name = "file";
  timeline_event copy = event(timeline_kind::transfer, 5, 7);
  copy.from = 0;
  copy.tier = 1;
  t.events.push_back(copy);
  copy.from = 1;
  copy.tier = 0;
  t.events.push_back(copy);
  copy.from = 2;
  t.events.push_back(copy);
  const std::string text = vtier::trace{t}.text();
  CHECK(text.find('\xFF') == std::string::npos);
  const picture seen{text};
  seen.check_sound();
  const std::string first = "a\"b\\c<000a><0001><fffd>";
  CHECK(seen.rows(first + " -> file").size() == 1);
  CHECK(seen.rows("file -> " + first).size() == 2);
  CHECK(seen.tracks.size() == 3);  // two links of one name are two tracks
  CHECK(seen.rows("file -> " + first).at(0).args.at("tier").text == first);
  CHECK(seen.counters.size() == 3);
  CHECK(seen.counters.count("tier 0: " + first) == 1);
}

TEST_CASE("printing, writing by pieces and text() are the same", "[observe][trace]") {
  vtier::timeline t = three_tiers();
  for (int i = 0; i < 5; ++i) t.events.push_back(event(timeline_kind::lease, i, i + 10));
  const vtier::trace all{t};
  std::ostringstream printed;
  printed << all;
  CHECK(printed.str() == all.text());
  std::size_t longest = 0;
  all.write([&](std::string_view piece) { longest = piece.size() > longest ? piece.size() : longest; });
  CHECK(longest < 400);
}

TEST_CASE("a run larger than memory shows leases, both directions, stalls and tiers", "[observe][trace]") {
  vtier::test::machine_options sizes;
  sizes.timeline_events = 100'000;
  std::set<std::string> stalls;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    machine m{seed, sizes};
    auto stream = m.gpu.make_stream();
    std::vector<machine::bytes> tensors;
    for (std::size_t i = 0; i < 12; ++i) tensors.push_back(m.make(7000, vtier::all_roles[i % vtier::role_count]));
    for (int lap = 0; lap < 2; ++lap) {
      auto step = m.mem.step();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        m.fill(stream, tensors[i], i);
        auto two = tensors[i].read(stream);
        m.expect(stream, tensors[i], i);
      }
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) m.expect(stream, tensors[i], i);
    const auto counted = m.mem.count();
    const picture seen{vtier::trace{m.mem.timeline()}.text()};
    seen.check_sound();
    CHECK(seen.lost == "0");
    CHECK(seen.rows("steps").size() == 2);
    std::size_t leases = 0;
    for (const role what : vtier::all_roles) leases += seen.rows(std::string{vtier::name(what)}).size();
    CHECK(leases == counted.lease_count);
    CHECK(counted.links.size() >= 3);
    for (const auto& link : counted.links) {
      CAPTURE(link.name);
      const auto slices = seen.rows(link.name);
      CHECK_FALSE(slices.empty());
      CHECK(slices.size() <= link.transfer_count);
      for (const auto& s : slices) CHECK(s.args.at("bytes").number() == 7000);
    }
    for (const auto& s : seen.rows("stalls")) stalls.insert(s.name.substr(0, s.name.find(':')));
    REQUIRE(seen.counters.size() == counted.tiers.size());
    for (std::size_t i = 0; i < counted.tiers.size(); ++i) {
      const auto& tier = counted.tiers[i];
      const auto& samples = seen.counters.at("tier " + std::to_string(i) + ": " + tier.name);
      CAPTURE(tier.name, samples.size());
      CHECK(samples.size() > 3);
      for (const auto& [ns, bytes] : samples) CHECK(static_cast<std::size_t>(bytes) <= tier.budget_bytes);
      CHECK(static_cast<std::size_t>(samples.back().second) == tier.used_bytes);
      CHECK(samples[samples.size() - 2].second == samples.back().second);  // the last sample knew it too
    }
  }
  CHECK(stalls.count("fetch") == 1);
  CHECK(stalls.count("room") == 1);
}
