// SPDX-License-Identifier: Apache-2.0
#pragma once

// What allocators are asked for: sizes and orders, made beforehand from a seed, so that a clock sees none of the making
// and all allocators get the same.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/random_source.hpp>

#include "support/memory_trace.hpp"

namespace vtier::bench {

/// One call: an allocation into a slot, or the free of what is in it.
///
/// Units   bytes
struct memory_call {
  memory_call(std::size_t size, bool is_free, std::size_t into)
      : size_bytes{size}, slot{static_cast<std::uint32_t>(into)}, frees{is_free} {}
  std::size_t size_bytes;
  std::uint32_t slot;
  bool frees;
};

/// The calls of one thread. Those before `timed_begin` fill and warm up.
struct call_stream {
  std::vector<memory_call> calls;
  std::size_t slot_count = 0;
  std::size_t timed_begin = 0;
  std::vector<std::size_t> round_ends;  // in the timed part: where as many frees as allocations lie behind
};

/// A workload, and where in it most bytes live.
///
/// Units   bytes
struct workload {
  std::string name;
  std::size_t live_count = 0;  // blocks that live, at most
  bool repeats = false;        // the timed part ends as it began and may run again
  std::vector<call_stream> threads{};
  std::size_t peak_live_bytes = 0;  // in the timed parts, the threads in turns
  std::size_t peak_at = 0;          // after so many calls of that order
  double mean_bytes = 0.0;          // of a block that the timed part allocates
};

/// Makes the calls of all threads in one order: the fills, then the timed parts in turns.
///
/// Gives   `call(thread, call)` for each, until it says false
template <class Call>
void in_turns(const workload& w, Call&& call) {
  for (std::size_t t = 0; t < w.threads.size(); ++t) {
    for (std::size_t i = 0; i < w.threads[t].timed_begin; ++i) {
      if (!call(t, w.threads[t].calls[i])) return;
    }
  }
  for (std::size_t i = 0, more = 1; more > 0; ++i) {
    more = 0;
    for (std::size_t t = 0; t < w.threads.size(); ++t) {
      const std::size_t at = w.threads[t].timed_begin + i;
      if (at >= w.threads[t].calls.size()) continue;
      ++more;
      if (!call(t, w.threads[t].calls[at])) return;
    }
  }
}

namespace detail {

/// Finds the peak and the mean.
inline workload described(workload w) {
  std::size_t fill = 0;
  for (const auto& t : w.threads) fill += t.timed_begin;
  std::size_t at = 0;
  std::size_t live = 0;
  double sum = 0.0;
  double count = 0.0;
  in_turns(w, [&](std::size_t, const memory_call& c) {
    live = c.frees ? live - c.size_bytes : live + c.size_bytes;
    ++at;
    if (at <= fill) return true;
    if (!c.frees) {
      sum += static_cast<double>(c.size_bytes);
      count += 1.0;
    }
    if (live > w.peak_live_bytes) {
      w.peak_live_bytes = live;
      w.peak_at = at;
    }
    return true;
  });
  w.mean_bytes = count > 0.0 ? sum / count : 0.0;
  return w;
}

inline constexpr std::size_t round_pairs = 64;

}  // namespace detail

/// Sizes that are as likely in [4, 8) KiB as in [32, 64) MiB: their logarithm is uniform.
///
/// Units   bytes; multiples of 4
struct size_range {
  std::size_t least_bytes = 4096;
  std::size_t largest_bytes = std::size_t{64} << 20U;

  [[nodiscard]] std::size_t draw(random_source& random) const {
    const double ratio = static_cast<double>(largest_bytes) / static_cast<double>(least_bytes);
    const double size = static_cast<double>(least_bytes) * std::pow(ratio, random.uniform());
    return static_cast<std::size_t>(size) / 4 * 4;
  }
};

/// A constant number of blocks; each pair frees one of them at random and allocates another.
///
/// Gives   a fill, `warm_up` pairs, `pairs` timed pairs; each thread has its share of the blocks
[[nodiscard]] inline workload random_order(std::string name, size_range sizes, std::size_t live_count,
                                           std::size_t warm_up, std::size_t pairs, std::uint64_t seed,
                                           std::size_t thread_count = 1) {
  workload result{.name = std::move(name), .live_count = live_count};
  for (std::size_t t = 0; t < thread_count; ++t) {
    random_source random{seed + t * 7919};
    call_stream s;
    s.slot_count = (std::max)(live_count / thread_count, std::size_t{1});
    std::vector<std::size_t> size(s.slot_count);
    s.calls.reserve(s.slot_count + 2 * (warm_up + pairs));
    const auto allocate = [&](std::size_t slot) {
      size[slot] = sizes.draw(random);
      s.calls.emplace_back(size[slot], false, slot);
    };
    for (std::size_t slot = 0; slot < s.slot_count; ++slot) allocate(slot);
    for (std::size_t pair = 0; pair < warm_up + pairs; ++pair) {
      if (pair == warm_up) s.timed_begin = s.calls.size();
      const std::size_t slot = random.below(s.slot_count);
      s.calls.emplace_back(size[slot], true, slot);
      allocate(slot);
      if (pair >= warm_up && ((pair - warm_up + 1) % detail::round_pairs == 0 || pair + 1 == warm_up + pairs)) {
        s.round_ends.push_back(s.calls.size());
      }
    }
    result.threads.push_back(std::move(s));
  }
  return detail::described(std::move(result));
}

/// Bursts on top of blocks that stay: up to half of `live_count` allocations, then their frees, the last one first.
///
/// Gives   half of the blocks, one burst of all the others, then bursts until there are `pairs` timed pairs
[[nodiscard]] inline workload last_in_first_out(std::string name, size_range sizes, std::size_t live_count,
                                                std::size_t pairs, std::uint64_t seed) {
  workload result{.name = std::move(name), .live_count = live_count};
  random_source random{seed};
  call_stream s;
  s.slot_count = (std::max)(live_count, std::size_t{2});
  const std::size_t stay = s.slot_count / 2;
  const std::size_t others = s.slot_count - stay;
  const auto allocate = [&](std::size_t slot) { s.calls.emplace_back(sizes.draw(random), false, slot); };
  const auto burst = [&](std::size_t count) {
    const std::size_t first = s.calls.size();
    for (std::size_t i = 0; i < count; ++i) allocate(stay + i);
    for (std::size_t i = count; i-- > 0;) {
      memory_call c = s.calls[first + i];
      c.frees = true;
      s.calls.push_back(c);
    }
  };
  for (std::size_t slot = 0; slot < stay; ++slot) allocate(slot);
  burst(others);
  s.timed_begin = s.calls.size();
  for (std::size_t done = 0; done < pairs;) {
    const std::size_t count = (std::min)(1 + static_cast<std::size_t>(random.below(others)), pairs - done);
    burst(count);
    done += count;
    s.round_ends.push_back(s.calls.size());
  }
  result.threads.push_back(std::move(s));
  return detail::described(std::move(result));
}

/// A recorded trace: what stays and one step as the warm-up, then the step, again and again.
[[nodiscard]] inline workload recorded(std::string name, const memory_trace& trace) {
  workload result{.name = std::move(name), .repeats = true};
  call_stream s;
  s.slot_count = trace.block_count;
  std::size_t live = 0;
  const auto append = [&](std::size_t from) {
    for (std::size_t i = from; i < trace.events.size(); ++i) {
      const memory_event& e = trace.events[i];
      const bool frees = e.what == memory_event::kind::free;
      s.calls.emplace_back(e.size_bytes, frees, e.id);
      live = frees ? live - 1 : live + 1;
      result.live_count = (std::max)(result.live_count, live);
    }
  };
  append(0);
  s.timed_begin = s.calls.size();
  append(trace.step_begin);
  s.round_ends.push_back(s.calls.size());
  result.threads.push_back(std::move(s));
  return detail::described(std::move(result));
}

}  // namespace vtier::bench
