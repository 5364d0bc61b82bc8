// SPDX-License-Identifier: Apache-2.0
#pragma once

// One allocator under one workload: on the clock, or looked at call by call.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/clock.hpp>

#include "memory/workloads.hpp"
#include "support/child_process.hpp"

namespace vtier::bench {

/// What a timed run found.
///
/// Units   ns; touch: for one page of 4 KiB, negative where blocks may not be touched
struct timed_result {
  double ns_per_pair = 0.0;
  std::size_t pair_count = 0;
  double touch_ns = -1.0;
};

/// What a checked run found.
///
/// Units   bytes that the allocator held when most bytes lived; 0 where it does not tell or was not seen there
struct checked_result {
  std::size_t taken_bytes = 0;
  bool complete = false;
};

/// How long runs go on.
///
/// Units   seconds
struct run_lengths {
  double timed_seconds = 0.5;     // of the timed part, at most; it ends with a round
  double checked_seconds = 10.0;  // of the checked run: it ends there, wherever it is
};

namespace detail {

[[noreturn]] inline void no_memory(std::size_t size_bytes, std::size_t call) {
  throw skipped("had no memory for " + format_bytes(size_bytes) + " at call " + std::to_string(call));
}

/// The blocks of one thread.
struct thread_blocks {
  std::vector<void*> slots;
  std::size_t calls_done = 0;  // the last time through
  std::size_t timed_calls = 0;
  double timed_ns = 0.0;
};

template <class Allocator>
void run_calls(Allocator& from, const call_stream& s, thread_blocks& b, std::size_t begin, std::size_t end) {
  void** const slots = b.slots.data();
  for (std::size_t i = begin; i < end; ++i) {
    const memory_call& c = s.calls[i];
    if (c.frees) {
      from.deallocate(slots[c.slot], c.size_bytes);
    } else {
      void* const got = from.allocate(c.size_bytes);
      if (got == nullptr) no_memory(c.size_bytes, i);
      slots[c.slot] = got;
    }
  }
  b.calls_done = end;
}

// Ends with the first thread that is through, so that none is timed alone.
template <class Allocator>
void run_timed(Allocator& from, const workload& w, std::size_t t, thread_blocks& b, const run_lengths& lengths,
               std::atomic<bool>& over) {
  const call_stream& s = w.threads[t];
  const steady_clock clock;
  const std::int64_t began = clock.now_ns();
  const std::int64_t until = began + static_cast<std::int64_t>(lengths.timed_seconds * 1e9);
  std::int64_t now = began;
  do {
    std::size_t at = s.timed_begin;
    for (const std::size_t end : s.round_ends) {
      run_calls(from, s, b, at, end);
      b.timed_calls += end - at;
      at = end;
      now = clock.now_ns();
      if (now >= until || over.load(std::memory_order_relaxed)) break;
    }
  } while (w.repeats && now < until && !over.load(std::memory_order_relaxed));
  over.store(true, std::memory_order_relaxed);
  b.timed_ns = static_cast<double>(now - began);
}

/// Looks whether the blocks that live at the end of a run lie apart.
///
/// Errors  std::runtime_error
inline void check_apart(const workload& w, const std::vector<thread_blocks>& all) {
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks;
  for (std::size_t t = 0; t < all.size(); ++t) {
    std::vector<std::size_t> size(all[t].slots.size(), 0);
    for (std::size_t i = 0; i < all[t].calls_done; ++i) {
      const memory_call& c = w.threads[t].calls[i];
      size[c.slot] = c.frees ? 0 : c.size_bytes;
    }
    for (std::size_t i = 0; i < size.size(); ++i) {
      if (size[i] > 0) blocks.emplace_back(reinterpret_cast<std::uintptr_t>(all[t].slots[i]), size[i]);
    }
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i - 1].first + blocks[i - 1].second > blocks[i].first)
      throw std::runtime_error("two live blocks overlap");
  }
}

// Units   ns for one page: the first write to it, of one byte, in a few blocks of the workload's sizes
template <class Allocator>
double touch_fresh_blocks(Allocator& from, const workload& w) {
  constexpr std::size_t page_bytes = 4096;
  constexpr std::size_t most_bytes = std::size_t{64} << 20U;
  std::vector<std::pair<std::byte*, std::size_t>> blocks;
  std::size_t sum = 0;
  const call_stream& s = w.threads.front();
  for (std::size_t i = s.timed_begin; i < s.calls.size() && blocks.size() < 16; ++i) {
    const memory_call& c = s.calls[i];
    if (c.frees || c.size_bytes < page_bytes || sum + c.size_bytes > most_bytes) continue;
    void* const got = from.allocate(c.size_bytes);
    if (got == nullptr) break;
    blocks.emplace_back(static_cast<std::byte*>(got), c.size_bytes);
    sum += c.size_bytes;
  }
  std::size_t pages = 0;
  const steady_clock clock;
  const std::int64_t began = clock.now_ns();
  for (const auto& [first, size_bytes] : blocks) {
    for (std::size_t offset = 0; offset < size_bytes; offset += page_bytes) {
      *const_cast<volatile std::byte*>(first + offset) = std::byte{1};
      ++pages;
    }
  }
  const std::int64_t took = clock.now_ns() - began;
  return pages > 0 ? static_cast<double>(took) / static_cast<double>(pages) : -1.0;
}

}  // namespace detail

/// Times a workload.
///
/// Needs   an allocator that nobody has used
/// Gives   ns that one thread spends on a pair of an allocation and a free, the mean over the timed part
/// Errors  skipped where the allocator has no memory; std::runtime_error where blocks overlap
template <class Allocator>
timed_result time_workload(Allocator& from, const workload& w, const run_lengths& lengths) {
  std::vector<detail::thread_blocks> all(w.threads.size());
  for (std::size_t t = 0; t < all.size(); ++t) all[t].slots.assign(w.threads[t].slot_count, nullptr);
  const auto fill = [&](std::size_t t) { detail::run_calls(from, w.threads[t], all[t], 0, w.threads[t].timed_begin); };
  std::atomic<bool> over{false};
  if (all.size() == 1) {
    fill(0);
    detail::run_timed(from, w, 0, all[0], lengths, over);
  } else {
    std::vector<std::exception_ptr> problems(all.size());
    std::atomic<std::size_t> filled{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < all.size(); ++t) {
      threads.emplace_back([&, t] {
        try {
          fill(t);
          ++filled;
          while (filled < all.size() && !stop) std::this_thread::yield();
          if (!stop) detail::run_timed(from, w, t, all[t], lengths, over);
        } catch (...) {
          problems[t] = std::current_exception();
          stop = true;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& problem : problems) {
      if (problem) std::rethrow_exception(problem);
    }
  }
  detail::check_apart(w, all);
  double ns = 0.0;
  std::size_t calls = 0;
  for (const auto& b : all) {
    ns += b.timed_ns;
    calls += b.timed_calls;
  }
  timed_result result;
  result.pair_count = calls / 2;
  result.ns_per_pair = ns / static_cast<double>((std::max)(result.pair_count, std::size_t{1}));
  if constexpr (Allocator::touchable) result.touch_ns = detail::touch_fresh_blocks(from, w);
  return result;
}

/// Runs a workload call by call, off the clock, its threads in turns.
///
/// Errors  std::runtime_error where a block overlaps one that lives or is not aligned as its size needs; skipped where
/// there is no
///         memory
template <class Allocator>
checked_result check_workload(Allocator& from, const workload& w, const run_lengths& lengths) {
  std::vector<std::vector<void*>> slots;
  for (const auto& s : w.threads) slots.emplace_back(s.slot_count, nullptr);
  std::map<std::uintptr_t, std::uintptr_t> live;  // begin: end
  const steady_clock clock;
  const std::int64_t until = clock.now_ns() + static_cast<std::int64_t>(lengths.checked_seconds * 1e9);
  checked_result result;
  std::size_t at = 0;
  result.complete = true;
  in_turns(w, [&](std::size_t t, const memory_call& c) {
    void*& slot = slots[t][c.slot];
    ++at;
    if (c.frees) {
      live.erase(reinterpret_cast<std::uintptr_t>(slot));
      from.deallocate(slot, c.size_bytes);
    } else {
      slot = from.allocate(c.size_bytes);
      if (slot == nullptr) detail::no_memory(c.size_bytes, at);
      const auto first = reinterpret_cast<std::uintptr_t>(slot);
      const std::uintptr_t end = first + c.size_bytes;
      const auto next = live.lower_bound(first);
      const bool apart =
          (next == live.end() || end <= next->first) && (next == live.begin() || std::prev(next)->second <= first);
      if (!apart) throw std::runtime_error("a block overlaps one that lives");
      if (first % (c.size_bytes >= 16 ? 16 : c.size_bytes >= 8 ? 8 : 1) != 0) {
        throw std::runtime_error("a block is not aligned as its size needs");
      }
      live.emplace_hint(next, first, end);
    }
    if (at == w.peak_at) result.taken_bytes = from.taken_bytes().value_or(0);
    if (at % 64 == 0 && clock.now_ns() > until) result.complete = false;
    return result.complete;
  });
  return result;
}

}  // namespace vtier::bench
