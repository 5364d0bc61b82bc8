// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plays the leases of a training step on a hierarchy in a simulated world, as a trainer would take them.
//
// The host runs ahead: it takes and ends leases and puts computations into one stream, and waits at the end of the step
// only. Each lease looks at a few bytes of its tensor and leaves others there, so that bytes that are lost, old or
// another tensor's are a violation of the world.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <vtier/core/simulation.hpp>
#include <vtier/device/sim.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/access.hpp>

namespace vtier::bench {

/// Plays steps.
///
/// Needs   a trace without fault whose leases fit the first tier; the trace, the world and the hierarchy outlive it
/// Errors  those of leases
template <class Memory>
class step_player {
 public:
  using bytes = typename Memory::template tensor<std::uint8_t>;

  step_player(Memory& mem, sim::device gpu, const step_trace& trace)
      : mem_{&mem},
        gpu_{std::move(gpu)},
        trace_{&trace},
        stream_{gpu_.make_stream()},
        tensors_(trace.tensors.size()),
        versions_(trace.tensors.size(), 0),
        leases_(trace.leases.size()),
        moments_(trace.moment_ns.size()) {
    leases_left_.assign(trace.tensors.size(), 0);
    for (std::uint32_t i = 0; i < trace.leases.size(); ++i) {
      moments_[trace.leases[i].begin] = {i, true};
      moments_[trace.leases[i].end] = {i, false};
    }
  }

  /// What is done before a lease is taken and after it has ended, by its number: where a policy sits that knows the
  /// step.
  std::function<void(std::size_t)> before_begin = [](std::size_t) {};
  std::function<void(std::size_t)> after_end = [](std::size_t) {};
  /// Where a tensor may live.
  std::function<std::optional<placement_rule>(std::uint32_t)> rule = [](std::uint32_t) { return std::nullopt; };

  /// Makes the tensors that stay, and writes each once.
  void prepare() {
    for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
      if (trace_->tensors[t].born) continue;
      make(t);
      auto lease = tensors_[t]->write(stream_);
      touch(t, lease.data(), access::write);
      compute(0);
    }
    finish();
  }

  /// Plays one step.
  ///
  /// Gives   the virtual time at which the device was done with it, in ns
  std::int64_t play() {
    const auto scope = mem_->step();
    for (std::size_t& left : leases_left_) left = 0;
    for (const step_lease& l : trace_->leases) ++leases_left_[l.tensor];
    std::int64_t now_ns = 0;
    for (std::size_t m = 0; m < moments_.size(); ++m) {
      if (const std::int64_t ns = trace_->moment_ns[m] - now_ns; ns > 0) compute(ns);
      now_ns = trace_->moment_ns[m];
      moments_[m].begins ? begin(moments_[m].lease) : end(moments_[m].lease);
    }
    compute(trace_->duration_ns - now_ns);
    return finish();
  }

  /// A tensor, where it exists at present.
  [[nodiscard]] const std::optional<bytes>& tensor(std::uint32_t number) const { return tensors_[number]; }

 private:
  struct moment {
    std::uint32_t lease = 0;
    bool begins = false;
  };
  /// What a kernel does with a tensor.
  struct use {
    const void* place;
    std::size_t size_bytes;
    std::uint32_t tensor;
    access mode;
    std::uint64_t found;  // the version that must be there, and the one that is there afterwards
    std::uint64_t left;
  };

  void make(std::uint32_t t) {
    const step_tensor& wanted = trace_->tensors[t];
    tensors_[t].emplace(mem_->template make_tensor<std::uint8_t>({wanted.size_bytes}, wanted.what, rule(t)));
  }

  void begin(std::uint32_t number) {
    const step_lease& l = trace_->leases[number];
    if (!tensors_[l.tensor]) make(l.tensor);
    before_begin(number);
    bytes& t = *tensors_[l.tensor];
    if (l.mode == access::read) {
      auto lease = t.read(stream_);
      touch(l.tensor, lease.data(), l.mode);
      leases_[number] = std::move(lease);
    } else {
      auto lease = l.mode == access::write ? t.write(stream_) : t.read_write(stream_);
      touch(l.tensor, lease.data(), l.mode);
      leases_[number] = std::move(lease);
    }
  }

  void end(std::uint32_t number) {
    const std::uint32_t t = trace_->leases[number].tensor;
    for (const use& u : uses_) {
      if (u.tensor != t) continue;
      compute(0);  // nothing was computed since the lease began
      break;
    }
    leases_[number] = std::monostate{};
    if (--leases_left_[t] == 0 && trace_->tensors[t].born) {
      tensors_[t].reset();
    }
    after_end(number);
  }

  void touch(std::uint32_t t, const void* place, access mode) {
    const std::uint64_t found = versions_[t];
    if (writes(mode)) ++versions_[t];
    uses_.push_back({place, trace_->tensors[t].size_bytes, t, mode, found, versions_[t]});
  }

  // A kernel that takes so long, and uses what was leased since the last one.
  void compute(std::int64_t ns) {
    gpu_.compute(stream_, static_cast<double>(ns), [gpu = &gpu_, uses = std::exchange(uses_, {})] {
      for (const use& u : uses) work(*gpu, u);
    });
  }

  // The end of what is in the stream. Meanwhile the hierarchy does what it would do on a thread of its own.
  std::int64_t finish() {
    bool done = false;
    std::int64_t done_ns = 0;
    gpu_.compute(stream_, 0.0, [&] {
      done = true;
      done_ns = gpu_.now_ns();
    });
    while (!done) {
      mem_->poll();
      gpu_.pause(50'000);
    }
    gpu_.synchronize(stream_);
    return done_ns;
  }

  static void work(const sim::device& gpu, const use& u) {
    sim::world& world = gpu.machine();
    const std::size_t places[] = {0, u.size_bytes / 16 * 8, u.size_bytes - 8};
    std::byte* const first = gpu.reach(u.place);
    if (reads(u.mode)) {
      world.reads(u.place, u.size_bytes);
      for (const std::size_t at : places) {
        std::uint64_t found = 0;
        std::memcpy(&found, first + at, sizeof found);
        if (found != mark(u.tensor, u.found)) {
          world.violation("tensor " + std::to_string(u.tensor) + " has not the bytes of its version " +
                          std::to_string(u.found));
        }
      }
    }
    if (writes(u.mode)) {
      world.writes(u.place, u.size_bytes);
      const std::uint64_t left = mark(u.tensor, u.left);
      for (const std::size_t at : places) std::memcpy(first + at, &left, sizeof left);
    }
  }

  static std::uint64_t mark(std::uint32_t tensor, std::uint64_t version) {
    return (static_cast<std::uint64_t>(tensor) << 32U) + version;
  }

  Memory* mem_;
  sim::device gpu_;
  const step_trace* trace_;
  sim::stream stream_;
  std::vector<std::optional<bytes>> tensors_;
  std::vector<std::uint64_t> versions_;
  std::vector<std::variant<std::monostate, typename bytes::read_lease, typename bytes::write_lease>> leases_;
  std::vector<moment> moments_;
  std::vector<std::size_t> leases_left_;  // in this step, by tensor
  std::vector<use> uses_;                 // by leases that began since the last kernel
};

}  // namespace vtier::bench
