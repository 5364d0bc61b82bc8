// SPDX-License-Identifier: Apache-2.0
// Steps that are recorded and followed, on simulated machines.

#include <vtier/runtime/detail/scheduler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/machine.hpp"
#include "support/catch.hpp"

#include <vtier/core/error.hpp>
#include <vtier/policy/lower_bound.hpp>

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::machine;
using vtier::test::machine_options;
using vtier::test::over_seeds;

// A trainer in small: layers with weights and optimizer state, inputs that live from forward to backward.
class trainer {
 public:
  static constexpr std::size_t layers = 6;
  static constexpr std::size_t size = 2048;

  explicit trainer(machine& on) : m_{&on}, stream_{on.gpu.make_stream()} {
    for (std::size_t i = 0; i < layers; ++i) {
      weights_.push_back(on.make(size));
      moments_.push_back(on.make(size, role::optimizer));
      on.fill(stream_, weights_.back(), i);
      on.fill(stream_, moments_.back(), 100 + i);
    }
  }

  // What is skipped makes a step another one than usual.
  void step(std::size_t skipped_layer = layers, const std::string& name = "step") {
    auto scope = m_->mem.step(name);
    inside(skipped_layer);
    m_->gpu.synchronize(stream_);
  }

  void inside(std::size_t skipped_layer = layers) {
    std::vector<machine::bytes> inputs;
    for (std::size_t i = 0; i < layers; ++i) {
      inputs.push_back(m_->make(size / 2, role::activation));
      if (i == skipped_layer) continue;
      m_->expect(stream_, weights_[i], i, added_);
      m_->fill(stream_, inputs.back(), 1000 + i);
    }
    for (std::size_t i = layers; i-- > 0;) {
      if (i == skipped_layer) continue;
      m_->expect(stream_, weights_[i], i, added_);
      m_->expect(stream_, inputs[i], 1000 + i);
      inputs.pop_back();
    }
    for (std::size_t i = 0; i < layers; ++i) {
      m_->add(stream_, weights_[i], 3);
      m_->add(stream_, moments_[i], 5);
    }
    added_ = static_cast<std::uint8_t>(added_ + 3);
    moment_ = static_cast<std::uint8_t>(moment_ + 5);
  }

  void evaluate() {
    auto scope = m_->mem.step("evaluation");
    for (std::size_t i = 0; i < layers; ++i) m_->expect(stream_, weights_[i], i, added_);
    m_->gpu.synchronize(stream_);
  }

  void check() {
    for (std::size_t i = 0; i < layers; ++i) {
      m_->expect(stream_, weights_[i], i, added_);
      m_->expect(stream_, moments_[i], 100 + i, moment_);
    }
    m_->gpu.synchronize(stream_);
  }

  [[nodiscard]] machine::bytes& weight(std::size_t i) { return weights_[i]; }
  [[nodiscard]] const vtier::sim::stream& stream() const { return stream_; }

 private:
  machine* m_;
  vtier::sim::stream stream_;
  std::vector<machine::bytes> weights_;
  std::vector<machine::bytes> moments_;
  std::uint8_t added_ = 0;
  std::uint8_t moment_ = 0;
};

// The tensors are 24 KiB.
machine_options sizes(std::size_t hbm, std::size_t host, bool plans = true) {
  machine_options o;
  o.hbm = hbm;
  o.host = host;
  o.file = 256_KiB;
  o.plan_steps = plans;
  o.copy_bytes_per_ns = 0.1;  // a tensor takes as long as two kernels
  return o;
}

vtier::sim::world_options in_time() {
  vtier::sim::world_options o;
  o.disorder = 0.0;
  return o;
}

// The time of the last of some steps.
std::int64_t step_ns(machine& m, trainer& t, std::size_t steps = 5) {
  std::int64_t took = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    const std::int64_t began = m.gpu.now_ns();
    t.step();
    took = m.gpu.now_ns() - began;
  }
  return took;
}

std::size_t said(const machine& m, const std::string& what) {
  const auto notes = m.mem.count().notes;
  return static_cast<std::size_t>(std::count_if(
      notes.begin(), notes.end(), [&](const std::string& n) { return n.find(what) != std::string::npos; }));
}

}  // namespace

TEST_CASE("planned steps read and write the right bytes, in any order of events", "[scheduler]") {
  const std::size_t hbm = GENERATE(std::size_t{8192}, std::size_t{12288}, std::size_t{20480});
  const std::size_t host = GENERATE(std::size_t{16384}, std::size_t{65536});
  const auto broken = over_seeds(60, sizes(hbm, host), [](machine& m) {
    trainer t{m};
    for (int i = 0; i < 5; ++i) t.step();
    t.check();
    if (!m.mem.plan_of().has_value()) m.world->violation("no plan was made");
    for (const std::string& e : m.mem.count().errors) m.world->violation(e);
    if (said(m, "departs") != 0) m.world->violation("a step departed");
  });
  CHECK(broken == "");
}

TEST_CASE("a planned step is faster than one that is served as it comes, and never faster than its bound",
          "[scheduler]") {
  machine planned{in_time(), sizes(12_KiB, 64_KiB)};
  machine unplanned{in_time(), sizes(12_KiB, 64_KiB, false)};
  trainer a{planned};
  trainer b{unplanned};
  const std::int64_t with = step_ns(planned, a);
  const std::int64_t without = step_ns(unplanned, b);
  const auto plan = planned.mem.plan_of();
  REQUIRE(plan.has_value());
  CHECK_FALSE(unplanned.mem.plan_of().has_value());
  INFO("planned " << with << " ns, unplanned " << without << " ns, promised " << plan->step_ns << " ns, bound "
                  << plan->bound.ns() << " ns");
  CHECK(with < without);
  CHECK(static_cast<double>(with) >= plan->bound.ns());
}
