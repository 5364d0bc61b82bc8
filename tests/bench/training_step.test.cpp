// SPDX-License-Identifier: Apache-2.0
// The leases of a training step: sound traces, and sums that follow from the shapes of the models.

#include "scenario/training_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/role.hpp>

#include "support/catch.hpp"
#include "support/model_steps.hpp"

namespace {

using vtier::role;
using vtier::step_lease;
using vtier::step_tensor;
using vtier::step_trace;
using vtier::bench::model_shape;
using vtier::bench::parameter_count;
using vtier::bench::public_models;
using vtier::bench::record_leases;
using vtier::bench::state_bytes;
using vtier::bench::training_setup;

training_setup setup_of(const model_shape& shape, std::size_t piece_bytes_max = std::size_t{256} << 20U) {
  training_setup s;
  s.shape = shape;
  s.piece_bytes_max = piece_bytes_max;
  return s;
}

model_shape small() {
  return {.name = "small",
          .layers = 3,
          .hidden = 64,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 128,
          .vocabulary = 256,
          .sequence = 32,
          .micro_batch = 2};
}

constexpr std::size_t whole = (std::numeric_limits<std::size_t>::max)() / 2;  // one piece for each layer

// Parameters that tokens are multiplied with: in all layers but embedding and head, and in the head.
struct multiplied {
  double layers = 0.0;
  double head = 0.0;
};
multiplied multiplied_by(const model_shape& s) {
  const auto number = [](std::size_t n) { return static_cast<double>(n); };
  const double h = number(s.hidden);
  const double kv = number(s.hidden / s.heads * s.kv_heads);
  const double matrices = s.gpt2 ? 2.0 : 3.0;
  return {number(s.layers) * (2.0 * h * h + 2.0 * h * kv + matrices * h * number(s.ffn * s.experts_active)),
          number(s.vocabulary) * h};
}

bool about(double value, double expected, double share) { return std::abs(value - expected) <= share * expected; }

}  // namespace

TEST_CASE("training steps of models are sound, whatever is accumulated, shared or cut", "[bench][training_step]") {
  auto models = public_models();
  models.push_back(small());
  for (const auto& shape : models) {
    for (const std::size_t accumulation : std::vector<std::size_t>{1, 3}) {
      for (const std::size_t over : std::vector<std::size_t>{1, 8}) {
        for (const std::size_t piece : {std::size_t{256} << 20U, std::size_t{1} << 30U, whole}) {
          INFO(shape.name << ", " << accumulation << " micro-batches, over " << over << ", pieces of " << piece);
          training_setup s = setup_of(shape, piece);
          s.accumulation = accumulation;
          s.sharded_over = over;
          const step_trace trace = record_leases(s);
          CHECK(trace.fault().empty());
          CHECK(std::all_of(trace.tensors.begin(), trace.tensors.end(), [&](const step_tensor& t) {
            return t.size_bytes > 0 && (t.size_bytes <= piece || t.what == role::activation);
          }));
        }
      }
    }
  }
}

TEST_CASE("a training step keeps sixteen bytes for each parameter", "[bench][training_step]") {
  for (const auto& shape : public_models()) {
    INFO(shape.name);
    const auto count = static_cast<double>(parameter_count(shape));
    training_setup s = setup_of(shape);
    // Biases, positions, routers and the last norms are left out: less than a hundredth.
    const double state = static_cast<double>(state_bytes(record_leases(s)));
    CHECK(about(state, 16.0 * count, 0.01));
    s.sharded_over = 8;
    const step_trace shared = record_leases(s);
    CHECK(about(static_cast<double>(state_bytes(shared)), state / 8.0, 1e-4));
    double of_role[vtier::role_count] = {};
    for (const step_tensor& t : shared.tensors) {
      of_role[static_cast<std::size_t>(t.what)] += t.born ? 0.0 : static_cast<double>(t.size_bytes);
    }
    CHECK(of_role[static_cast<std::size_t>(role::parameter)] == of_role[static_cast<std::size_t>(role::gradient)]);
    CHECK(of_role[static_cast<std::size_t>(role::optimizer)] == 6 * of_role[static_cast<std::size_t>(role::gradient)]);
  }
}

TEST_CASE("a training step takes as many leases as its passes have pieces", "[bench][training_step]") {
  const model_shape shape = small();
  const std::size_t layers = shape.layers + 2;  // embedding and head
  for (const std::size_t accumulation : std::vector<std::size_t>{1, 4}) {
    training_setup s = setup_of(shape, whole);
    s.accumulation = accumulation;
    const step_trace trace = record_leases(s);
    // Forward: the weight of each layer but the head, its input but for the first, its output. Backward: weight and
    // gradient of each, its input but for the first, inner values but for the embedding.
    const std::size_t forward = (layers - 1) * 3 - 1;
    const std::size_t backward = layers * 2 + (layers - 1) * 2;
    CHECK(trace.leases.size() == accumulation * (forward + backward) + 5 * layers);
    const auto gradients = [&](vtier::access mode) {
      return static_cast<std::size_t>(std::count_if(trace.leases.begin(), trace.leases.end(), [&](const step_lease& l) {
        return trace.tensors[l.tensor].what == role::gradient && l.mode == mode;
      }));
    };
    CHECK(gradients(vtier::access::write) == layers);
    CHECK(gradients(vtier::access::read_write) == (accumulation - 1) * layers);
    CHECK(gradients(vtier::access::read) == layers);
  }
  // Cut into pieces, each pass goes through more of them, over the same bytes.
  const std::size_t piece = 4096;
  const step_trace whole_trace = record_leases(setup_of(shape, whole));
  const step_trace cut = record_leases(setup_of(shape, piece));
  CHECK(cut.leases.size() > 3 * whole_trace.leases.size());
  CHECK(state_bytes(cut) == state_bytes(whole_trace));
}

TEST_CASE("a training step computes six operations for a parameter and token, and forward again",
          "[bench][training_step]") {
  for (const auto& shape : public_models()) {
    INFO(shape.name);
    const double tokens = static_cast<double>(shape.sequence * shape.micro_batch);
    const multiplied by = multiplied_by(shape);
    const double scores = 2.0 * tokens * static_cast<double>(shape.sequence * shape.hidden * shape.layers);
    const double operations = 8.0 * by.layers * tokens + 6.0 * by.head * tokens + 4.0 * scores;
    for (const std::size_t accumulation : std::vector<std::size_t>{1, 8}) {
      training_setup s = setup_of(shape);
      s.accumulation = accumulation;
      const double optimizer_ns =
          static_cast<double>(state_bytes(record_leases(s))) / 16.0 * 28.0 / s.device.memory_bytes_per_ns;
      const double expected_ns =
          static_cast<double>(accumulation) * operations / s.device.operations_per_ns + optimizer_ns;
      CHECK(about(static_cast<double>(record_leases(s).duration_ns), expected_ns, 1e-3));
    }
  }
}

TEST_CASE("the same setup gives the same training step", "[bench][training_step]") {
  training_setup s = setup_of(public_models().front(), std::size_t{8} << 20U);
  s.accumulation = 2;
  const step_trace one = record_leases(s);
  const step_trace two = record_leases(s);
  CHECK(one.tensors == two.tensors);
  CHECK(one.leases == two.leases);
  CHECK(one.moment_ns == two.moment_ns);
  CHECK(one.duration_ns == two.duration_ns);
  s.accumulation = 3;
  CHECK(record_leases(s).leases.size() > one.leases.size());
}
