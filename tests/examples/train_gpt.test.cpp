// SPDX-License-Identifier: Apache-2.0
// The trainer's mathematics: gradients against finite differences, AdamW against a reference, and that a run repeats.

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "../../examples/train_gpt/data.hpp"
#include "../../examples/train_gpt/host_ops.hpp"
#include "../../examples/train_gpt/options.hpp"
#include "../../examples/train_gpt/progress.hpp"
#include "../../examples/train_gpt/summary.hpp"
#include "../../examples/train_gpt/trainer.hpp"
#include "support/plain_hierarchy.hpp"
#include "support/scratch_directory.hpp"

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
  // Central differences of step h, extrapolated (4 D(h) - D(2 h)) / 3: their own error is O(h^4), 1e-6 of the
  // gradients' scale at h = 1e-2. What is left is rounding: the loss is a mean of 16 rows of about 20 additions each in
  // fp32, good to about 1e-6 of 5.5, and divided by 2 h gives some 1e-4. So: 3e-4 plus 1 % of the gradient. A gradient
  // that is wrong by a factor, or lacks a term, is off by more at the entries looked at, which are the largest of each
  // tensor.
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
  for (std::size_t i = 0; i < count; ++i)
    want_p[i] = static_cast<double>(p[i] = static_cast<float>(numbers.uniform() - 0.5));
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

template <class Hierarchy>
outcome train_toy_over(Hierarchy& mem, const vtier::host::device& on, std::size_t steps, std::uint64_t seed) {
  adamw_settings settings;
  settings.rate = 1e-2;
  trainer<Hierarchy> run{mem, on, toy, seed, steps, settings};
  for (std::size_t i = 0; i < steps; ++i) run.step(toy_tokens(100 + i, 4));
  run.finish();
  outcome result;
  for (std::size_t i = 0; i < steps; ++i) result.losses.push_back(run.loss(i));
  result.parameters = run.parameters();
  return result;
}

outcome train_toy(std::size_t steps, std::uint64_t seed) {
  const vtier::host::device on;
  plain_hierarchy mem{on};
  return train_toy_over(mem, on, steps, seed);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("two runs from one seed are the same bits", "[train_gpt]") {
  const outcome first = train_toy(3, 1);
  const outcome second = train_toy(3, 1);
  const outcome other = train_toy(3, 2);
  CHECK(first.losses == second.losses);
  REQUIRE(first.parameters.size() == toy.parameter_count());
  CHECK(same_bits(first.parameters, second.parameters));
  CHECK(first.losses != other.losses);
}

TEST_CASE("tiers that hold a fraction of the state change no bit", "[train_gpt]") {
  using namespace vtier::literals;
  const vtier::test::scratch_directory scratch;
  const vtier::host::device on;
  vtier::hierarchy mem{vtier::hbm{on, {.budget = 96_KiB, .name = "hbm"}},
                       vtier::pinned{std::nullopt, {.budget = 128_KiB, .name = "dram", .require_lock = false}},
                       vtier::mapped_file{scratch.path(), {.budget = 16_MiB, .name = "disk"}}};
  const outcome tiered = train_toy_over(mem, on, 4, 1);
  const outcome plain = train_toy(4, 1);
  CHECK(tiered.losses == plain.losses);
  CHECK(same_bits(tiered.parameters, plain.parameters));
  const auto counted = mem.count();
  REQUIRE(counted.tiers.size() == 3);
  for (const auto& t : counted.tiers) {
    CAPTURE(t.name);
    CHECK(t.peak_bytes <= t.budget_bytes);
    CHECK(t.peak_bytes > 0);  // else the test did not reach the tier
  }
  CHECK(counted.tensor_bytes == 0);
  CHECK(counted.errors.empty());
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

TEST_CASE("the command line is read, and what cannot be followed is refused in words", "[train_gpt]") {
  const command c = parse({"--layers",
                           "3",
                           "--width=96",
                           "--heads",
                           "6",
                           "--context",
                           "32",
                           "--batch",
                           "2",
                           "--steps",
                           "9",
                           "--seed",
                           "18446744073709551615",
                           "--hbm",
                           "1.5MiB",
                           "--dram=3MiB",
                           "--disk",
                           "/",
                           "--device",
                           "host",
                           "--json",
                           "out.json",
                           "--compare"});
  const std::vector<std::size_t> extents{c.shape.layers, c.shape.width, c.shape.heads, c.shape.context, c.shape.batch};
  CHECK(extents == std::vector<std::size_t>{3, 96, 6, 32, 2});
  CHECK(c.steps == 9);
  CHECK(c.seed == ~std::uint64_t{0});
  CHECK(c.hbm_bytes == 3U << 19U);
  CHECK(c.dram_bytes == 3U << 20U);
  CHECK(c.disk == "/");
  CHECK(c.device == "host");
  CHECK(c.json == "out.json");
  CHECK(c.compare);
  CHECK(parse({"--help"}).help);
  using arguments = std::vector<std::string>;
  for (const arguments& bad :
       {arguments{"--layers"}, arguments{"--layers", "0"}, arguments{"--layers", "-1"}, arguments{"--layers", "2x"},
        arguments{"--layers", ""}, arguments{"--steps", "99999999999999999999"},
        arguments{"--width", "10", "--heads", "3"}, arguments{"--hbm", "48M"}, arguments{"--hbm", "0"},
        arguments{"--dram", "much"}, arguments{"--device", "tpu"}, arguments{"--compare=yes"},
        arguments{"--no-such-option"}, arguments{"stray"}, arguments{"--text", "/no/such/file"},
        arguments{"--disk", "/no/such/directory"}}) {
    CAPTURE(bad.front(), bad.size());
    CHECK_THROWS_AS(parse(bad), bad_option);
  }
}

TEST_CASE("the defaults need more than the two fast tiers", "[train_gpt]") {
  const command c;
  CHECK(c.shape.state_bytes() >= 4 * c.hbm_bytes);
  CHECK(4 * c.shape.parameter_count() * sizeof(float) > c.hbm_bytes + c.dram_bytes);  // also when activations are gone
}

TEST_CASE("batches are a function of seed and step, and targets follow inputs", "[train_gpt]") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i % 251);
  const batches data{text, toy, 4};
  CHECK(data.at(5) == data.at(5));
  CHECK(data.at(5) != data.at(6));
  CHECK(data.at(5) != batches(text, toy, 5).at(5));
  const auto tokens = data.at(0);
  REQUIRE(tokens.size() == toy.batch * (toy.context + 1));
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if ((i + 1) % (toy.context + 1) != 0) CHECK(tokens[i + 1] == (tokens[i] + 1) % 251);
  }
  CHECK_THROWS_AS(batches(text.substr(0, toy.context), toy, 1), std::runtime_error);
  CHECK(read_corpus("").text.size() >= 20'000);
}

TEST_CASE("a comparison names the first difference, and the file says all", "[train_gpt]") {
  run_result a;
  a.losses = {5.5, 4.5};
  a.parameters = {1.0F, 2.0F};
  run_result b = a;
  CHECK(!first_difference(a, b));
  b.parameters[1] = std::nextafter(2.0F, 3.0F);
  REQUIRE(first_difference(a, b));
  CHECK(first_difference(a, b)->find("parameter 1") != std::string::npos);
  b.losses[1] = std::nextafter(4.5, 5.0);
  CHECK(first_difference(a, b)->find("at step 2") == 0);

  a.seconds = 2.5;
  a.counted.tiers.resize(2);
  a.counted.tiers[0].name = "hbm";
  a.counted.tiers[0].budget_bytes = 100;
  a.counted.tiers[0].peak_bytes = 90;
  a.counted.tiers[1].name = "a \"quoted\" name";
  a.counted.links.resize(1);
  a.counted.links[0].name = "hbm -> dram";
  a.counted.links[0].moved_bytes = 77;
  summary s;
  s.steps = 2;
  s.state_bytes = 1234;
  s.compared = true;
  s.seconds_resident = 1.25;
  s.tiered = &a;
  std::ostringstream json;
  write_json(json, s);
  for (const char* const part :
       {"\"steps\": 2", "\"identical\": true", "\"state_bytes\": 1234", "\"tiers\": [",
        "\"name\": \"hbm\", \"budget_bytes\": 100, \"peak_bytes\": 90", "\"a \\\"quoted\\\" name\"",
        "\"seconds_resident\": 1.25", "\"seconds_tiered\": 2.5", "\"moved_bytes\": {", "\"hbm -> dram\": 77",
        "\"first_loss\": 5.5", "\"final_loss\": 4.5"}) {
    CAPTURE(part, json.str());
    CHECK(json.str().find(part) != std::string::npos);
  }
  std::ostringstream text;
  print(text, s);
  CHECK(text.str().find("\nidentical: yes\n") != std::string::npos);
  s.difference = first_difference(a, b);
  print(text, s);
  CHECK(text.str().find("\nidentical: no (first difference at step 2") != std::string::npos);
}

TEST_CASE("progress is one line that redraws on a terminal, and plain lines elsewhere", "[train_gpt]") {
  std::ostringstream plain;
  std::ostringstream redrawn;
  {
    progress_line to_plain{"tiered", 20, plain, false};
    progress_line to_terminal{"tiered", 20, redrawn, true};
    for (std::size_t i = 0; i < 20; ++i) {
      to_plain.show({i, 3.25, 0.5, 0.07});
      to_terminal.show({i, 3.25, 0.5, 0.07});
    }
  }
  const std::string lines = plain.str();
  const std::string bar = redrawn.str();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 20);
  CHECK(lines.find('\r') == std::string::npos);
  CHECK(lines.find("step  7/20  loss 3.2500  0.50 s  stall   7 %") != std::string::npos);
  CHECK(std::count(bar.begin(), bar.end(), '\n') == 1);
  CHECK(bar.find("[########################] step 20/20") != std::string::npos);
}
