// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a tensor and its leases ask of a hierarchy, as a list of what was asked.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/residency/access.hpp>

namespace vtier::test {

/// Stands in for the part of a hierarchy that does the work; grants one buffer to everybody.
struct fake_core {
  struct block_type {
    int number = 0;
  };
  using stream_ref = int;
  struct grant {
    block_type* owned = nullptr;
    access mode = access::read;
    void* pointer = nullptr;
    std::string where;
  };

  grant acquire(block_type& b, access mode, int stream) { return give(b, mode, "stream " + std::to_string(stream)); }
  grant acquire(block_type& b, access mode, on_host_t) { return give(b, mode, "host"); }
  std::optional<grant> try_acquire(block_type& b, access mode, int stream) {
    return full ? std::nullopt : std::optional{acquire(b, mode, stream)};
  }
  std::optional<grant> try_acquire(block_type& b, access mode, on_host_t) {
    return full ? std::nullopt : std::optional{acquire(b, mode, on_host)};
  }
  void release(const grant& g) noexcept { told.push_back("release " + text(g)); }
  void destroy(block_type& b) noexcept { told.push_back("destroy " + std::to_string(b.number)); }

  static std::string text(const grant& g) {
    const char* const mode = g.mode == access::read ? "read" : g.mode == access::write ? "write" : "read_write";
    return std::to_string(g.owned->number) + " " + mode + " " + g.where;
  }
  grant give(block_type& b, access mode, std::string where) {
    if (broken) throw usage_error("not now");
    grant g{&b, mode, bytes.data(), std::move(where)};
    told.push_back("acquire " + text(g));
    return g;
  }

  std::vector<std::string> told;
  bool full = false;
  bool broken = false;
  alignas(16) std::array<unsigned char, 256> bytes{};
};
using told_list = std::vector<std::string>;

}  // namespace vtier::test
