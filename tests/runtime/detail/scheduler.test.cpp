// SPDX-License-Identifier: Apache-2.0
// Steps that are recorded and followed, on simulated machines.

#include <vtier/runtime/detail/scheduler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sim/machine.hpp"
#include "support/catch.hpp"
#include "support/sim_hierarchy.hpp"

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

TEST_CASE("a step that departs is served as it comes, said once, and the next follows again", "[scheduler]") {
  const auto broken = over_seeds(60, sizes(12_KiB, 64_KiB), [](machine& m) {
    trainer t{m};
    for (int i = 0; i < 3; ++i) t.step();
    const auto plan = m.mem.plan_of();
    t.step(2);  // one layer is skipped
    t.step();
    t.step(4);
    t.step();
    t.check();
    const auto count = m.mem.count();
    if (said(m, "departs from the recorded one (a lease on") != 1) m.world->violation("it was not said once");
    if (count.schedules.size() != 1 || count.schedules[0].deviation_count != 2) m.world->violation("not counted");
    const auto now = m.mem.plan_of();
    if (!plan || !now || now->actions != plan->actions) m.world->violation("the plan was not kept");
    for (const std::string& e : count.errors) m.world->violation(e);
  });
  CHECK(broken == "");
}

TEST_CASE("a step that has become another one is recorded anew", "[scheduler]") {
  machine m{in_time(), sizes(12_KiB, 64_KiB)};
  trainer t{m};
  for (int i = 0; i < 3; ++i) t.step();
  REQUIRE(m.mem.recorded_step().has_value());
  const std::size_t before = m.mem.recorded_step()->leases.size();
  for (int i = 0; i < 6; ++i) t.step(2);
  t.check();
  REQUIRE(m.mem.recorded_step().has_value());
  CHECK(m.mem.recorded_step()->leases.size() == before - 4);
  CHECK(m.mem.plan_of().has_value());
  CHECK(m.mem.count().schedules[0].deviation_count == 2);
  CHECK(m.world->violations().empty());
}

TEST_CASE("steps of several names have plans of their own", "[scheduler]") {
  const auto broken = over_seeds(60, sizes(12_KiB, 64_KiB), [](machine& m) {
    trainer t{m};
    for (int i = 0; i < 4; ++i) {
      t.step();
      t.step();
      t.evaluate();
    }
    t.check();
    const auto count = m.mem.count();
    if (count.schedules.size() != 2) m.world->violation("two kinds of steps were expected");
    for (const auto& s : count.schedules) {
      if (!s.planned || s.deviation_count != 0) m.world->violation(s.name + " was not followed");
    }
    const auto evaluation = m.mem.recorded_step("evaluation");
    if (!evaluation || evaluation->leases.size() != trainer::layers) m.world->violation("another step was recorded");
  });
  CHECK(broken == "");
}

TEST_CASE("steps that are empty, nested, or left by a lease that goes on", "[scheduler]") {
  const auto broken = over_seeds(60, sizes(12_KiB, 64_KiB), [](machine& m) {
    trainer t{m};
    for (int i = 0; i < 3; ++i) {
      auto nothing = m.mem.step("nothing");
      try {
        auto inner = m.mem.step("inner");
        m.world->violation("a step began inside another");
      } catch (const vtier::usage_error&) {
      }
    }
    if (m.mem.plan_of("nothing").has_value()) m.world->violation("nothing was planned");
    for (int i = 0; i < 4; ++i) {
      auto kept = [&] {
        auto scope = m.mem.step("crossing");
        for (std::size_t l = 0; l + 1 < trainer::layers; ++l) m.expect(t.stream(), t.weight(l), l);
        return t.weight(trainer::layers - 1).read(t.stream());
      }();
      kept.end();
    }
    if (!m.mem.plan_of("crossing").has_value()) m.world->violation("no plan");
    if (said(m, "departs") != 0) m.world->violation("a lease that goes on was taken for a departure");
    t.check();
    for (const std::string& e : m.mem.count().errors) m.world->violation(e);
  });
  CHECK(broken == "");
}

TEST_CASE("a plan is made again when a reservation has taken room, and refused in words where leases do not fit",
          "[scheduler]") {
  machine m{in_time(), sizes(16_KiB, 64_KiB)};
  trainer t{m};
  for (int i = 0; i < 4; ++i) t.step();
  const auto roomy = m.mem.plan_of();
  REQUIRE(roomy.has_value());
  auto taken = m.mem.reserve(0, 4_KiB, 1'000'000'000);
  for (int i = 0; i < 2; ++i) t.step();
  const auto narrow = m.mem.plan_of();
  REQUIRE(narrow.has_value());
  CHECK(narrow->bound.links[0].up_bytes > roomy->bound.links[0].up_bytes);
  t.check();
  CHECK(said(m, "departs") == 0);
  CHECK(m.world->violations().empty());
}

TEST_CASE("whether a step fits is known before it runs", "[scheduler]") {
  machine m{in_time(), sizes(12_KiB, 64_KiB)};
  trainer t{m};
  for (int i = 0; i < 2; ++i) t.step();
  const auto trace = m.mem.recorded_step();
  REQUIRE(trace.has_value());
  CHECK(m.mem.fits(*trace).fits());
  auto larger = *trace;
  for (auto& tensor : larger.tensors) tensor.size_bytes *= 8;
  const auto fit = m.mem.fits(larger);
  CHECK_FALSE(fit.fits());
  CHECK(fit.first_short_bytes == 8 * trainer::size - 12_KiB);
}

TEST_CASE("without plans steps are counted, and links that are given are used", "[scheduler]") {
  machine off{in_time(), sizes(12_KiB, 64_KiB, false)};
  trainer t{off};
  for (int i = 0; i < 3; ++i) t.step();
  CHECK(off.mem.count().step_count == 3);
  CHECK_FALSE(off.mem.recorded_step().has_value());
  auto given = sizes(12_KiB, 64_KiB);
  given.links = {{0.05, 0.02}};
  machine slow{in_time(), given};
  trainer s{slow};
  for (int i = 0; i < 3; ++i) s.step();
  REQUIRE(slow.mem.plan_of().has_value());
  const auto bound = slow.mem.plan_of()->bound.links[0];
  CHECK(bound.ns >= bound.up_bytes / 0.05);
  CHECK(bound.ns >= bound.down_bytes / 0.02);
  given.links = {{0.0, 1.0}};
  machine broken{in_time(), given};
  trainer b{broken};
  for (int i = 0; i < 3; ++i) b.step();
  CHECK_FALSE(broken.mem.plan_of().has_value());
  CHECK(said(broken, "bandwidth of zero") == 1);
  b.check();
  CHECK(broken.world->violations().empty());
}

TEST_CASE("a step that is another one each time is not planned for ever", "[scheduler]") {
  machine m{in_time(), sizes(12_KiB, 64_KiB)};
  trainer t{m};
  for (std::size_t i = 0; i < 30; ++i) t.step(i % trainer::layers);
  t.check();
  CHECK(m.mem.count().schedules[0].deviation_count <= 8);
  CHECK_FALSE(m.mem.plan_of().has_value());
  CHECK(said(m, "is another one each time") == 1);
  CHECK(m.world->violations().empty());
}

TEST_CASE("hints do not disturb a plan", "[scheduler]") {
  machine m{in_time(), sizes(12_KiB, 64_KiB)};
  trainer t{m};
  std::size_t moved = 0;
  for (int i = 0; i < 8; ++i) {
    const auto before = m.mem.count();
    {
      auto scope = m.mem.step();
      if (i >= 6) {
        for (std::size_t l = 0; l < trainer::layers; ++l) m.mem.prefetch(t.weight(l));
        m.mem.evict(t.weight(1));
      }
      t.inside();
      m.gpu.synchronize(t.stream());
    }
    std::size_t now = 0;
    for (const auto& l : vtier::counted_since(before, m.mem.count()).links) now += l.moved_bytes;
    if (i > 4) CHECK(now == moved);
    moved = now;
  }
  t.check();
  CHECK(m.world->violations().empty());
}

TEST_CASE("a tensor of the step whose handle goes before its lease has ended", "[scheduler]") {
  const auto broken = over_seeds(60, sizes(12_KiB, 64_KiB), [](machine& m) {
    trainer t{m};
    for (int i = 0; i < 4; ++i) {
      auto scope = m.mem.step("early");
      for (std::size_t l = 0; l < trainer::layers; ++l) {
        auto lease = [&] {
          auto gone = m.make(trainer::size, role::workspace);
          return gone.write(t.stream());
        }();
        m.expect(t.stream(), t.weight(l), l);
      }
      m.gpu.synchronize(t.stream());
    }
    if (!m.mem.plan_of("early").has_value()) m.world->violation("no plan");
    if (said(m, "not planned") != 0) m.world->violation("it was refused");
    t.check();
  });
  CHECK(broken == "");
}

TEST_CASE("a kernel that failed in a recorded step is told by the next, which can begin again", "[scheduler]") {
  machine m{in_time(), sizes(12_KiB, 64_KiB)};
  trainer t{m};
  {
    auto scope = m.mem.step("failing");
    m.gpu.launch(t.stream(), [] { throw std::runtime_error("a kernel"); });
    m.expect(t.stream(), t.weight(0), 0);
  }
  CHECK_THROWS_AS(m.mem.step("failing"), vtier::device_error);
  m.expect(t.stream(), t.weight(1), 1);  // outside of any step
  for (int i = 0; i < 3; ++i) {
    auto scope = m.mem.step("failing");
    m.expect(t.stream(), t.weight(0), 0);
  }
  REQUIRE(m.mem.recorded_step("failing").has_value());
  CHECK(m.mem.recorded_step("failing")->leases.size() == 1);
  t.check();
  CHECK(m.world->violations().empty());
}

TEST_CASE("a link whose speed nobody knows is no bound", "[scheduler]") {
  machine m{in_time(), sizes(8_KiB, 16_KiB)};  // files are slow here because callers are, not the drive
  trainer t{m};
  const std::int64_t took = step_ns(m, t);
  const auto plan = m.mem.plan_of();
  REQUIRE(plan.has_value());
  REQUIRE(plan->bound.links.size() == 2);
  CHECK(plan->bound.links[1].up_bytes > 0.0);
  CHECK(plan->bound.links[1].ns <= plan->bound.compute_ns);
  CHECK(plan->bound.ns() <= static_cast<double>(took));
  auto given = sizes(8_KiB, 16_KiB);
  given.links = {{0.1, 0.1}, {0.001, 0.001}};
  machine known{in_time(), given};
  trainer k{known};
  static_cast<void>(step_ns(known, k));
  REQUIRE(known.mem.plan_of().has_value());
  CHECK(known.mem.plan_of()->bound.links[1].ns >= plan->bound.links[1].up_bytes / 0.001);
}
