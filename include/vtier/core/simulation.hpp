// SPDX-License-Identifier: Apache-2.0
#pragma once

// A simulated machine's time: lanes of work, run in an order that a seed chooses, on no thread at all.
//
// Simulated devices and drives put work into lanes; whenever the host calls one of them, some of the work that is due
// runs, and bytes really move at that moment. A wait that is missing shows twice: as wrong bytes where the order was
// bad, and as a violation in any order, because every use of bytes is checked against what is known to come before it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/happens_before.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/core/simulation_parts.hpp>

namespace vtier::sim {

/// A simulated machine.
///
/// Needs   devices and drives that were made with it share it
/// Gives   the same seed, the same calls: the same order of events, the same bytes
/// Threads one at a time
class world {
 public:
  explicit world(const world_options& wanted = {}) : options_{wanted}, random_{wanted.seed} {
    operations_.push_back({"start", {}, 0, 0});
    labels_.emplace_back();
    known_.advance(host);
  }
  explicit world(std::uint64_t seed) : world{world_options{.seed = seed}} {}
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  static constexpr actor host = 0;

  // ---- what a test says and asks

  /// Names what the test does from now on; violations and the log repeat it.
  void label(std::string text) {
    if (options_.logs) log("-- " + text);
    labels_.push_back(std::move(text));
  }

  /// Has a function called whenever the host waits for a moment, as another thread would act then; it may use whatever
  /// the waiting call may be used beside.
  void when_waiting(std::function<void()> act) { waiting_ = std::move(act); }

  /// Makes the occasion of a kind that comes as the nth from now, counted from 1, fail.
  void fail_at(fault what, std::uint64_t nth) {
    planned_[static_cast<std::size_t>(what)] = occasions_[static_cast<std::size_t>(what)] + nth;
  }
  /// Sets the share of occasions that fail by the seed.
  void fault_share(double share) noexcept { options_.fault_share = share; }
  /// The occasions of a kind so far, and how many failed.
  [[nodiscard]] std::uint64_t occasions(fault what) const noexcept {
    return occasions_[static_cast<std::size_t>(what)];
  }
  [[nodiscard]] std::uint64_t faults() const noexcept { return faults_; }

  /// What was done against the rules, in words, with both call sites and the seed.
  [[nodiscard]] const std::vector<std::string>& violations() const noexcept { return violations_; }
  /// The events so far, where the world logs.
  [[nodiscard]] const std::vector<std::string>& events() const noexcept { return log_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_.seed; }
  [[nodiscard]] std::int64_t now_ns() const noexcept { return now_ns_; }
  /// How many operations were submitted.
  [[nodiscard]] std::size_t operation_count() const noexcept { return operations_.size() - 1; }

  /// Says that host code, or the launched function that is running, reads or writes bytes.
  void reads(const void* first, std::size_t size_bytes) { touch(first, size_bytes, access_kind::read); }
  void writes(const void* first, std::size_t size_bytes) { touch(first, size_bytes, access_kind::write); }

  /// Runs all that is left, and reports what is left over: memory, streams, events.
  ///
  /// Needs   devices, drives and hierarchies of this world that are gone but for these handles
  void finish() {
    while (step((std::numeric_limits<std::int64_t>::max)())) {
    }
    for (const auto& l : lanes_) {
      if (!l->queue.empty()) violation("work is left in " + l->name + " that waits for an event that never passes");
    }
    for (const auto& [first, r] : regions_) {
      if (r.live) violation("leaked: " + std::to_string(r.size_bytes) + " bytes of " + r.what);
    }
    if (*live_marks_ > 0) violation("leaked: " + std::to_string(*live_marks_) + " events");
    if (live_streams_ > 0) violation("leaked: " + std::to_string(live_streams_) + " streams");
  }

  // ---- what devices and drives need

  /// The generator that decides everything.
  [[nodiscard]] random_source& random() noexcept { return random_; }

  /// Whether this occasion fails.
  [[nodiscard]] bool fails(fault what) {
    const auto i = static_cast<std::size_t>(what);
    ++occasions_[i];
    const bool planned = planned_[i] == occasions_[i];
    if (!planned && (options_.fault_share <= 0.0 || random_.uniform() >= options_.fault_share)) return false;
    ++faults_;
    if (options_.logs) log(std::string{"fault: "} + name(what) + ", occasion " + std::to_string(occasions_[i]));
    return true;
  }

  /// Another number for a device, a drive or a link.
  [[nodiscard]] std::size_t number() noexcept { return ++numbers_; }

  /// A lane of work; it goes once it is empty and nobody else holds it.
  [[nodiscard]] std::shared_ptr<lane> make_lane(std::string name) {
    lanes_.push_back(std::make_shared<lane>());
    lanes_.back()->name = std::move(name);
    lanes_.back()->who = ++actors_;
    return lanes_.back();
  }

  [[nodiscard]] std::shared_ptr<mark> make_mark(std::size_t owner) {
    auto made = std::make_shared<mark>(live_marks_);
    made->owner = owner;
    return made;
  }

  void stream_made() noexcept { ++live_streams_; }
  void stream_gone() noexcept { --live_streams_; }

  /// Puts work at the end of a lane.
  ///
  /// Gives   the stamp by which it is known
  step_stamp submit(lane& where, work next, const char* what, const call_site& from) {
    operations_.push_back({what, from, labels_.size() - 1, where.who});
    if (operations_.size() > options_.operation_count_max) endless();
    where.known.join(known_);
    if (next.after != nullptr) where.known.join(next.after->known);
    next.stamp = {where.who, where.known.advance(where.who), operations_.size() - 1};
    next.known = where.known;
    if (next.done != nullptr) next.done->known = where.known;
    known_.advance(host);  // what the host does from here on is not known to that work
    if (options_.logs) log("submit  " + describe(next.stamp.operation));
    const step_stamp stamp = next.stamp;
    where.queue.push_back(std::move(next));
    return stamp;
  }

  /// The host learns what is over by a mark that has passed.
  void learn(const mark& passed) { known_.join(passed.known); }

  /// Notes a use of bytes by whoever acts: work that runs, else the host.
  void touch(const void* first, std::size_t size_bytes, access_kind how) {
    if (running_ != nullptr) return touch_by(first, size_bytes, how, running_->stamp, running_->known);
    operations_.push_back({how == access_kind::read ? "host read" : "host write", {}, labels_.size() - 1, host});
    touch_by(first, size_bytes, how, {host, known_.of(host), operations_.size() - 1}, known_);
  }

  /// Notes that memory exists from now on, or no longer; then it gives the size that it had, 0 where there was none.
  void allocated(const void* first, std::size_t size_bytes, std::string what) {
    const auto at = reinterpret_cast<std::uintptr_t>(first);
    auto old = regions_.lower_bound(at);
    if (old != regions_.begin() && std::prev(old)->first + std::prev(old)->second.size_bytes > at) --old;
    while (old != regions_.end() && old->first < at + size_bytes) {
      if (old->second.live) violation("memory was given out twice: " + what);
      old = regions_.erase(old);
    }
    regions_[at] = {size_bytes, true, std::move(what)};
  }
  std::size_t freed(const void* first, std::size_t size_bytes) {
    const auto at = regions_.find(reinterpret_cast<std::uintptr_t>(first));
    if (at == regions_.end() || !at->second.live) {
      violation("memory was freed that is not allocated");
      return 0;
    }
    if (at->second.size_bytes != size_bytes) violation("memory was freed with another size than it was allocated with");
    at->second.live = false;
    return at->second.size_bytes;
  }
  /// Addresses that hold nothing but what is allocated there, as a device's do; or, once more, any that no longer are.
  void only_allocated(const void* first, std::size_t size_bytes) {
    arenas_[reinterpret_cast<std::uintptr_t>(first)] = size_bytes;
  }
  void any_use(const void* first) { arenas_.erase(reinterpret_cast<std::uintptr_t>(first)); }

  /// Nobody has used these bytes: the memory behind them is another one now.
  void forget(const void* first, std::size_t size_bytes) {
    history_.forget(reinterpret_cast<std::uintptr_t>(first), size_bytes);
  }

  void violation(const std::string& what) {
    if (violations_.size() >= options_.violation_count_max) return;
    violations_.push_back("seed " + std::to_string(options_.seed) + ", " + time_text() + ", during \"" +
                          labels_.back() + "\": " + what);
    if (options_.logs) log("VIOLATION: " + what);
  }

  /// A duration that the seed has made longer or shorter; without disorder, as it is.
  [[nodiscard]] std::int64_t stretched(double ns) {
    const double power = (random_.uniform() * 2.0 - 1.0) * options_.disorder;
    const bool stalls = random_.below(32) == 0 && options_.disorder > 0.0;  // once in a while something takes very long
    return 1 + static_cast<std::int64_t>((std::min)(ns * (stalls ? 64.0 : 1.0) * std::exp2(power), 1e15));
  }

  /// Lets the host take a moment, and runs what is due by then.
  void host_step() {
    if (++host_steps_ > 8 * options_.operation_count_max) endless();
    pass(static_cast<std::int64_t>(random_.below(host_step_ns_max)));
  }

  /// Lets so much time go by, and runs what is due by then.
  void pass(std::int64_t ns) {
    const std::int64_t until = now_ns_ + ns;
    while (step(until)) {
    }
    now_ns_ = (std::max)(now_ns_, until);
  }

  /// Lets time go by while the host waits, and others act.
  void wait_for(std::int64_t ns) {
    pass(ns);
    if (waiting_) waiting_();
  }

  /// Runs work, one piece after the other, until a condition holds; false where nothing is left to run and it does not.
  template <class Condition>
  bool run_until(Condition&& reached) {
    while (!reached()) {
      if (!step((std::numeric_limits<std::int64_t>::max)())) return false;
    }
    return true;
  }

  /// Whether work runs at this moment, so that the caller is a launched function.
  [[nodiscard]] bool inside_work() const noexcept { return running_ != nullptr; }

  void log(const std::string& text) {
    if (options_.logs) log_.push_back(time_text() + "  " + text);
  }

  /// An operation in words: what, in which lane, asked where, during what.
  [[nodiscard]] std::string describe(std::size_t operation) const {
    const operation_words& o = operations_[operation];
    std::string text = "#" + std::to_string(operation) + " " + o.what + " on " + lane_name(o.who);
    if (o.from.line > 0) text += " (" + file_name(o.from.file) + ":" + std::to_string(o.from.line) + ")";
    if (!labels_[o.label].empty()) text += " in \"" + labels_[o.label] + "\"";
    return text;
  }

 private:
  // Nobody can be thrown anything here: what goes round may be a destructor.
  [[noreturn]] void endless() const {
    std::string text = "seed " + std::to_string(options_.seed) + ", " + time_text() + ", during \"" + labels_.back() +
                       "\"; the last: " + describe(operations_.size() - 1);
    constexpr std::size_t shown = 40;
    for (std::size_t i = log_.size() - (std::min)(log_.size(), shown); i < log_.size(); ++i) text += "\n  " + log_[i];
    vtier::detail::assertion_failed(text.c_str(), "a simulation goes round for ever", __FILE__, __LINE__);
  }

  static constexpr std::uint64_t host_step_ns_max = 2000;

  struct operation_words {
    const char* what;
    call_site from;
    std::size_t label;
    actor who;
  };
  struct region {
    std::size_t size_bytes;
    bool live;
    std::string what;
  };

  // Runs the piece of work that is over first, if that is by `until_ns`.
  bool step(std::int64_t until_ns) {
    lane* first = nullptr;
    for (std::size_t i = 0; i < lanes_.size();) {
      lane& l = *lanes_[i];
      if (l.queue.empty()) {
        if (lanes_[i].use_count() == 1) {
          lane_names_[l.who] = l.name;
          lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
        continue;
      }
      ++i;
      const work& w = l.queue.front();
      if (w.after != nullptr && !w.after->passed) continue;
      if (l.due_ns < 0) start(l, w);
      if (first == nullptr || l.due_ns < first->due_ns) first = &l;
    }
    if (first == nullptr || first->due_ns > until_ns) return false;
    now_ns_ = (std::max)(now_ns_, first->due_ns);
    work w = std::move(first->queue.front());
    first->queue.pop_front();
    first->due_ns = -1;
    if (options_.logs) log("run     " + describe(w.stamp.operation));
    if (w.run) {
      const work* const outer = std::exchange(running_, &w);
      w.run();
      running_ = outer;
    }
    if (w.done != nullptr) {
      w.done->passed = true;
      w.done->passed_ns = now_ns_;
    }
    return true;
  }

  void start(lane& l, const work& w) {
    std::int64_t& turn = link_free_ns_[w.link];
    const std::int64_t begin = w.link == 0 ? now_ns_ : (std::max)(now_ns_, turn);
    l.due_ns = begin + w.duration_ns;
    turn = l.due_ns;
  }

  void touch_by(const void* first, std::size_t size_bytes, access_kind how, const step_stamp& by,
                const vector_clock& known) {
    if (size_bytes == 0) return;
    const auto at = reinterpret_cast<std::uintptr_t>(first);
    const auto behind = regions_.upper_bound(at);
    const auto inside = behind == regions_.begin() ? regions_.end() : std::prev(behind);
    if (inside == regions_.end() || at >= inside->first + inside->second.size_bytes) {
      const auto arena = arenas_.upper_bound(at);
      if (arena != arenas_.begin() && at < std::prev(arena)->first + std::prev(arena)->second) {
        violation("memory that is not allocated is used by " + describe(by.operation));
      }
    } else if (const region& r = inside->second; !r.live) {
      violation("freed memory (" + r.what + ") is used by " + describe(by.operation));
    } else if (at + size_bytes > inside->first + r.size_bytes) {
      violation(describe(by.operation) + " goes beyond the end of " + r.what);
    }
    history_.touch(at, size_bytes, how, by, known, [&](const step_stamp& earlier, access_kind what) {
      violation("a race: the " + std::string{how == access_kind::read ? "read" : "write"} + " by " +
                describe(by.operation) + " is not ordered behind the " +
                (what == access_kind::read ? "read" : "write") + " by " + describe(earlier.operation));
    });
  }

  [[nodiscard]] std::string lane_name(actor who) const {
    if (who == host) return "the host";
    for (const auto& l : lanes_) {
      if (l->who == who) return l->name;
    }
    const auto at = lane_names_.find(who);
    return at == lane_names_.end() ? "?" : at->second;
  }
  [[nodiscard]] std::string time_text() const { return std::to_string(now_ns_ / 1000) + " us"; }
  [[nodiscard]] static std::string file_name(const char* path) {
    const std::string text{path};
    return text.substr(text.rfind('/') + 1);
  }

  world_options options_;
  random_source random_;
  std::int64_t now_ns_ = 0;
  vector_clock known_;  // by the host
  std::map<std::uintptr_t, std::size_t> arenas_;
  std::vector<std::shared_ptr<lane>> lanes_;
  std::map<actor, std::string> lane_names_;  // of lanes that are gone
  std::map<std::size_t, std::int64_t> link_free_ns_;
  actor actors_ = 0;
  std::size_t numbers_ = 0;
  const work* running_ = nullptr;
  access_history history_;
  std::map<std::uintptr_t, region> regions_;
  std::vector<operation_words> operations_;
  std::vector<std::string> labels_;
  std::vector<std::string> violations_;
  std::vector<std::string> log_;
  std::array<std::uint64_t, fault_count> occasions_{};
  std::array<std::uint64_t, fault_count> planned_{};
  std::uint64_t faults_ = 0;
  std::function<void()> waiting_;
  std::shared_ptr<std::int64_t> live_marks_ = std::make_shared<std::int64_t>(0);
  std::int64_t live_streams_ = 0;
  std::uint64_t host_steps_ = 0;
};

}  // namespace vtier::sim
