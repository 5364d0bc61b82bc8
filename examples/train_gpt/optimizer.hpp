// SPDX-License-Identifier: Apache-2.0
#pragma once

// AdamW: what one step multiplies by, as a pure function, and the walk over all parameters.

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "model.hpp"
#include "ops.hpp"

namespace train_gpt {

/// The settings of AdamW with a linear warm-up.
struct adamw_settings {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;  // for matrices; gains, biases and embeddings do not decay
  std::size_t warmup_steps = 5;
};

/// The factors of one step.
///
/// Needs   step counted from 1
/// Source  Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019
[[nodiscard]] inline adamw_factors factors_of(const adamw_settings& settings, std::size_t step, bool decays) {
  const auto t = static_cast<double>(step);
  const double warm =
      settings.warmup_steps == 0 ? 1.0 : (std::min)(1.0, t / static_cast<double>(settings.warmup_steps));
  const double rate = settings.rate * warm;
  adamw_factors f;
  f.rate = static_cast<float>(rate);
  f.keep = static_cast<float>(decays ? 1.0 - rate * settings.decay : 1.0);
  f.beta1 = static_cast<float>(settings.beta1);
  f.beta2 = static_cast<float>(settings.beta2);
  f.correct1 = static_cast<float>(1.0 / (1.0 - std::pow(settings.beta1, t)));
  f.correct2 = static_cast<float>(1.0 / (1.0 - std::pow(settings.beta2, t)));
  f.epsilon = static_cast<float>(settings.epsilon);
  return f;
}

/// Updates every parameter from its gradient and frees the gradient.
///
/// Needs   gradients of this step in all parameters; step counted from 1
/// Cost    the host blocks only as leases do; the groups (p, m, v, g) of the next parameters are asked for ahead
template <class Hierarchy, class Math>
void update(gpt<Hierarchy, Math>& model, const adamw_settings& settings, std::size_t step, std::size_t ahead = 2) {
  auto& all = model.parameters();
  auto& mem = model.memory();
  const auto want = [&](std::size_t i) {
    if (i >= all.size()) return;
    mem.prefetch(all[i].value);
    mem.prefetch(*all[i].gradient);
    mem.prefetch(all[i].first_moment);
    mem.prefetch(all[i].second_moment);
  };
  for (std::size_t i = 0; i < ahead; ++i) want(i);
  for (std::size_t i = 0; i < all.size(); ++i) {
    want(i + ahead);
    auto& one = all[i];
    {
      const auto stream = model.stream();
      auto p = one.value.read_write(stream);
      auto m = one.first_moment.read_write(stream);
      auto v = one.second_moment.read_write(stream);
      auto g = one.gradient->read(stream);
      model.math().adamw(stream, p.data(), m.data(), v.data(), g.data(), p.size(),
                         factors_of(settings, step, one.decays));
    }
    one.gradient.reset();  // dead until the next backward pass writes it anew: nothing of it is worth moving
  }
}

}  // namespace train_gpt
