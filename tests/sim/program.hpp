// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random programs over the public interface, run on the simulated machine and checked against plain memory.
//
// A program is a string of bytes: each decision takes the next ones, and the program ends with them. So a seed, a
// fuzzer and a saved file drive the same interpreter. Everything is made small, so that tiers are full all the time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/sim.hpp>
#include <vtier/io/sim.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/sim.hpp>
#include <vtier/observe/report.hpp>
#include <vtier/runtime/hierarchy.hpp>
#include <vtier/train/activation_stack.hpp>

namespace vtier::test {

/// The decisions of a program.
class decisions {
 public:
  explicit decisions(std::span<const std::uint8_t> bytes) : bytes_{bytes} {}
  [[nodiscard]] bool over() const noexcept { return at_ >= bytes_.size(); }
  /// A number in [0, bound); 0 once the bytes are used up.
  std::size_t below(std::size_t bound) {
    std::size_t value = next();
    if (bound > 256) value = value << 8U | next();
    return value % bound;
  }

 private:
  std::size_t next() { return over() ? 0 : bytes_[at_++]; }
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// How a program is run.
struct program_options {
  std::uint64_t seed = 1;  // of the world
  bool logs = false;
  std::optional<bool> reserves{};   // whether it has reservations and watermarks; empty: its last byte decides
  std::optional<bool> deadlines{};  // whether its hints have deadlines and are taken back; empty: the byte before that
  double fault_share = -1.0;        // below 0: the program decides
  std::optional<sim::fault> fault{};  // this kind fails at its nth occasion, and nothing else
  std::uint64_t fault_nth = 1;
};

/// What came of it.
struct program_result {
  std::size_t operations = 0;
  std::uint64_t faults = 0;
  std::vector<std::string> violations;
  std::vector<std::string> events;
  std::vector<std::uint64_t> occasions;  // by kind of fault
};

/// The interpreter.
class program {
 public:
  program(std::span<const std::uint8_t> bytes, const program_options& wanted)
      : decide_{bytes},
        wanted_{wanted},
        reserves_{wanted.reserves.value_or(!bytes.empty() && bytes.back() % 2 == 1)},
        deadlines_{wanted.deadlines.value_or(bytes.size() > 1 && bytes[bytes.size() - 2] % 2 == 1)},
        world_{std::make_shared<sim::world>(sim::world_options{.seed = wanted.seed, .logs = wanted.logs})} {}

  program_result run() {
    try {
      set_up();
    } catch (const error& e) {
      allowed_only_with_faults(e, "making the hierarchy");
    }
    if (streams_.size() == stream_count) {
      world_->when_waiting([this] { somebody_else(); });
      while (!decide_.over()) one();
      world_->when_waiting({});
      wind_up();
    }
    tear_down();
    program_result result;
    result.operations = operations_;
    result.faults = world_->faults();
    result.violations = world_->violations();
    result.events = world_->events();
    for (std::size_t i = 0; i < sim::fault_count; ++i) {
      result.occasions.push_back(world_->occasions(static_cast<sim::fault>(i)));
    }
    return result;
  }

 private:
  using memory = hierarchy<sim::device>;
  using tensor = memory::tensor<std::uint8_t>;
  using expected_bytes = std::shared_ptr<const std::vector<std::uint8_t>>;  // null: any

  /// What a tensor should hold.
  struct model {
    std::size_t number = 0;
    std::size_t size = 0;
    bool on_device = true;  // whether leases on a stream are allowed
    expected_bytes expected;
    bool beside = false;  // made beside reservations: it may be larger than what they leave of a tier
    bool written = false;
    int readers = 0;
    bool writer = false;
    std::size_t changes = 0;  // leases begun, so that a call that waits sees that somebody else was there
  };
  struct owned {
    std::shared_ptr<model> should;
    tensor is;
  };
  struct open_lease {
    std::shared_ptr<model> of;
    std::variant<tensor::read_lease, tensor::write_lease> held;
    std::size_t stream;  // host_stream: of the host
    bool writes;
    bool keeps;  // the old content
  };
  // A reservation, the byte that fills it, and the one stream on which it is used.
  struct reserved_share {
    memory::reservation is;
    std::size_t stream;
    std::shared_ptr<std::uint8_t> value;  // null: any
  };
  static constexpr std::size_t host_stream = ~std::size_t{0};
  static constexpr std::size_t stream_count = 3;

  // ---- the machine

  void set_up() {
    if (wanted_.fault) {
      world_->fail_at(*wanted_.fault, wanted_.fault_nth);
    } else if (wanted_.fault_share >= 0.0) {
      world_->fault_share(wanted_.fault_share);
    } else {
      const std::size_t mode = decide_.below(8);
      if (mode == 6) world_->fault_share(1.0 / 64);
      if (mode == 7) world_->fault_share(1.0 / 12);
    }
    const std::size_t kind = decide_.below(8);
    const std::size_t hbm_bytes = 4096 + decide_.below(16) * 1024;
    const std::size_t host_bytes = (3 + decide_.below(10)) * 4096;
    const std::size_t file_bytes = (8 + decide_.below(64)) * 4096;
    const std::size_t alignment = std::size_t{512} << decide_.below(4);
    gpu_.emplace(world_, sim::device_options{hbm_bytes + 4096, "gpu", {}, 16.0, 256.0, 2000.0, 5000.0});
    nvme_.emplace(world_, sim::drive_options{file_bytes + decide_.below(2) * 65536, "nvme", 1 + decide_.below(8),
                                             alignment, 4, 4.0, 20'000.0});
    say("tiers of kind " + std::to_string(kind) + ": hbm " + std::to_string(hbm_bytes) + ", host " +
        std::to_string(host_bytes) + ", files " + std::to_string(file_bytes) + " in blocks of " +
        std::to_string(alignment));
    options limits;
    limits.progress_thread = false;
    limits.chunk_bytes_max = std::size_t{4096} << decide_.below(2);
    limits.staging_budget = 4096 * (1 + decide_.below(2));
    limits.prefetch_count_max = 1 + decide_.below(8);
    limits.clean_share = decide_.below(2) == 0 ? 0.0 : 0.25;
    if (reserves_) {
      const std::size_t marked = decide_.below(4);
      for (std::size_t i = 0; i < marked && i < (kind == 3 ? 1U : 2U); ++i) {
        const double low = 0.125 * static_cast<double>(1 + decide_.below(7));
        limits.watermarks.push_back({low + 0.125 * static_cast<double>(decide_.below(2)), low});
      }
    }
    if (deadlines_) {
      limits.prefetch_bytes_max = 1024 * decide_.below(16);
      limits.prefetch_flight_bytes_max = 1 + 4096 * decide_.below(4);
      limits.prefetch_share_max = 0.25 * static_cast<double>(1 + decide_.below(4));
    }
    const hbm fast{*gpu_, {.budget = hbm_bytes}};
    const pinned host{*gpu_, {.budget = host_bytes}};
    const sim::file disk{*nvme_, {.budget = file_bytes}};
    switch (kind) {
      case 0: mem_.emplace(fast, host, limits); break;
      case 1: mem_.emplace(fast, disk, limits); break;
      case 2: mem_.emplace(*gpu_, host, disk, limits); break;
      case 3: mem_.emplace(fast, limits); break;
      case 4: mem_.emplace(fast, host, pinned{*gpu_, {.budget = host_bytes * 2, .name = "far"}}, disk, limits); break;
      default: mem_.emplace(fast, host, disk, limits); break;
    }
    const auto counted = mem_->count();
    const auto& first = counted.tiers.front();
    for (const auto& t : counted.tiers) capacity_ += t.budget_bytes - t.staging_bytes;
    rules_ = decide_.below(3) == 0;
    roomy_host_ = kind != 0 && kind != 3;
    largest_ = (std::min)(first.budget_bytes - first.staging_bytes, host_bytes) - 1024;
    stack_.emplace(*mem_, activation_stack_options{decide_.below(3), decide_.below(3)});
    for (std::size_t i = 0; i < stream_count; ++i) streams_.push_back(gpu_->make_stream());
  }

  // ---- one step of the program

  void one() {
    ++operations_;
    if (decide_.below(4) == 0) mem_ ? static_cast<void>(mem_->poll()) : static_cast<void>(0);
    const std::size_t what = decide_.below(reserves_ ? 40 : 32);
    if (what >= 32 && what < 35) return reserve();
    if (what >= 35 && what < 37) return use_reservation();
    if (what >= 37) return release_reservation();
    if (what < 5) return create();
    if (what < 16) return begin_lease();
    if (what < 20) return end_lease();
    if (what < 24) return hint();
    if (what == 24) return flush();
    if (what == 25) return destroy();
    if (what == 26) return move();
    if (what == 27) return push();
    if (what == 28) return pop();
    if (what == 29) return new_stream();
    if (what == 30) return step();
    world_->pass(static_cast<std::int64_t>(decide_.below(2) == 0 ? 10'000 : 1'000'000));
    check_rules();
  }

  // What another thread does while this one waits.
  void somebody_else() {
    if (depth_ >= 2 || decide_.over() || decide_.below(8) != 0) return;
    ++depth_;
    one();
    --depth_;
  }

  void say(std::string text) { world_->label(std::move(text)); }
  [[nodiscard]] owned* any() { return tensors_.empty() ? nullptr : tensors_[decide_.below(tensors_.size())].get(); }

  void create() {
    if (tensors_.size() >= 24 || !mem_) return;
    const std::size_t size = decide_.below(12) == 0 ? 0 : 1 + decide_.below(largest_);
    std::optional<placement_rule> rule;
    if (rules_ && decide_.below(6) == 0) rule = placement_rule{static_cast<std::uint32_t>(1 + decide_.below(15))};
    auto should = std::make_shared<model>();
    should->number = ++tensor_count_;
    should->size = size;
    should->on_device = !rule || rule->allows(0);
    ruled_ = ruled_ || rule;
    should->beside = !reservations_.empty() || reserving_ > 0;
    say("make t" + std::to_string(should->number) + " of " + std::to_string(size) + " bytes" +
        (rule ? ", tiers " + std::to_string(rule->allowed_tiers) : ""));
    try {
      tensors_.push_back(std::make_unique<owned>(
          owned{should, mem_->make_tensor<std::uint8_t>({size}, all_roles[decide_.below(role_count)], rule)}));
    } catch (const out_of_memory&) {  // the tiers are full: an answer like another
      world_->log("no room for it");
    } catch (const error& e) {
      allowed_only_with_faults(e, "make_tensor");
    }
    check_rules();
  }

  void begin_lease() {
    owned* const t = any();
    if (t == nullptr || leases_.size() >= 4) return;
    const std::size_t mode = decide_.below(3);
    const std::size_t where = decide_.below(6) == 0 ? host_stream : decide_.below(stream_count);
    const std::shared_ptr<model> of = t->should;
    const bool writes = mode != 0;
    const bool keeps = mode != 1;
    const bool trying = decide_.below(3) == 0;
    static constexpr const char* words[] = {"read", "write", "read_write"};
    say((trying ? "try_" : "") + std::string{words[mode]} + " t" + std::to_string(of->number) +
        (where == host_stream ? " on the host" : " on stream " + std::to_string(where)));
    const auto conflict = [&] { return of->writer || (writes && of->readers > 0); };
    const bool placed_elsewhere = where != host_stream && !of->on_device && of->size > 0;
    const bool refused = conflict() || (keeps && !of->written && of->size > 0) || placed_elsewhere;
    const bool alone = leases_.empty() && depth_ == 0;
    const std::size_t changes = of->changes;
    // Somebody else may destroy tensors while this call waits, but not the one that it is about.
    const busy guard{busy_, of->number};
    try {
      const auto take = [&](auto place) -> std::optional<open_lease> {
        tensor& is = t->is;
        if (trying) {
          if (mode == 0) return wrap(of, is.try_read(place), where, writes, keeps);
          return wrap(of, mode == 1 ? is.try_write(place) : is.try_read_write(place), where, writes, keeps);
        }
        if (mode == 0) return wrap(of, std::optional{is.read(place)}, where, writes, keeps);
        return wrap(of, std::optional{mode == 1 ? is.write(place) : is.read_write(place)}, where, writes, keeps);
      };
      auto got = where == host_stream ? take(on_host) : take(sim::stream_ref{streams_[where]});
      if (!got) return no_room(promised(where, *of) && alone && changes == of->changes, "a try_ lease");
      if (refused) world_->violation("a lease was granted that should have been refused");
      begun(std::move(*got));
    } catch (const usage_error& e) {
      const bool no_host_tier = where == host_stream;  // then there may be no tier that the host can touch
      if (!refused && !conflict() && changes == of->changes && !no_host_tier) {
        world_->violation(std::string{"a lease was refused without a reason: "} + e.what());
      }
    } catch (const out_of_memory& e) {
      no_room(promised(where, *of) && alone && changes == of->changes, e.what());
    } catch (const error& e) {
      allowed_only_with_faults(e, "a lease");
    }
    check_rules();
    if (decide_.below(4) != 0 && !leases_.empty()) end_lease();
  }

  template <class Lease>
  static std::optional<open_lease> wrap(const std::shared_ptr<model>& of, std::optional<Lease> got, std::size_t where,
                                        bool writes, bool keeps) {
    if (!got) return std::nullopt;
    return open_lease{of, std::move(*got), where, writes, keeps};
  }

  // Room in the first tier is promised when a tensor is made, as long as none has a rule of its own: close to the brim
  // those can be in each other's way, and the last free pieces need not fit together. In the tier that the host uses it
  // is promised where files are below.
  [[nodiscard]] bool promised(std::size_t where, const model& m) const {
    if (m.beside && !reservations_.empty()) return false;
    return !ruled_ && !brimful() && (where != host_stream || roomy_host_);
  }
  [[nodiscard]] bool brimful() const {
    std::size_t sum = 0;
    std::size_t largest = 0;
    const auto count = [&](const model& m) {
      const std::size_t rounded = (m.size + 4095) / 4096 * 4096;
      sum += rounded;
      largest = (std::max)(largest, rounded);
    };
    for (const auto& t : tensors_) count(*t->should);
    for (const auto& m : stack_model_) count(*m);
    std::size_t reserved = 0;  // and what stays in each piece of a tier that reservations have cut up
    for (const auto& r : reservations_) reserved += (r->is.size_bytes() + 4095) / 4096 * 4096 + largest;
    return sum + 2 * largest + reserved > capacity_;
  }

  void no_room(bool nobody, const std::string& text) {
    if (nobody && leases_.empty() && world_->faults() == 0) {
      world_->violation("no room although nothing is leased and nothing failed: " + text);
    }
  }

  void begun(open_lease l) {
    model& m = *l.of;
    ++m.changes;
    if (l.writes) {
      m.writer = m.written = true;
      if (!l.keeps) m.expected = nullptr;
    } else {
      ++m.readers;
    }
    leases_.push_back(std::move(l));
    const std::size_t kernels = decide_.below(3);
    for (std::size_t i = 0; i < kernels; ++i) work(leases_.back());
  }

  // A kernel, or host code, that uses what the lease allows.
  void work(open_lease& l) {
    model& m = *l.of;
    if (m.size == 0) return;
    const std::uint8_t amount = static_cast<std::uint8_t>(1 + decide_.below(250));
    const bool whole = l.writes && !l.keeps;
    std::uint8_t* const place = std::visit([](auto& h) { return const_cast<std::uint8_t*>(h.data()); }, l.held);
    expected_bytes next = m.expected;
    if (l.writes && (whole || m.expected != nullptr)) {
      auto changed = std::make_shared<std::vector<std::uint8_t>>(
          whole || m.expected == nullptr ? std::vector<std::uint8_t>(m.size) : *m.expected);
      for (std::size_t i = 0; i < m.size; ++i) {
        (*changed)[i] = static_cast<std::uint8_t>(whole ? amount + i * 7 + (i >> 8U) : (*changed)[i] + amount);
      }
      next = std::move(changed);
    }
    const auto act = [w = world_.get(), place, size = m.size, before = whole ? nullptr : m.expected,
                      after = l.writes ? next : nullptr, reads = !whole, number = m.number] {
      if (reads) w->reads(place, size);
      if (before != nullptr && !std::equal(before->begin(), before->end(), place)) {
        const auto at = std::mismatch(before->begin(), before->end(), place).first - before->begin();
        w->violation("t" + std::to_string(number) + " holds wrong bytes from " + std::to_string(at) + " on");
      }
      if (after == nullptr) return;
      w->writes(place, size);
      std::copy(after->begin(), after->end(), place);
    };
    if (l.stream == host_stream) {
      act();
      m.expected = next;
      return;
    }
    try {
      gpu_->launch(streams_[l.stream], act);
      if (l.writes) m.expected = next;
    } catch (const error& e) {
      allowed_only_with_faults(e, "launch");
    }
  }

  void end_lease() {
    if (leases_.empty()) return;
    const std::size_t at = decide_.below(leases_.size());
    open_lease l = std::move(leases_[at]);
    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(at));
    say("end a lease on t" + std::to_string(l.of->number));
    std::visit([](auto& h) { h.end(); }, l.held);
    if (l.writes) {
      l.of->writer = false;
    } else {
      --l.of->readers;
    }
    check_rules();
  }

  void hint() {
    owned* const t = any();
    if (t == nullptr || !mem_) return;
    const std::size_t tier = decide_.below(mem_->tier_count());
    const std::size_t how = decide_.below(deadlines_ ? 8 : 2);
    const auto deadline = how < 2 ? 0 : world_->now_ns() + static_cast<std::int64_t>(decide_.below(16)) * 20'000;
    static constexpr const char* words[] = {"prefetch t", "evict t", "take back the prefetch of t"};
    say(words[how < 2    ? how
              : how == 7 ? 2
                         : 0] +
        std::to_string(t->should->number) + ", tier " + std::to_string(tier) +
        (how < 2 ? "" : ", by " + std::to_string(deadline) + " ns"));
    try {
      if (how == 0) mem_->prefetch(t->is, tier);
      if (how == 1) mem_->evict(t->is, tier);
      if (how > 1 && how < 7) mem_->prefetch(t->is, tier, deadline);
      if (how == 7) mem_->cancel_prefetch(t->is);
    } catch (const error& e) {
      world_->violation(std::string{"a hint threw: "} + e.what());
    }
    check_rules();
  }

  void flush() {
    owned* const t = any();
    if (t == nullptr || !mem_) return;
    const std::shared_ptr<model> of = t->should;
    say("flush t" + std::to_string(of->number));
    const bool leased = of->writer || of->readers > 0;
    const bool alone = leases_.empty() && depth_ == 0;
    const std::size_t changes = of->changes;
    const busy guard{busy_, of->number};
    try {
      mem_->flush(t->is);
    } catch (const usage_error& e) {
      if (!leased && changes == of->changes) world_->violation(std::string{"a flush was refused: "} + e.what());
    } catch (const out_of_memory& e) {
      no_room(promised(host_stream, *of) && alone && changes == of->changes, e.what());
    } catch (const error& e) {
      allowed_only_with_faults(e, "flush");
    }
    check_rules();
  }

  void reserve() {
    if (!mem_ || reservations_.size() >= 4) return;
    const std::size_t tier = decide_.below(mem_->tier_count());
    const std::size_t size = 1 + decide_.below(largest_);
    const std::size_t how = decide_.below(4);
    static constexpr std::int64_t times[] = {0, 100'000, 2'000'000, 20'000'000};
    const std::int64_t timeout = times[decide_.below(4)];
    const auto kind = mem_->count().tiers[tier].kind;
    static constexpr const char* words[] = {"reserve ", "reserve ", "try_reserve ", "reserve_up_to "};
    say(words[how] + std::to_string(size) + " in tier " + std::to_string(tier) +
        (how < 2 ? ", for " + std::to_string(timeout) + " ns" : ""));
    const std::int64_t blocked = mem_->count().blocked_ns;
    struct counted_call {
      std::size_t& calls;
      ~counted_call() { --calls; }
    };
    const counted_call guard{++reserving_};
    try {
      std::optional<memory::reservation> got;
      if (how < 2) got = mem_->reserve(tier, size, timeout);
      if (how == 2) got = mem_->try_reserve(tier, size);
      if (how == 3) got = mem_->reserve_up_to(tier, size);
      if (kind == memory_kind::file) world_->violation("a tier in files gave a reservation");
      if (how > 1 && mem_->count().blocked_ns != blocked) {
        world_->violation("a reservation that is had at once was waited for");
      }
      if (!got) return check_rules();
      if (how < 3 ? got->size_bytes() < size : got->size_bytes() == 0)
        world_->violation("less was reserved than asked");
      const std::size_t at = kind == memory_kind::host ? host_stream : decide_.below(stream_count);
      reservations_.push_back(std::make_unique<reserved_share>(reserved_share{std::move(*got), at, nullptr}));
      use(*reservations_.back());
    } catch (const usage_error& e) {
      if (kind != memory_kind::file) world_->violation(std::string{"a reservation was refused: "} + e.what());
    } catch (const out_of_memory&) {  // an answer like another
      world_->log("no room for it");
      if (how >= 2) world_->violation("a try threw for want of room");
    } catch (const error& e) {
      allowed_only_with_faults(e, "a reservation");
    }
    check_rules();
  }

  void use_reservation() {
    if (!reservations_.empty()) use(*reservations_[decide_.below(reservations_.size())]);
  }

  // Looks whether a reservation holds what was written there last, then fills it with another byte.
  void use(reserved_share& r) {
    const auto next = std::make_shared<std::uint8_t>(static_cast<std::uint8_t>(decide_.below(256)));
    say("use a reservation");
    const auto act = [w = world_.get(), p = static_cast<std::uint8_t*>(r.is.data()), n = r.is.size_bytes(),
                      before = r.value, next] {
      if (before != nullptr) {
        w->reads(p, n);
        if (std::any_of(p, p + n, [&](std::uint8_t b) { return b != *before; })) {
          w->violation("somebody wrote into a reservation");
        }
      }
      w->writes(p, n);
      std::fill(p, p + n, *next);
    };
    if (r.stream == host_stream) {
      act();
      r.value = next;
      return;
    }
    try {
      gpu_->launch(streams_[r.stream], act);
      r.value = next;
    } catch (const error& e) {
      allowed_only_with_faults(e, "launch");
    }
  }

  void release_reservation() {
    if (reservations_.empty()) return;
    const std::size_t at = decide_.below(reservations_.size());
    const bool in_order = decide_.below(2) == 0;
    const auto gone = std::move(reservations_[at]);
    reservations_.erase(reservations_.begin() + static_cast<std::ptrdiff_t>(at));
    say(in_order ? "release a reservation on its stream" : "release a reservation");
    release(*gone, in_order);
    check_rules();
  }

  void release(reserved_share& r, bool in_order) {
    if (r.stream == host_stream) return r.is.release();
    if (in_order) return r.is.release(streams_[r.stream]);
    for (int attempt = 0; attempt < 4; ++attempt) {
      try {
        gpu_->synchronize(streams_[r.stream]);
        return r.is.release();
      } catch (const error& e) {
        allowed_only_with_faults(e, "synchronize");
      }
    }
    r.is.release(streams_[r.stream]);
  }

  void destroy() {
    if (tensors_.empty()) return;
    const std::size_t at = decide_.below(tensors_.size());
    const std::size_t number = tensors_[at]->should->number;
    if (std::find(busy_.begin(), busy_.end(), number) != busy_.end()) return;
    say("destroy t" + std::to_string(number));
    const auto gone = std::move(tensors_[at]);
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void move() {
    owned* const t = any();
    if (t == nullptr || std::find(busy_.begin(), busy_.end(), t->should->number) != busy_.end()) return;
    say("move t" + std::to_string(t->should->number));
    tensor other = std::move(t->is);
    try {
      static_cast<void>(t->is.read(streams_[0]));
      world_->violation("a tensor that was moved from gave a lease");
    } catch (const usage_error&) {  // as it should be
    }
    t->is = std::move(other);
  }

  void push() {
    if (tensors_.empty() || stack_model_.size() >= 6 || !stack_) return;
    const std::size_t at = decide_.below(tensors_.size());
    if (std::find(busy_.begin(), busy_.end(), tensors_[at]->should->number) != busy_.end()) return;
    say("push t" + std::to_string(tensors_[at]->should->number));
    stack_model_.push_back(tensors_[at]->should);
    stack_->push(std::move(tensors_[at]->is));
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void pop() {
    if (stack_model_.empty()) return;
    say("pop t" + std::to_string(stack_model_.back()->number));
    tensors_.push_back(std::make_unique<owned>(owned{stack_model_.back(), stack_->pop<std::uint8_t>()}));
    stack_model_.pop_back();
  }

  void new_stream() {
    const std::size_t at = decide_.below(stream_count);
    if (depth_ > 0 || std::any_of(leases_.begin(), leases_.end(), [&](const auto& l) { return l.stream == at; }) ||
        std::any_of(reservations_.begin(), reservations_.end(), [&](const auto& r) { return r->stream == at; }))
      return;
    say("stream " + std::to_string(at) + " ends, another begins");
    try {
      streams_[at] = gpu_->make_stream();
    } catch (const error& e) {
      allowed_only_with_faults(e, "make_stream");
    }
  }

  void step() {
    if (!mem_ || depth_ > 0) return;
    if (step_) {
      step_.reset();
    } else {
      step_.reset(new memory::step_scope{mem_->step()});
    }
  }

  // ---- the end

  // Without further faults every tensor gives back what it should hold.
  void wind_up() {
    world_->fault_share(0.0);
    for (std::size_t i = 0; i < sim::fault_count; ++i)
      world_->fail_at(static_cast<sim::fault>(i), ~std::uint64_t{0} >> 1U);
    while (!leases_.empty()) end_lease();
    while (reservations_.size() > 1) release_reservation();  // the last one stays, to see that reading goes on
    say("read everything at the end");
    step_.reset();
    const bool early = decide_.below(2) == 0 || tensors_.size() % 3 == 0;
    if (early && stack_model_.empty()) {  // tensors go on without the object that made them
      stack_.reset();
      mem_.reset();
    }
    while (!stack_model_.empty()) pop();
    for (const auto& t : tensors_) {
      if (!t->should->written) continue;
      // What failed earlier may still be on its way and be told now; asked again, it must work.
      for (int attempt = 0;; ++attempt) {
        try {
          if (t->should->on_device) {
            begun(open_lease{t->should, t->is.read(streams_[0]), 0, false, true});
          } else {
            begun(open_lease{t->should, t->is.read(on_host), host_stream, false, true});
          }
          work(leases_.back());
          end_lease();
          break;
        } catch (const error& e) {
          if (world_->faults() > 0 && attempt < 3) continue;
          if (!promised(0, *t->should) && std::string{e.what()}.find("asked") != std::string::npos) break;
          world_->violation("t" + std::to_string(t->should->number) + " cannot be read at the end: " + e.what());
          break;
        }
      }
    }
    check_rules();
  }

  void tear_down() {
    say("the end");
    leases_.clear();
    for (const auto& r : reservations_) release(*r, false);
    reservations_.clear();
    stack_.reset();
    tensors_.clear();
    step_.reset();
    mem_.reset();
    streams_.clear();
    if (nvme_ && (nvme_->used_bytes() > 0 || nvme_->file_count() > 0)) world_->violation("files are left on the drive");
    if (gpu_ && gpu_->memory().free_bytes != gpu_->memory().total_bytes) world_->violation("device memory is left");
    nvme_.reset();
    gpu_.reset();
    world_->finish();
  }

  void check_rules() {
    if (!mem_) return;
    for (const std::string& rule : mem_->broken_rules()) world_->violation("a broken rule: " + rule);
    const auto counted = mem_->count();
    for (const auto& tier : counted.tiers) {
      if (tier.peak_bytes > tier.budget_bytes) world_->violation(tier.name + " held more than its budget");
    }
  }

  void allowed_only_with_faults(const error& e, const std::string& doing) {
    if (world_->faults() == 0) world_->violation(doing + " failed although nothing was made to fail: " + e.what());
  }

  struct busy {
    busy(std::vector<std::size_t>& list, std::size_t number) : list_{&list} { list.push_back(number); }
    busy(const busy&) = delete;
    busy& operator=(const busy&) = delete;
    ~busy() { list_->pop_back(); }
    std::vector<std::size_t>* list_;
  };

  decisions decide_;
  program_options wanted_;
  bool reserves_;
  bool deadlines_;
  std::shared_ptr<sim::world> world_;
  std::optional<sim::device> gpu_;
  std::optional<sim::drive> nvme_;
  std::optional<memory> mem_;
  std::vector<sim::stream> streams_;
  std::vector<std::unique_ptr<owned>> tensors_;
  std::vector<open_lease> leases_;
  std::optional<activation_stack<memory>> stack_;
  std::vector<std::shared_ptr<model>> stack_model_;
  std::vector<std::unique_ptr<reserved_share>> reservations_;
  std::size_t reserving_ = 0;  // calls that wait for a reservation
  std::unique_ptr<memory::step_scope> step_;
  std::vector<std::size_t> busy_;  // tensors that a waiting call is about
  std::size_t depth_ = 0;
  std::size_t largest_ = 0;
  std::size_t capacity_ = 0;
  bool rules_ = false;  // whether tensors may have rules of their own
  bool ruled_ = false;  // whether some tensor has a rule of its own
  bool roomy_host_ = false;
  std::size_t tensor_count_ = 0;
  std::size_t operations_ = 0;
};

/// The bytes of the program that a seed stands for.
inline std::vector<std::uint8_t> program_of(std::uint64_t seed) {
  random_source random{seed * 2 + 1};
  std::vector<std::uint8_t> bytes(64 + random.below(400));
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  return bytes;
}

}  // namespace vtier::test
