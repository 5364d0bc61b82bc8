// SPDX-License-Identifier: Apache-2.0
#pragma once

// Filling tensors with a pattern and comparing them, through leases on a stream of a host device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <vtier/device/device.hpp>
#include <vtier/device/host.hpp>

namespace vtier::test {

/// The byte at a place of a pattern; different seeds differ in every byte position somewhere.
inline std::uint8_t pattern(std::uint64_t seed, std::size_t at) noexcept {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15U + at;
  x ^= x >> 29U;
  x *= 0xBF58476D1CE4E5B9U;
  return static_cast<std::uint8_t>(x >> 56U);
}

/// Shows the pattern plus a number piece by piece: (offset, bytes, size). The pieces are made in a place of their own,
/// where ThreadSanitizer need not look at each byte; what is done with them it sees.
template <class Function>
__attribute__((no_sanitize("thread"))) void for_each_piece(std::uint64_t seed, std::size_t size, std::uint8_t added,
                                                           Function&& function) {
  std::uint8_t piece[4096];
  for (std::size_t first = 0; first < size; first += sizeof piece) {
    const std::size_t count = (std::min)(sizeof piece, size - first);
    for (std::size_t i = 0; i < count; ++i) piece[i] = static_cast<std::uint8_t>(pattern(seed, first + i) + added);
    function(first, static_cast<const std::uint8_t*>(piece), count);
  }
}

/// Writes the pattern of a seed into a tensor of bytes, in stream order.
template <class Device, class Tensor>
void fill(const Device& on, const typename Device::stream& stream, Tensor& t, std::uint64_t seed) {
  auto lease = t.write(stream);
  on.launch(stream, [p = lease.data(), n = lease.size(), seed] {
    for_each_piece(seed, n, 0, [p](std::size_t at, const std::uint8_t* bytes, std::size_t count) {
      std::memcpy(p + at, bytes, count);
    });
  });
}

/// Adds a number to every byte, in stream order.
template <class Device, class Tensor>
void add(const Device& on, const typename Device::stream& stream, Tensor& t, std::uint8_t amount) {
  auto lease = t.read_write(stream);
  on.launch(stream, [p = lease.data(), n = lease.size(), amount] {
    for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<std::uint8_t>(p[i] + amount);
  });
}

/// Counts the bytes that differ from the pattern plus a number; waits for the stream.
template <class Device, class Tensor>
std::size_t differences(const Device& on, const typename Device::stream& stream, const Tensor& t, std::uint64_t seed,
                        std::uint8_t added = 0) {
  const auto count = std::make_shared<std::size_t>(0);
  {
    auto lease = t.read(stream);
    on.launch(stream, [p = lease.data(), n = lease.size(), seed, added, count] {
      for_each_piece(seed, n, added, [&](std::size_t at, const std::uint8_t* bytes, std::size_t piece) {
        if (std::memcmp(p + at, bytes, piece) == 0) return;
        for (std::size_t i = 0; i < piece; ++i) *count += p[at + i] != bytes[i] ? 1 : 0;
      });
    });
  }
  on.synchronize(stream);
  return *count;
}

}  // namespace vtier::test
