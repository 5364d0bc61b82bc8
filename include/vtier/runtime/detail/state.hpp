// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy consists of: tiers, blocks, transfers in flight, counters. Data and its simplest upkeep; who decides
// and who moves stands in the files beside this one.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/device/device.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/memory/ranges.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/residency/table.hpp>
#include <vtier/runtime/detail/link_counter.hpp>
#include <vtier/runtime/detail/link_speeds.hpp>
#include <vtier/runtime/detail/recorder.hpp>
#include <vtier/runtime/options.hpp>
#include <vtier/runtime/statistics.hpp>
#include <vtier/transfer/copier.hpp>

namespace vtier::detail {

/// The text of any exception.
inline std::string text_of(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown exception";
  }
}

/// One tier: memory, the map of it, and its file engine where it is in files.
template <device Device>
struct tier {
  tier(slab m, std::size_t granule_bytes)
      : memory{std::move(m)}, map{memory.properties().lazy ? 0 : memory.size_bytes(), granule_bytes} {}

  slab memory;
  ranges<typename Device::event> map;
  std::unique_ptr<io::engine> engine;
  std::size_t staging_bytes = 0;
  std::array<std::size_t, role_count> role_bytes{};
  std::array<std::size_t, role_count> role_peak_bytes{};
  std::map<std::size_t, std::size_t> reserved;  // offset: size, of reservations and of a request being served
  std::size_t reserved_bytes = 0;               // of these, what is taken already
  std::string refusal;                          // why a lazy tier did not grow when it last should have
  bool write_back_paused = false;               // after a failed write: no writes ahead of need until one succeeds

  [[nodiscard]] const std::string& name() const noexcept { return memory.properties().name; }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return memory.size_bytes(); }

  /// What staging and reservations leave for tensors, piece by piece.
  [[nodiscard]] std::vector<std::size_t> gaps() const { return gaps(reserved); }
  [[nodiscard]] std::vector<std::size_t> gaps(const std::map<std::size_t, std::size_t>& with_these) const {
    std::vector<std::size_t> result;
    std::size_t at = staging_bytes;  // taken first, so it is at the beginning
    for (const auto& [offset, size] : with_these) {
      if (offset > at) result.push_back(offset - at);
      at = offset + size;
    }
    if (budget_bytes() > at) result.push_back(budget_bytes() - at);
    return result;
  }
};

/// A transfer in flight, and whose it is.
template <device Device>
struct flight {
  typename copier<Device>::handle handle;
  block<typename Device::event>* owner = nullptr;
  std::size_t from = 0;
  std::size_t to = 0;
  std::int64_t began_ns = 0;  // where a timeline is recorded
};

/// The data of a hierarchy.
///
/// Threads every member under `lock`
template <device Device>
class state {
 public:
  using event = typename Device::event;
  using stream_ref = typename Device::stream_ref;
  using block_type = block<event>;

  state(Device device, std::vector<slab> slabs, options wanted)
      : on{std::move(device)}, limits{std::move(wanted)}, blocks{slabs.size()}, moved(slabs.size() * slabs.size()) {
    limits.check();
    if (slabs.empty()) throw usage_error("a hierarchy needs at least one tier");
    if (limits.watermarks.size() > slabs.size()) {
      throw usage_error("options.watermarks has " + std::to_string(limits.watermarks.size()) +
                        " entries, the hierarchy only " + std::to_string(slabs.size()) + " tiers");
    }
    std::size_t granule = 256;
    for (const slab& s : slabs) {
      granule = (std::max)({granule, s.properties().offset_alignment_bytes, s.properties().memory_alignment_bytes});
    }
    tiers.reserve(slabs.size());
    for (slab& s : slabs) {
      // Host memory shares the granule of the files, so that direct I/O of the last bytes stays inside the place.
      const bool shares = s.kind() == memory_kind::host;
      const std::size_t own = s.properties().alignment_bytes;
      tiers.emplace_back(std::move(s), shares ? (std::max)(granule, own) : own);
    }
    std::vector<io::engine*> engines(tiers.size(), nullptr);
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      const slab_properties& p = tiers[i].memory.properties();
      if (p.kind == memory_kind::host && !p.registered) register_host(tiers[i]);
      if (p.kind != memory_kind::file) continue;
      auto engine = tiers[i].memory.make_engine(remarks);
      VTIER_ASSERT(engine, "a slab in files that has no file engine");
      tiers[i].engine = std::make_unique<io::engine>(std::move(*engine));
      engines[i] = tiers[i].engine.get();
    }
    make_staging(granule, std::move(engines));
    record.start(limits.timeline_events_max);
    for (std::size_t i = 0; i < tiers.size(); ++i) record_occupancy(i);
  }

  state(const state&) = delete;
  state& operator=(const state&) = delete;

  // Waits for what is in flight and for every use of the memory, while all of it is still there.
  ~state() {
    moving.reset();
    const auto settle = [this](const event& e) {
      try {
        on.synchronize(e);
      } catch (...) {  // what a kernel did wrong is nobody's news any more; that it is over is what counts
      }
    };
    blocks.for_each([&](const block_type& b) {
      for (std::size_t i = 0; i < b.tier_count(); ++i) {
        for (const event& e : b.in(i).written) settle(e);
        for (const event& e : b.in(i).readers) settle(e);
      }
    });
    for (const auto& t : tiers) t.map.for_each_use(settle);
  }

  [[nodiscard]] bool passed(const event& e) const { return on.passed(e); }

  /// Takes a place; a lazy tier grows for it. Empty where there is none without an eviction.
  [[nodiscard]] std::optional<taken_range<event>> take_place(std::size_t where, std::size_t size_bytes,
                                                             range_end from = range_end::lowest) {
    auto& t = tiers[where];
    const auto has_passed = [this](const event& e) { return on.passed(e); };
    auto taken = t.map.take(size_bytes, has_passed, from);
    if (!taken && t.memory.properties().lazy && grow(where, size_bytes)) {
      taken = t.map.take(size_bytes, has_passed, from);
    }
    return taken;
  }

  /// Makes a lazy tier longer by at least `size_bytes`, more where that is to be had.
  bool grow(std::size_t where, std::size_t size_bytes) {
    auto& t = tiers[where];
    const std::size_t capacity = t.map.capacity_bytes();
    const std::size_t room = t.budget_bytes() - capacity;
    const std::size_t rounded = align_up(size_bytes, t.map.granule_bytes());
    if (rounded > room) {
      t.refusal.clear();
      return false;
    }
    for (const std::size_t step : {(std::min)(room, (std::max)(rounded, std::size_t{64_MiB})), rounded}) {
      try {
        t.memory.commit(capacity + step);
        t.map.grow(capacity + step);
        t.refusal.clear();
        return true;
      } catch (const error& e) {
        t.refusal = e.what();
      }
    }
    return false;
  }

  /// Makes room for one more use of a replica that others wait for, beside the ends of the leases in force, so that
  /// noting these needs no memory. Uses that have passed make way.
  void expect_use_of(replica<event>& r) {
    const std::size_t more = r.leases + 1;
    if (r.readers.size() <= 8 && r.readers.size() + more <= r.readers.capacity()) return;
    try {
      forget_passed(r.readers, [this](const event& e) { return on.passed(e); });
    } catch (...) {  // a device that does not say: they stay
    }
    const std::size_t needed = r.readers.size() + more;
    if (needed > r.readers.capacity()) r.readers.reserve((std::max)(needed, 2 * r.readers.size()));
  }

  /// Gives a block a place in a tier.
  void place(block_type& b, std::size_t where, taken_range<event> taken) {
    ++changes;
    b.in(where).place(taken.offset_bytes, taken.size_bytes, std::move(taken.uses));
    try {
      blocks.placed(where, b);
    } catch (...) {
      tiers[where].map.give_back(taken.offset_bytes, taken.size_bytes, b.in(where).drop());
      throw;
    }
    if (where == 0) b.wanted_offset_bytes = block_type::no_offset;
    auto& t = tiers[where];
    const auto r = static_cast<std::size_t>(b.what());
    t.role_bytes[r] += taken.size_bytes;
    t.role_peak_bytes[r] = (std::max)(t.role_peak_bytes[r], t.role_bytes[r]);
    record_occupancy(where);
  }

  /// Takes a block's place in a tier away.
  void drop(block_type& b, std::size_t where) {
    ++changes;
    auto& r = b.in(where);
    const std::size_t offset = r.offset_bytes;
    const std::size_t size = r.size_bytes;
    const std::uint64_t version = r.version;
    if (r.prefetched && version != 0) counted.prefetch_unused_bytes += b.size_bytes();
    blocks.left(where, b);
    tiers[where].map.give_back(offset, size, r.drop());
    r.leave(version, counted.step_count);
    tiers[where].role_bytes[static_cast<std::size_t>(b.what())] -= size;
    record_occupancy(where);
  }

  /// Counts bytes that were taken for a reservation.
  void count_reserved(std::size_t where, std::size_t size_bytes) noexcept {
    tiers[where].reserved_bytes += size_bytes;
    record_occupancy(where);
  }

  /// Counts bytes that a reservation has given back.
  void count_unreserved(std::size_t where, std::size_t size_bytes) noexcept {
    tiers[where].reserved_bytes -= size_bytes;
    record_occupancy(where);
  }

  /// Notes how full a tier is by now.
  void record_occupancy(std::size_t where) noexcept { record.occupancy(where, tiers[where].map.used_bytes(), on); }

  /// Keeps an error that nobody can be thrown.
  void report_error(const std::string& text) noexcept {
    try {
      if (errors.size() < notes::count_max) errors.push_back(text);
      if (limits.on_error) limits.on_error(text);
    } catch (...) {  // out of memory while telling of an error: nothing better is left to do
    }
  }

  void report_error(const char* during, const std::exception_ptr& what) noexcept {
    try {
      report_error(std::string{during} + ": " + text_of(what));
    } catch (...) {  // no memory for its words
    }
  }

  /// The largest tensor that each tier could hold beside staging and reservations.
  [[nodiscard]] std::vector<std::size_t> capacities() const {
    std::vector<std::size_t> result;
    for (const auto& t : tiers) result.push_back(largest_of(t.gaps()));
    return result;
  }

  [[nodiscard]] static std::size_t largest_of(const std::vector<std::size_t>& gaps) noexcept {
    return gaps.empty() ? 0 : *std::max_element(gaps.begin(), gaps.end());
  }

  [[nodiscard]] std::byte* address(const block_type& b, std::size_t where) const {
    return b.size_bytes() == 0 ? nullptr : tiers[where].memory.base() + b.in(where).offset_bytes;
  }

  std::mutex lock;
  Device on;
  options limits;
  notes remarks;
  std::vector<tier<Device>> tiers;
  table<event> blocks;
  std::unique_ptr<copier<Device>> moving;
  std::map<std::uint64_t, flight<Device>> flights;
  std::vector<link_counter> moved;  // from * tiers + to
  std::vector<std::string> errors;
  statistics counted;
  recorder record;                 // of the timeline
  link_speeds<Device> speeds;      // measured in recorded steps
  std::size_t promised_bytes = 0;  // what all tensors may come to need, rounded
  std::size_t largest_bytes = 0;
  std::uint64_t tick = 0;
  std::uint64_t changes = 0;  // of places, leases and transfers: what was impossible stays so until the next

 private:
  void register_host(tier<Device>& t) {
    if (on.register_host(t.memory.base(), t.memory.size_bytes())) {
      registered_.push_back({t.memory.base(), [this](void* p) { on.unregister_host(p); }});
    } else {
      remarks.say(t.name() + ": the device does not take this memory as page-locked; its copies are slower");
    }
  }

  void make_staging(std::size_t alignment, std::vector<io::engine*> engines) {
    const bool in_files = std::any_of(engines.begin(), engines.end(), [](const io::engine* e) { return e != nullptr; });
    const auto host =
        std::find_if(tiers.begin(), tiers.end(), [](const auto& t) { return t.memory.kind() == memory_kind::host; });
    std::byte* memory = nullptr;
    staging_shape shape;
    if (in_files) {
      const std::size_t chunk = align_down((std::max)(limits.chunk_bytes_max, alignment), alignment);
      std::size_t wanted = limits.staging_budget;
      if (wanted == 0) {
        wanted = host == tiers.end() ? 16 * chunk : (std::min)(host->budget_bytes() / 8, 16 * chunk);
        wanted = (std::max)(wanted, alignment);
      }
      shape = shape_staging(wanted, chunk, alignment);
      const std::size_t total = shape.chunk_bytes * shape.slot_count;
      if (shape.chunk_bytes < 64_KiB) {
        remarks.say("staging of " + format_bytes(total) + " goes in chunks of " + format_bytes(shape.chunk_bytes) +
                    ": traffic with files is slow; options.staging_budget of 512 KiB and more is better");
      }
      if (shape.slot_count == 0) {
        throw usage_error("options.staging_budget is " + format_bytes(wanted) +
                          ", less than one chunk: the files need at least " + format_bytes(alignment));
      }
      if (host == tiers.end()) {
        own_staging_ = {on.allocate_host(total), [this, total](void* p) {
                          share_with_children(p, total);
                          on.deallocate_host(p, total);
                        }};
        keep_from_children(own_staging_.get(), total);  // drives read and write it
        counted.staging_bytes = total;
        memory = static_cast<std::byte*>(own_staging_.get());
      } else {
        const auto taken =
            total < host->budget_bytes() ? host->map.take(total, [](const event&) { return true; }) : std::nullopt;
        if (!taken) {
          throw usage_error(host->name() + ": a budget of " + format_bytes(host->budget_bytes()) +
                            " leaves no room beside staging buffers of " + format_bytes(total) +
                            ": raise it or lower options.staging_budget (at least " + format_bytes(alignment) + ")");
        }
        host->staging_bytes = taken->size_bytes;
        memory = host->memory.base() + taken->offset_bytes;
      }
      register_with_engines(engines, {memory, total});
    }
    moving = std::make_unique<copier<Device>>(on, memory, shape, std::move(engines));
  }

  void register_with_engines(const std::vector<io::engine*>& engines, std::span<std::byte> staging) {
    std::vector<std::span<std::byte>> memory;
    for (const auto& t : tiers) {
      if (t.memory.kind() != memory_kind::host) continue;
      // The kernel takes at most 1 GiB as one buffer.
      for (std::size_t at = 0; at < t.memory.size_bytes(); at += 1_GiB) {
        memory.emplace_back(t.memory.base() + at, (std::min)(std::size_t{1_GiB}, t.memory.size_bytes() - at));
      }
    }
    if (memory.empty()) memory.push_back(staging);
    for (io::engine* engine : engines) {
      if (engine != nullptr) engine->register_buffers(memory);
    }
  }

  using host_memory = std::unique_ptr<void, std::function<void(void*)>>;
  std::vector<host_memory> registered_;
  host_memory own_staging_;
};

}  // namespace vtier::detail
