// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every resource owes to those above it, as one suite. A model's test says how it is made, how its bytes are
// reached, and calls check_resource.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/memory/resource.hpp>

#include "support/catch.hpp"
#include "support/tensors.hpp"

namespace vtier::test {

/// Bytes that host code reaches by their address.
struct host_bytes {
  void write(void* target, const std::byte* source, std::size_t size_bytes) const {
    std::memcpy(target, source, size_bytes);
  }
  void read(std::byte* target, const void* source, std::size_t size_bytes) const {
    std::memcpy(target, source, size_bytes);
  }
};

/// Bytes that only a device's copies reach.
template <class Device>
struct device_bytes {
  explicit device_bytes(const Device& device) : on{device}, stream{on.make_stream()} {}
  void write(void* target, const std::byte* source, std::size_t size_bytes) const {
    on.copy(stream, target, source, size_bytes, copy_direction::host_to_device);
    on.synchronize(stream);
  }
  void read(std::byte* target, const void* source, std::size_t size_bytes) const {
    on.copy(stream, target, source, size_bytes, copy_direction::device_to_host);
    on.synchronize(stream);
  }
  Device on;
  typename Device::stream stream;
};

/// One live allocation and what was written into it.
struct written_block {
  void* pointer = nullptr;
  std::size_t size_bytes = 0;
  std::uint64_t seed = 0;
};

/// Allocations that are checked against each other: the bytes of each depend on its own seed.
template <class Resource, class Bytes>
class written_blocks {
 public:
  written_blocks(Resource from, const Bytes& bytes) : from_{std::move(from)}, bytes_{bytes} {}
  written_blocks(const written_blocks&) = delete;
  written_blocks& operator=(const written_blocks&) = delete;
  ~written_blocks() {
    for (const auto& b : blocks) from_.deallocate(b.pointer, b.size_bytes, 16);
  }

  void add(std::size_t size_bytes) {
    const written_block b{from_.allocate(size_bytes, 16), size_bytes, ++last_seed_};
    blocks.push_back(b);
    bytes_.write(b.pointer, content(b), b.size_bytes);
  }
  void remove(std::size_t index) {
    const written_block b = blocks[index];
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
    from_.deallocate(b.pointer, b.size_bytes, 16);
  }
  [[nodiscard]] bool intact(std::size_t index) {
    const written_block& b = blocks[index];
    found_.resize(b.size_bytes);
    bytes_.read(found_.data(), b.pointer, b.size_bytes);
    return std::memcmp(found_.data(), content(b), b.size_bytes) == 0;
  }

  std::vector<written_block> blocks;

 private:
  const std::byte* content(const written_block& b) {
    content_.resize(b.size_bytes);
    for (std::size_t i = 0; i < b.size_bytes; ++i) content_[i] = std::byte{pattern(b.seed, i)};
    return content_.data();
  }

  Resource from_;
  const Bytes& bytes_;
  std::vector<std::byte> content_;
  std::vector<std::byte> found_;
  std::uint64_t last_seed_ = 0;
};

/// VO-A04: zero bytes are null, cost nothing, and can be given back.
template <class Make>
void check_zero_bytes(const Make& make) {
  const auto r = make(1_MiB);
  const std::size_t free_before = r.free_bytes();
  void* const first = r.allocate(0, 16);
  void* const second = r.allocate(0, 1);
  CHECK(first == nullptr);
  CHECK(second == nullptr);
  r.deallocate(first, 0, 16);
  r.deallocate(second, 0, 1);
  r.deallocate(nullptr, 100, 16);
  CHECK(r.free_bytes() == free_before);
  CHECK_THROWS_AS(r.allocate(0, 3), usage_error);
}

/// Pointers are aligned as asked, the budget is charged at least what was asked, and all comes back.
template <class Make>
void check_sizes_and_alignments(const Make& make) {
  const auto r = make(4_MiB);
  const std::size_t free_before = r.free_bytes();
  for (const std::size_t alignment : std::vector<std::size_t>{1, 2, 16, 64, 256}) {
    for (const std::size_t size : std::vector<std::size_t>{1, 2, 255, 256, 257, 4095, 4096, 4097, 100'000}) {
      CAPTURE(alignment, size);
      void* const first = r.allocate(size, alignment);
      void* const second = r.allocate(size, alignment);
      REQUIRE(first != nullptr);
      CHECK(reinterpret_cast<std::uintptr_t>(first) % alignment == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(second) % alignment == 0);
      CHECK(free_before - r.free_bytes() >= 2 * size);
      CHECK(free_before - r.free_bytes() <= 2 * align_up(size, 4096));
      r.deallocate(first, size, alignment);
      r.deallocate(second, size, alignment);
      CHECK(r.free_bytes() == free_before);
    }
  }
  for (const std::size_t alignment : std::vector<std::size_t>{0, 3, 48, 4097}) {
    CAPTURE(alignment);
    CHECK_THROWS_AS(r.allocate(64, alignment), usage_error);
  }
  CHECK(r.free_bytes() == free_before);
}

/// A refusal names the resource and the numbers, and changes nothing; what fits after it is given.
template <class Make>
void check_budget(const Make& make) {
  const auto r = make(1_MiB);
  CHECK(r.free_bytes() == 1_MiB);
  for (const std::size_t size : {1_MiB + 1, std::size_t{1} << 62U, (std::numeric_limits<std::size_t>::max)(),
                                 (std::numeric_limits<std::size_t>::max)() - 4096}) {
    CAPTURE(size);
    try {
      static_cast<void>(r.allocate(size, 256));
      FAIL("more than the budget was given");
    } catch (const out_of_memory& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(e.tier() == r.name());
      CHECK(e.asked_bytes() == size);
      CHECK(e.free_bytes() == 1_MiB);
      CHECK(text.find(r.name()) != std::string::npos);
      CHECK(text.find(format_bytes(size)) != std::string::npos);
      CHECK(text.find("1 MiB") != std::string::npos);
    }
    CHECK(r.free_bytes() == 1_MiB);
  }
  void* const all = r.allocate(1_MiB, 16);
  CHECK(r.free_bytes() == 0);
  CHECK_THROWS_AS(r.allocate(1, 1), out_of_memory);
  CHECK_THROWS_AS(r.allocate(1, 1), std::bad_alloc);
  r.deallocate(all, 1_MiB, 16);
  void* const again = r.allocate(1_MiB, 16);
  CHECK(again != nullptr);
  r.deallocate(again, 1_MiB, 16);
  CHECK(r.free_bytes() == 1_MiB);
}

/// Copies are the same memory; another resource of the same kind is not.
template <class Make>
void check_handles(const Make& make) {
  auto r = make(1_MiB);
  const auto other = make(1_MiB);
  auto copy = std::optional{r};
  CHECK(*copy == r);
  CHECK_FALSE(r == other);
  void* const p = copy->allocate(4096, 16);
  CHECK(r.free_bytes() == copy->free_bytes());
  copy.reset();
  r.deallocate(p, 4096, 16);
  CHECK(r.free_bytes() == 1_MiB);
  r = other;
  CHECK(r == other);
  CHECK_FALSE(r.name().empty());
  static_cast<void>(r.notes());
}

/// VO-A06: no two live allocations share a byte.
template <class Make, class Bytes>
void check_no_aliasing(const Make& make, const Bytes& bytes, int rounds) {
  const auto r = make(24_MiB);
  const std::size_t free_before = r.free_bytes();
  {
    random_source random{6};
    written_blocks blocks{r, bytes};
    for (int round = 0; round < rounds; ++round) {
      CAPTURE(round);
      while (blocks.blocks.size() < 1'000) blocks.add(4097);
      std::vector<std::size_t> order(blocks.blocks.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) REQUIRE(blocks.intact(i));
      for (std::size_t i = blocks.blocks.size(); i > 0; --i) {
        if (i % 3 == 0) blocks.remove(i - 1);
      }
      for (int i = 0; i < 100; ++i) blocks.add(8192);
      for (std::size_t i = 0; i < blocks.blocks.size(); ++i) REQUIRE(blocks.intact(i));
      while (blocks.blocks.size() > 700) blocks.remove(random.below(blocks.blocks.size()));
    }
  }
  CHECK(r.free_bytes() == free_before);
}

/// Several threads at once get memory of their own and the budget adds up.
template <class Make>
void check_threads(const Make& make) {
  const auto r = make(8_MiB);
  std::vector<std::thread> threads;
  std::vector<int> lost(4, 0);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      random_source random{t};
      for (int i = 0; i < 200; ++i) {
        const std::size_t size = 1 + random.below(20'000);
        void* const p = r.allocate(size, 16);
        if constexpr (std::remove_cvref_t<decltype(r)>::kind != memory_kind::device) {
          std::memset(p, static_cast<int>(t), size);
          std::this_thread::yield();
          const auto* const first = static_cast<const unsigned char*>(p);
          lost[t] += static_cast<int>(size) - static_cast<int>(std::count(first, first + size, t));
        }
        r.deallocate(p, size, 16);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(lost == std::vector<int>(4, 0));
  CHECK(r.free_bytes() == 8_MiB);
}

/// A slab is all that is left, usable from its first to its last byte, again after it was shorter for a while, and
/// returns its share when it dies.
template <class Make, class Bytes>
void check_slab(const Make& make, const Bytes& bytes) {
  const auto r = make(1_MiB);
  void* const held = r.allocate(64_KiB, 16);
  {
    auto slab = r.make_slab();
    CHECK(slab.size_bytes() == 1_MiB - 64_KiB);
    CHECK(slab.kind() == std::remove_cvref_t<decltype(r)>::kind);
    CHECK(slab.properties().name == r.name());
    CHECK(is_power_of_two(slab.properties().alignment_bytes));
    CHECK(r.free_bytes() == 0);
    CHECK_THROWS_AS(r.allocate(1, 1), out_of_memory);
    CHECK_THROWS_AS(r.make_slab(), usage_error);
    slab.commit(4096);
    slab.commit(slab.size_bytes());
    slab.commit(0);  // what was committed stays
    std::byte* const base = slab.base();
    CHECK(reinterpret_cast<std::uintptr_t>(base) % 256 == 0);
    CHECK(slab.base() == base);
    std::vector<std::byte> content(slab.size_bytes());
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = std::byte{pattern(1, i)};
    bytes.write(base, content.data(), content.size());
    std::vector<std::byte> found(content.size());
    bytes.read(found.data(), base, found.size());
    CHECK(found == content);

    const std::size_t half = slab.size_bytes() / 2;
    slab.shrink(slab.size_bytes());
    slab.shrink(half);
    slab.shrink(half + 1);  // it is shorter already
    CHECK(slab.base() == base);
    CHECK(slab.size_bytes() == content.size());
    CHECK(r.free_bytes() == 0);  // the addresses stay promised
    bytes.read(found.data(), base, half);
    CHECK(std::equal(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(half), content.begin()));
    slab.commit(slab.size_bytes());
    bytes.read(found.data(), base, half);
    CHECK(std::equal(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(half), content.begin()));
    std::reverse(content.begin(), content.end());
    bytes.write(base, content.data(), content.size());
    bytes.read(found.data(), base, found.size());
    CHECK(found == content);
    slab.shrink(0);
  }
  CHECK(r.free_bytes() == 1_MiB - 64_KiB);
  r.deallocate(held, 64_KiB, 16);

  auto outlives = std::optional{make(1_MiB)};
  auto slab = outlives->make_slab();
  outlives.reset();
  slab.commit(slab.size_bytes());
  const std::byte one{1};
  bytes.write(slab.base() + slab.size_bytes() - 1, &one, 1);
}

/// All of it. `make(budget_bytes)` gives a new resource; `bytes` writes and reads what it gives.
template <class Make, class Bytes>
void check_resource(const Make& make, const Bytes& bytes, int alias_rounds = 20) {
  static_assert(resource<std::remove_cvref_t<decltype(make(std::size_t{1}))>>);
  check_zero_bytes(make);
  check_sizes_and_alignments(make);
  check_budget(make);
  check_handles(make);
  check_threads(make);
  check_no_aliasing(make, bytes, alias_rounds);
}

}  // namespace vtier::test
