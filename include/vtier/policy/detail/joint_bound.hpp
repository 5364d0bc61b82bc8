// SPDX-License-Identifier: Apache-2.0
#pragma once

// The least that a step costs where bytes up and bytes down have prices and share one room, which two bounds do not.
//
// Let go a share u of each idle interval, and write down a share z of what a use wrote, z at least each u until the
// next use that writes. It costs up (s u) where the next use reads, and down (s z) once; what is leased and what is
// kept must fit. The mean of many laps is a point of that linear program on a circle. With any price p >= 0 of a byte
// of room at each moment, and P the sum of p over an interval, its dual says that no schedule costs less than
//     sum over what was written of s min(sum of P, down + sum of min(up, P)) - sum of p room
// so the search for good prices may be rough, and is: steps of shares and of prices in turn, the best one counts.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier::detail {

/// The bound of one tier, for prices per byte.
///
/// Threads one at a time
class joint_bound {
 public:
  joint_bound(const std::vector<step_tensor>& tensors, const tier_uses& in, std::int64_t capacity) {
    find_peaks(tensors, in, capacity);
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < in.idle.size(); ++i) {
      const idle_interval& idle = in.idle[i];
      const bool needed = idle.fetched || (idle.segment != no_use && !tensors[idle.tensor].born);
      if (needed && tensors[idle.tensor].size_bytes > 0 && peaks_in(idle) > 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const idle_interval& x = in.idle[a];
      const idle_interval& y = in.idle[b];
      return x.tensor != y.tensor ? x.tensor < y.tensor : x.segment != y.segment ? x.segment < y.segment : a < b;
    });
    const idle_interval* last = nullptr;
    for (const std::uint32_t i : order) {
      const idle_interval& idle = in.idle[i];
      const bool same = last != nullptr && last->tensor == idle.tensor && last->segment == idle.segment;
      if (!same) groups_.push_back({static_cast<std::uint32_t>(stretches_.size()), 0, 0.0, idle.segment != no_use});
      last = &idle;
      stretches_.push_back({peak_[idle.begin], peak_[idle.end], peaks_in(idle), idle.fetched});
      groups_.back().end = static_cast<std::uint32_t>(stretches_.size());
      groups_.back().size = static_cast<double>(tensors[idle.tensor].size_bytes);
    }
  }

  /// A number that up_cost x bytes up + down_cost x bytes down of a lap cannot be below.
  ///
  /// Needs   costs of at least zero
  /// Cost    O(passes (intervals + ticks)), 400 passes at most, fewer for long steps or where no more is to be gained
  [[nodiscard]] double least(double up_cost, double down_cost) {
    const double scale = (std::max)(up_cost, down_cost);
    if (room_.empty() || stretches_.empty() || !(scale > 0.0)) return 0.0;
    up_cost_ = up_cost / scale;
    down_cost_ = down_cost / scale;
    start();
    const std::size_t passes = (std::min)(passes_max, 50 + work_max / stretches_.size());
    double best = 0.0;
    std::size_t better_at = 0;  // the last pass that found better prices
    for (std::size_t pass = 1; pass <= passes && pass <= better_at + patience; ++pass) {
      step();
      if (pass % check_every != 0) continue;
      const double here = value(now_.p);
      state mean = sum_;
      mean.scale(1.0 / static_cast<double>(summed_));
      const double there = value(mean.p);
      if ((std::max)(here, there) > best * (1.0 + 1e-6)) {
        best = (std::max)(here, there);
        better_at = pass;
      }
      if (there > here) now_ = mean;
      if (there > here || summed_ >= 8 * check_every) {
        sum_.scale(0.0);
        summed_ = 0;
      }
    }
    return best * scale;
  }

 private:
  static constexpr std::size_t check_every = 20;
  static constexpr std::size_t patience = 200;
  static constexpr std::size_t passes_max = 400;
  static constexpr std::size_t work_max = 2'000'000;

  struct stretch {
    std::uint32_t begin = 0;  // peaks, over the end of the lap where begin is not before end
    std::uint32_t end = 0;
    std::uint32_t peaks = 0;
    bool fetched = false;
  };
  struct group {              // what one use wrote, or a tensor that no use writes
    std::uint32_t begin = 0;  // stretches
    std::uint32_t end = 0;
    double size = 0.0;
    bool written = false;
  };
  struct state {
    std::vector<double> u;  // by stretch: the share let go
    std::vector<double> z;  // by group: the share written down
    std::vector<double> p;  // by peak: price of a byte of room
    std::vector<double> q;  // by stretch: price of u <= z

    void scale(double by) {
      for (auto* v : {&u, &z, &p, &q}) {
        for (double& x : *v) x *= by;
      }
    }
    void add(const state& other) {
      add(u, other.u);
      add(z, other.z);
      add(p, other.p);
      add(q, other.q);
    }
    static void add(std::vector<double>& to, const std::vector<double>& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    }
  };

  // Only where a use begins and the next thing is that one ends can the tier be fullest: other moments hold no more
  // than the peak beside them, whatever is kept.
  void find_peaks(const std::vector<step_tensor>& tensors, const tier_uses& in, std::int64_t capacity) {
    const std::size_t ticks = in.tick_count();
    std::vector<std::int64_t> change(ticks + 1, 0);
    std::vector<char> begins(ticks, 0);
    std::vector<char> ends(ticks, 0);
    for (const tier_use& u : in.uses) begins[u.begin] = ends[u.end] = 1;
    for_each_hold(tensors.size(), in, [&](const tier_use& u, std::uint32_t from) {
      change[from] += static_cast<std::int64_t>(tensors[u.tensor].size_bytes);
      change[u.end] -= static_cast<std::int64_t>(tensors[u.tensor].size_bytes);
    });
    std::int64_t leased = 0;
    for (std::size_t t = 0; t < ticks; ++t) {
      leased += change[t];
      peak_.push_back(static_cast<std::uint32_t>(room_.size()));
      std::size_t next = t + 1;
      while (next < ticks && begins[next] == 0 && ends[next] == 0) ++next;
      if (begins[t] == 0 || (next < ticks && ends[next] == 0)) continue;
      room_.push_back(static_cast<double>((std::max)(capacity - leased, std::int64_t{0})));
    }
  }

  [[nodiscard]] std::uint32_t peaks_in(const idle_interval& i) const {
    const auto all = static_cast<std::uint32_t>(room_.size());
    return i.begin < i.end ? peak_[i.end] - peak_[i.begin] : all - peak_[i.begin] + peak_[i.end];
  }

  // The sum of prices over a stretch.
  [[nodiscard]] double over(const stretch& s) const {
    const double inside = before_[s.end] - before_[s.begin];
    return s.peaks > 0 && s.begin >= s.end ? inside + before_.back() : inside;
  }

  void sum_prices(const std::vector<double>& p) {
    before_.assign(1, 0.0);
    for (const double x : p) before_.push_back(before_.back() + x);
  }

  // The bound that prices give.
  [[nodiscard]] double value(const std::vector<double>& p) {
    sum_prices(p);
    double result = 0.0;
    for (const group& g : groups_) {
      double keep = 0.0;
      double fetch = g.written ? down_cost_ : 0.0;
      for (std::uint32_t i = g.begin; i < g.end; ++i) {
        const double price = over(stretches_[i]);
        keep += price;
        fetch += (std::min)(price, stretches_[i].fetched ? up_cost_ : 0.0);
      }
      result += g.size * (std::min)(keep, fetch);
    }
    for (std::size_t k = 0; k < p.size(); ++k) result -= p[k] * room_[k];
    return result;
  }

  // Bytes that would be held at each peak if all were kept.
  void start() {
    full_.assign(room_.size(), 0.0);
    std::vector<double> none(stretches_.size(), 0.0);
    load(none, full_);
    const std::size_t n = stretches_.size();
    now_ = {none, std::vector<double>(groups_.size(), 0.0), std::vector<double>(room_.size(), 0.0), none};
    sum_ = now_;
    summed_ = 0;
    double peaks = 0.0;
    for (const stretch& s : stretches_) peaks += s.peaks;
    weight_ = std::sqrt(1.0 + peaks / static_cast<double>(n));
  }

  // What is kept at each peak.
  void load(const std::vector<double>& let_go, std::vector<double>& to) const {
    to.assign(room_.size() + 1, 0.0);
    for (const group& g : groups_) {
      for (std::uint32_t i = g.begin; i < g.end; ++i) {
        const double kept = g.size * (1.0 - let_go[i]);
        to[stretches_[i].begin] += kept;
        to[stretches_[i].end] -= kept;
        if (stretches_[i].begin >= stretches_[i].end) to[0] += kept;
      }
    }
    std::partial_sum(to.begin(), to.end(), to.begin());
    to.pop_back();
  }

  // One step of both sides: shares down their cost, prices up where there is too little room.
  void step() {
    sum_prices(now_.p);
    ahead_ = now_;
    for (std::size_t j = 0; j < groups_.size(); ++j) {
      const group& g = groups_[j];
      double pull = 0.0;
      for (std::uint32_t i = g.begin; i < g.end; ++i) {
        const stretch& s = stretches_[i];
        const double q = g.written ? now_.q[i] : 0.0;
        pull += q;
        const double slope = (s.fetched ? up_cost_ : 0.0) - over(s) + q;
        now_.u[i] = std::clamp(now_.u[i] - weight_ * slope / (1.0 + s.peaks), 0.0, 1.0);
        ahead_.u[i] = 2.0 * now_.u[i] - ahead_.u[i];
      }
      if (!g.written) continue;
      now_.z[j] = std::clamp(now_.z[j] - weight_ * (down_cost_ - pull) / (g.end - g.begin), 0.0, 1.0);
      ahead_.z[j] = 2.0 * now_.z[j] - ahead_.z[j];
      for (std::uint32_t i = g.begin; i < g.end; ++i) {
        now_.q[i] = (std::max)(0.0, now_.q[i] + (ahead_.u[i] - ahead_.z[j]) / (2.0 * weight_));
      }
    }
    load(ahead_.u, held_);
    for (std::size_t k = 0; k < room_.size(); ++k) {
      if (full_[k] <= room_[k]) continue;  // never too full
      now_.p[k] = (std::max)(0.0, now_.p[k] + (held_[k] - room_[k]) / (weight_ * full_[k]));
    }
    sum_.add(now_);
    ++summed_;
  }

  std::vector<std::uint32_t> peak_;  // by tick: the peaks before it
  std::vector<double> room_;         // by peak: what leases leave
  std::vector<stretch> stretches_;
  std::vector<group> groups_;

  double up_cost_ = 0.0;
  double down_cost_ = 0.0;
  double weight_ = 1.0;       // of steps of shares against steps of prices
  std::vector<double> full_;  // by peak: what all stretches would hold
  std::vector<double> held_;
  std::vector<double> before_;  // sums of prices
  state now_;
  state ahead_;
  state sum_;
  std::size_t summed_ = 0;
};

}  // namespace vtier::detail
