// SPDX-License-Identifier: Apache-2.0
// The trainer at toy size on the simulated machine: in every order of events the same bits as in plain memory.

#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/sim.hpp>
#include <vtier/io/sim.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/sim.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "../../examples/train_gpt/host_ops.hpp"
#include "../../examples/train_gpt/trainer.hpp"

namespace train_gpt {

/// Kernels of the simulated device are host code too; on one thread, so that nothing but the seed decides.
template <>
class ops<vtier::sim::device> : public host_ops<vtier::sim::device> {
 public:
  explicit ops(vtier::sim::device on) : host_ops<vtier::sim::device>{std::move(on), 1} {}
};

}  // namespace train_gpt

namespace {

using namespace vtier::literals;
using namespace train_gpt;

constexpr gpt_shape toy{2, 16, 2, 8, 2};

std::vector<std::int32_t> tokens_of(std::uint64_t seed) {
  vtier::random_source numbers{seed};
  std::vector<std::int32_t> result(toy.batch * (toy.context + 1));
  for (auto& t : result) t = static_cast<std::int32_t>(numbers.below(4));
  return result;
}

struct outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
  std::vector<std::string> violations;
  std::size_t moved_to_files = 0;
};

outcome train(std::uint64_t order, std::size_t hbm_bytes) {
  outcome result;
  const auto world = std::make_shared<vtier::sim::world>(order);
  {
    const vtier::sim::device gpu{world, {.memory_bytes = 4_MiB, .name = "gpu", .bus_id = {}}};
    const vtier::sim::drive nvme{world};
    vtier::options limits;
    limits.progress_thread = false;
    limits.staging_budget = 32_KiB;
    limits.chunk_bytes_max = 8_KiB;
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = hbm_bytes}}, vtier::pinned{gpu, {.budget = 96_KiB}},
                         vtier::sim::file{nvme, {.budget = 16_MiB}}, limits};
    constexpr std::size_t steps = 3;
    adamw_settings settings;
    settings.rate = 1e-2;
    trainer<vtier::hierarchy<vtier::sim::device>> run{mem, gpu, toy, 1, steps, settings};
    for (std::size_t i = 0; i < steps; ++i) run.step(tokens_of(100 + i));
    run.finish();
    for (std::size_t i = 0; i < steps; ++i) result.losses.push_back(run.loss(i));
    result.parameters = run.parameters();
    const auto counted = mem.count();
    for (const auto& link : counted.links) {
      if (link.name.find("-> file") != std::string::npos) result.moved_to_files += link.moved_bytes;
    }
  }
  world->finish();
  result.violations = world->violations();
  return result;
}

}  // namespace

TEST_CASE("training in every order of events gives the same bits", "[train_gpt][sim]") {
  const outcome resident = train(1, 4_MiB);
  REQUIRE(resident.violations.empty());
  REQUIRE(resident.losses.size() == 3);
  for (std::uint64_t order = 1; order <= 60; ++order) {
    const outcome tiered = train(order, 128_KiB);
    CAPTURE(order);
    REQUIRE(tiered.violations.empty());
    CHECK(tiered.moved_to_files > 50'000);
    REQUIRE(tiered.losses == resident.losses);
    REQUIRE(tiered.parameters.size() == resident.parameters.size());
    REQUIRE(std::memcmp(tiered.parameters.data(), resident.parameters.data(),
                        resident.parameters.size() * sizeof(float)) == 0);
  }
}
