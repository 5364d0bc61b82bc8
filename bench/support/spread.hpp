// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a handful of measurements say: the median, and between which of them the true median lies.
//
// Rates of one machine drift by a third within minutes, so a mean and a standard deviation would describe the drift.
// Ratios are taken within a round, where both sides saw the same machine, and summed up here.

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace vtier::bench {

/// A median and its 95 % confidence interval.
///
/// Units   those of the measurements
struct spread {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};

/// Sums up measurements.
///
/// Needs   at least one
/// Gives   low and high by order statistics, whatever the distribution; fewer than six measurements cannot give 95 %:
///         then the least and the largest
/// Cost    O(n log n)
[[nodiscard]] inline spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  // The median lies outside [k-th least, k-th largest] with probability 2 P(B < k), B binomial of n throws of a coin.
  double term = 1.0;
  for (std::size_t i = 0; i < n; ++i) term *= 0.5;
  double below = term;
  std::size_t k = 1;
  while (2 * (k + 1) <= n) {
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    if (2.0 * (below + term) > 0.05) break;
    below += term;
    ++k;
  }
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
  return {median, values[k - 1], values[n - k]};
}

/// A number with a fixed count of decimals.
[[nodiscard]] inline std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

}  // namespace vtier::bench
