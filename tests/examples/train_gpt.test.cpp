// SPDX-License-Identifier: Apache-2.0
// The trainer's mathematics: gradients against finite differences, AdamW against a reference, and that a run repeats.

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/random_source.hpp>

#include "../../examples/train_gpt/trainer.hpp"
#include "../../examples/train_gpt/host_ops.hpp"
#include "support/plain_hierarchy.hpp"

namespace {

using vtier::test::plain_hierarchy;
using namespace train_gpt;

constexpr gpt_shape toy{2, 16, 2, 8, 2};

std::vector<std::int32_t> toy_tokens(std::uint64_t seed, std::uint64_t alphabet = gpt_shape::vocabulary) {
  vtier::random_source numbers{seed};
  std::vector<std::int32_t> result(toy.batch * (toy.context + 1));
  for (auto& t : result) t = static_cast<std::int32_t>(numbers.below(alphabet));
  return result;
}

/// A toy model whose loss and gradients can be asked for.
struct toy_model {
  explicit toy_model(double deviation, std::uint64_t seed = 7) : options{} {
    options.deviation = deviation;
    model.emplace(mem, on, stream, math, toy, seed, options);
    auto host = toy_tokens(11);
    auto to = tokens.write(stream);
    on.copy(stream, to.data(), host.data(), tokens.bytes(), vtier::copy_direction::host_to_device);
    on.synchronize(stream);
  }
  toy_model(const toy_model&) = delete;
  toy_model& operator=(const toy_model&) = delete;
  ~toy_model() { on.synchronize(stream); }

  double loss() {
    model->differentiate(tokens, losses);
    on.synchronize(stream);
    return losses.values()[0];
  }

  vtier::host::device on;
  vtier::host::stream stream = on.make_stream();
  plain_hierarchy mem{on};
  ops<vtier::host::device> math{on, 2};
  gpt_options options;
  plain_hierarchy::tensor<std::int32_t> tokens{on, {toy.batch * (toy.context + 1)}};
  plain_hierarchy::tensor<double> losses{on, {1 + toy.rows()}};
  std::optional<gpt<plain_hierarchy>> model;
};

}  // namespace

TEST_CASE("the loss of an untrained model is that of guessing", "[train_gpt]") {
  toy_model m{0.02};
  CHECK(m.loss() == Approx(std::log(256.0)).epsilon(0.01));
}

TEST_CASE("gradients agree with finite differences in every tensor", "[train_gpt]") {
  // Central differences of step h, extrapolated (4 D(h) - D(2 h)) / 3: their own error is O(h^4), 1e-6 of the gradients'
  // scale at h = 1e-2. What is left is rounding: the loss is a mean of 16 rows of about 20 additions each in fp32, good
  // to about 1e-6 of 5.5, and divided by 2 h gives some 1e-4. So: 3e-4 plus 1 % of the gradient. A gradient that is
  // wrong by a factor, or lacks a term, is off by more at the entries looked at, which are the largest of each tensor.
  toy_model m{0.25};
  m.loss();
  std::vector<std::vector<float>> gradients;
  for (auto& p : m.model->parameters()) gradients.push_back(p.gradient->values());
  constexpr double h = 1e-2;
  vtier::random_source numbers{3};
  for (std::size_t which = 0; which < gradients.size(); ++which) {
    const auto& g = gradients[which];
    auto& values = m.model->parameters()[which].value.values();
    const std::string& name = m.model->parameters()[which].name;
    const auto slope = [&](std::size_t at, double step) {
      const float before = values[at];
      const auto loss_at = [&](double moved) {
        values[at] = static_cast<float>(static_cast<double>(before) + moved);
        return m.loss();
      };
      const double result = (loss_at(step) - loss_at(-step)) / (2 * step);
      values[at] = before;
      return result;
    };
    std::vector<std::size_t> picks;
    // The largest entry of each row of small parameters (norms and biases one by one), of matrices the four largest.
    const std::size_t rows = name.find("norm") != std::string::npos ? g.size() / toy.width : 4;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto begin = g.begin() + static_cast<std::ptrdiff_t>(r * (g.size() / rows));
      const auto end = begin + static_cast<std::ptrdiff_t>(g.size() / rows);
      picks.push_back(static_cast<std::size_t>(
          std::max_element(begin, end, [](float a, float b) { return std::abs(a) < std::abs(b); }) - g.begin()));
    }
    for (int i = 0; i < 4; ++i) picks.push_back(numbers.below(g.size()));
    double largest = 0;
    for (const std::size_t at : picks) {
      const double difference = (4 * slope(at, h) - slope(at, 2 * h)) / 3;
      const double wanted = static_cast<double>(g[at]);
      CAPTURE(name, at, wanted, difference);
      CHECK(std::abs(difference - wanted) <= 3e-4 + 0.01 * std::abs(wanted));
      largest = (std::max)(largest, std::abs(wanted));
    }
    CAPTURE(name);
    CHECK(largest > 3e-3);  // else the tolerance above would accept anything
  }
}

TEST_CASE("AdamW follows a reference in double precision", "[train_gpt]") {
  const vtier::host::device on;
  ops<vtier::host::device> math{on, 2};
  const auto stream = on.make_stream();
  constexpr std::size_t count = 10'000;  // shares that are not alike
  vtier::random_source numbers{5};
  std::vector<float> p(count), g(count), m(count, 0.0F), v(count, 0.0F);
  std::vector<double> want_p(count), want_m(count, 0.0), want_v(count, 0.0);
  for (std::size_t i = 0; i < count; ++i) want_p[i] = static_cast<double>(p[i] = static_cast<float>(numbers.uniform() - 0.5));
  adamw_settings settings;
  settings.warmup_steps = 2;
  for (std::size_t step = 1; step <= 4; ++step) {
    const bool decays = step % 2 == 1;
    for (float& x : g) x = static_cast<float>(numbers.uniform() - 0.5);
    math.adamw(stream, p.data(), m.data(), v.data(), g.data(), count, factors_of(settings, step, decays));
    on.synchronize(stream);
    const double rate = settings.rate * (step == 1 ? 0.5 : 1.0);
    double worst = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto d = static_cast<double>(g[i]);
      if (decays) want_p[i] *= 1.0 - rate * settings.decay;
      want_m[i] = settings.beta1 * want_m[i] + (1.0 - settings.beta1) * d;
      want_v[i] = settings.beta2 * want_v[i] + (1.0 - settings.beta2) * d * d;
      const double first = want_m[i] / (1.0 - std::pow(settings.beta1, static_cast<double>(step)));
      const double second = want_v[i] / (1.0 - std::pow(settings.beta2, static_cast<double>(step)));
      want_p[i] -= rate * first / (std::sqrt(second) + settings.epsilon);
      worst = (std::max)(worst, std::abs(want_p[i] - static_cast<double>(p[i])));
    }
    // A step moves by about the rate, 1e-3, known to some 1e-6 of it; a parameter of 0.5 is rounded by 3e-8 each time.
    CAPTURE(step, worst);
    CHECK(worst < 5e-8 * static_cast<double>(step) + 1e-8);
  }
}

namespace {

struct outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
};

outcome train_toy(std::size_t steps, std::uint64_t seed) {
  const vtier::host::device on;
  plain_hierarchy mem{on};
  adamw_settings settings;
  settings.rate = 1e-2;
  trainer<plain_hierarchy> run{mem, on, toy, seed, steps, settings};
  for (std::size_t i = 0; i < steps; ++i) run.step(toy_tokens(100 + i, 4));
  run.finish();
  outcome result;
  for (std::size_t i = 0; i < steps; ++i) result.losses.push_back(run.loss(i));
  result.parameters = run.parameters();
  return result;
}

}  // namespace

TEST_CASE("two runs from one seed are the same bits", "[train_gpt]") {
  const outcome first = train_toy(3, 1);
  const outcome second = train_toy(3, 1);
  const outcome other = train_toy(3, 2);
  CHECK(first.losses == second.losses);
  REQUIRE(first.parameters.size() == toy.parameter_count());
  CHECK(std::memcmp(first.parameters.data(), second.parameters.data(), first.parameters.size() * sizeof(float)) == 0);
  CHECK(first.losses != other.losses);
}

TEST_CASE("the loss falls, later than when guessing among the letters in use", "[train_gpt]") {
  const outcome run = train_toy(30, 1);
  CHECK(run.losses.front() > 5.4);
  CHECK(run.losses.back() < 0.5 * run.losses.front());
}

TEST_CASE("the exponential of the loops is within a few units in the last place", "[train_gpt]") {
  double worst = 0;
  for (double x = -80.0; x < 80.0; x += 0.0137) {
    const auto at = static_cast<float>(x);
    const double wanted = std::exp(static_cast<double>(at));
    worst = (std::max)(worst, std::abs(static_cast<double>(host_math::exponential(at)) / wanted - 1.0));
  }
  CHECK(worst < 3e-7);
  CHECK(host_math::exponential(-1000.0F) < 1e-37F);
  CHECK(host_math::exponential(0.0F) == 1.0F);
  CHECK(std::isfinite(host_math::exponential(1000.0F)));
}

TEST_CASE("a team covers every index once, whatever the length", "[train_gpt]") {
  for (const std::size_t size : {1U, 2U, 3U, 5U}) {
    team workers{size};
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<int> seen(count, 0);
      workers.run(count, 4, [&](std::size_t begin, std::size_t end, std::size_t member) {
        if (member >= size || (begin % 4) != 0) return;
        for (std::size_t i = begin; i < end; ++i) ++seen[i];
      });
      CAPTURE(size, count);
      CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    }
  }
}
