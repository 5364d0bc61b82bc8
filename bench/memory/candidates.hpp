// SPDX-License-Identifier: Apache-2.0
#pragma once

// The allocators of a comparison: what they are called and how one is made, each time anew, in a process of its own.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/memory/pool.hpp>

#include "memory/caching_rules.hpp"
#include "memory/measure.hpp"
#include "memory/ours.hpp"
#include "memory/peers.hpp"
#include "memory/workloads.hpp"
#include "support/address_space.hpp"

namespace vtier::bench {

/// One allocator. Its functions are called in a child process.
struct candidate {
  std::string name;
  bool shared = true;  // between threads
  std::function<timed_result(const workload&, const run_lengths&)> time;
  std::function<checked_result(const workload&, const run_lengths&)> check;
};

/// Makes a candidate of a function that makes an allocator.
template <class Make>
[[nodiscard]] candidate make_candidate(std::string name, bool shared, Make make) {
  return {std::move(name), shared,
          [make](const workload& w, const run_lengths& lengths) {
            auto&& made = make(w);
            return time_workload(*made, w, lengths);
          },
          [make](const workload& w, const run_lengths& lengths) {
            auto&& made = make(w);
            return check_workload(*made, w, lengths);
          }};
}

/// Addresses enough that fragmentation shows as a number and not as a failure.
///
/// Units   bytes; at most a half of what a process has
[[nodiscard]] inline std::size_t address_bytes_for(const workload& w) {
  constexpr std::size_t most = std::size_t{48} << 40U;
  return w.peak_live_bytes > most / 8 ? most : (std::max)(8 * w.peak_live_bytes, std::size_t{1} << 30U);
}

/// The name of the library's pool with its default lock: what the others are compared with.
inline const std::string reference_name = "vtier";

/// All allocators.
///
/// Gives   the library's first
[[nodiscard]] inline std::vector<candidate> all_candidates() {
  const auto from_function = [](auto function) {
    return [function](const workload&) {
      using allocator = decltype(function());
      return std::make_unique<allocator>(function());
    };
  };
  const auto by_addresses = []<class Allocator>(std::type_identity<Allocator>) {
    return [](const workload& w) { return std::make_unique<Allocator>(address_bytes_for(w)); };
  };
  const auto plain = []<class Allocator>(std::type_identity<Allocator>) {
    return [](const workload&) { return std::make_unique<Allocator>(); };
  };
  std::vector<candidate> all;
  all.push_back(make_candidate(reference_name, true, by_addresses(std::type_identity<ours<pool<address_space>>>{})));
  all.push_back(make_candidate("vtier (one thread)", false,
                               by_addresses(std::type_identity<ours<pool<address_space, no_lock>>>{})));
  all.push_back(make_candidate("caching_rules", true, by_addresses(std::type_identity<caching_rules>{})));
  all.push_back(make_candidate("glibc malloc", true, from_function(glibc_malloc)));
  all.push_back(make_candidate("mimalloc", true, from_function(mimalloc)));
  all.push_back(make_candidate("jemalloc", true, from_function(jemalloc)));
  all.push_back(make_candidate("tcmalloc", true, from_function(tcmalloc)));
  using std::pmr::synchronized_pool_resource;
  using std::pmr::unsynchronized_pool_resource;
  all.push_back(make_candidate("std::pmr unsynchronized", false,
                               plain(std::type_identity<standard_pool<unsynchronized_pool_resource>>{})));
  all.push_back(make_candidate("std::pmr synchronized", true,
                               plain(std::type_identity<standard_pool<synchronized_pool_resource>>{})));
  return all;
}

}  // namespace vtier::bench
