// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small simulated machine for tests that know what they do: one device, one drive, kernels that fill and compare.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/tensors.hpp"

#include <vtier/core/simulation.hpp>
#include <vtier/device/sim.hpp>
#include <vtier/io/sim.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/sim.hpp>
#include <vtier/runtime/hierarchy.hpp>

namespace vtier::test {

/// How large the tiers of a machine are.
///
/// Units   bytes
struct machine_options {
  std::size_t hbm = 16 * 1024;
  std::size_t host = 32 * 1024;
  std::size_t file = 256 * 1024;
  std::size_t staging = 8192;
  std::size_t chunk = 4096;
  double clean_share = 0.0;
  std::size_t timeline_events = 0;
  bool plan_steps = true;
  double copy_bytes_per_ns = 16.0;
  std::vector<link_rates> links{};
  std::size_t prefetch_count = 256;
  std::size_t prefetch_bytes = 0;
  std::size_t prefetch_flight_bytes = 64 * 1024 * 1024;
  double prefetch_share = 0.5;
};

/// The machine, and a hierarchy on it.
class machine {
 public:
  using memory = hierarchy<sim::device>;
  using bytes = memory::tensor<std::uint8_t>;

  explicit machine(const sim::world_options& how, const machine_options& sizes = {})
      : world{std::make_shared<sim::world>(how)},
        gpu{world, sim::device_options{sizes.hbm, "gpu", {}, sizes.copy_bytes_per_ns, 256.0, 2000.0, 5000.0}},
        nvme{world},
        mem{hbm{gpu, {.budget = sizes.hbm}}, pinned{gpu, {.budget = sizes.host}},
            sim::file{nvme, {.budget = sizes.file}}, limits(sizes)} {}
  explicit machine(std::uint64_t seed, const machine_options& sizes = {})
      : machine{sim::world_options{.seed = seed}, sizes} {}

  [[nodiscard]] bytes make(std::size_t size, role what = role::parameter) {
    return mem.make_tensor<std::uint8_t>({size}, what);
  }

  /// Writes the pattern of a seed.
  void fill(const sim::stream& s, bytes& t, std::uint64_t seed) {
    auto lease = t.write(s);
    gpu.launch(s, [w = world.get(), p = lease.data(), n = lease.size(), seed] {
      w->writes(p, n);
      for (std::size_t i = 0; i < n; ++i) p[i] = pattern(seed, i);
    });
  }

  /// Adds a number to every byte.
  void add(const sim::stream& s, bytes& t, std::uint8_t amount) {
    auto lease = t.read_write(s);
    gpu.launch(s, [w = world.get(), p = lease.data(), n = lease.size(), amount] {
      w->reads(p, n);
      w->writes(p, n);
      for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<std::uint8_t>(p[i] + amount);
    });
  }

  /// Compares with the pattern of a seed plus a number; a difference is a violation.
  void expect(const sim::stream& s, const bytes& t, std::uint64_t seed, std::uint8_t added = 0) {
    auto lease = t.read(s);
    gpu.launch(s, [w = world.get(), p = lease.data(), n = lease.size(), seed, added] {
      w->reads(p, n);
      for (std::size_t i = 0; i < n; ++i) {
        if (p[i] != static_cast<std::uint8_t>(pattern(seed, i) + added)) {
          return w->violation("wrong bytes from " + std::to_string(i) + " on");
        }
      }
    });
  }

  std::shared_ptr<sim::world> world;
  sim::device gpu;
  sim::drive nvme;
  memory mem;

 private:
  [[nodiscard]] static options limits(const machine_options& sizes) {
    options o;
    o.progress_thread = false;
    o.staging_budget = sizes.staging;
    o.chunk_bytes_max = sizes.chunk;
    o.clean_share = sizes.clean_share;
    o.timeline_events_max = sizes.timeline_events;
    o.plan_steps = sizes.plan_steps;
    o.links = sizes.links;
    o.prefetch_count_max = sizes.prefetch_count;
    o.prefetch_bytes_max = sizes.prefetch_bytes;
    o.prefetch_flight_bytes_max = sizes.prefetch_flight_bytes;
    o.prefetch_share_max = sizes.prefetch_share;
    return o;
  }
};

/// Runs a test for many seeds; `act(machine)` makes and uses tensors, all of which are gone when it returns.
///
/// Gives   what was against the rules, the leaks at the end included; the first seed that has something ends it
template <class Act>
[[nodiscard]] std::string over_seeds(std::uint64_t count, const machine_options& sizes, Act&& act) {
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    std::shared_ptr<sim::world> world;
    std::string broken;
    {
      machine m{seed, sizes};
      world = m.world;
      act(m);
      for (const std::string& rule : m.mem.broken_rules()) broken += rule + "\n";
    }
    world->finish();
    for (const std::string& v : world->violations()) broken += v + "\n";
    if (!broken.empty()) return broken;
  }
  return {};
}

}  // namespace vtier::test
