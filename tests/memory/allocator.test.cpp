// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/allocator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pool.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using namespace vtier::literals;

namespace {

template <class Resource>
using floats = std::vector<float, vtier::allocator<float, Resource>>;

template <class Resource>
void check_vector(const Resource& memory) {
  const std::size_t free_before = memory.free_bytes();
  {
    floats<Resource> v(memory);
    for (int i = 0; i < 100'000; ++i) v.push_back(static_cast<float>(i));
    CHECK(free_before - memory.free_bytes() >= 100'000 * sizeof(float));
    CHECK(std::accumulate(v.begin(), v.end(), 0.0) == 4'999'950'000.0);
    const floats<Resource> copy = v;
    CHECK(copy == v);
    CHECK(copy.get_allocator() == v.get_allocator());
    v.clear();
    v.shrink_to_fit();
    CHECK(copy.back() == 99'999.0F);
  }
  CHECK(memory.free_bytes() == free_before);
}

using traits = std::allocator_traits<vtier::allocator<int, vtier::numa>>;
static_assert(std::is_same_v<traits::rebind_alloc<double>, vtier::allocator<double, vtier::numa>>);
static_assert(!traits::is_always_equal::value);
static_assert(std::is_nothrow_copy_constructible_v<vtier::allocator<int, vtier::numa>>);

}  // namespace

TEST_CASE("vectors live in any host resource", "[memory][allocator]") {
  SECTION("pinned") { check_vector(vtier::pinned{{.budget = 8_MiB}}); }
  SECTION("numa") { check_vector(vtier::numa{{.budget = 8_MiB}}); }
  SECTION("mapped_file") {
    const vtier::test::scratch_directory directory;
    check_vector(vtier::mapped_file{directory.path(), {.budget = 8_MiB}});
  }
  SECTION("pool") { check_vector(vtier::pool{vtier::numa{{.budget = 8_MiB}}}); }
}

TEST_CASE("maps and lists live in a pool", "[memory][allocator]") {
  using pool = vtier::pool<vtier::numa>;
  const pool memory{vtier::numa{{.budget = 4_MiB}}};
  {
    using entry = std::pair<const int, std::uint64_t>;
    std::map<int, std::uint64_t, std::less<>, vtier::allocator<entry, pool>> numbers{memory};
    for (int i = 0; i < 2'000; ++i) numbers[i * 7 % 2'000] = static_cast<std::uint64_t>(i);
    CHECK(numbers.size() == 2'000);
    for (int i = 0; i < 2'000; i += 2) numbers.erase(i);
    CHECK(numbers.at(7) == 1);
    std::list<int, vtier::allocator<int, pool>> list{numbers.get_allocator()};
    list.assign(100, 3);
    CHECK(std::accumulate(list.begin(), list.end(), 0) == 300);
  }
  CHECK(memory.used_bytes() == 0);
}

TEST_CASE("an allocator travels with its container", "[memory][allocator]") {
  const vtier::numa first{{.budget = 1_MiB, .name = "first"}};
  const vtier::numa second{{.budget = 1_MiB, .name = "second"}};
  {
    floats<vtier::numa> a({1.0F, 2.0F}, first);
    floats<vtier::numa> b({3.0F}, second);
    CHECK(a.get_allocator() != b.get_allocator());

    SECTION("swap") {
      const float* const bytes = a.data();
      swap(a, b);
      CHECK(b.data() == bytes);
      CHECK(b.get_allocator().from().name() == "first");
      CHECK(a.get_allocator().from().name() == "second");
    }
    SECTION("copy assignment") {
      a = b;
      CHECK(a == b);
      CHECK(a.get_allocator().from() == second);
      CHECK(first.free_bytes() == 1_MiB);
    }
    SECTION("move assignment") {
      const float* const bytes = b.data();
      a = std::move(b);
      CHECK(a.data() == bytes);
      CHECK(a.get_allocator().from() == second);
      CHECK(first.free_bytes() == 1_MiB);
    }
    SECTION("what was moved from can be used again") {
      const auto moved = std::move(a);
      CHECK(moved.get_allocator() == a.get_allocator());  // NOLINT: the standard asks for it
      a.push_back(9.0F);
      CHECK(a == floats<vtier::numa>({9.0F}, first));
      CHECK(moved == floats<vtier::numa>({1.0F, 2.0F}, first));
    }
    SECTION("a copy into another memory") {
      const floats<vtier::numa> copy(a, vtier::allocator<float, vtier::numa>{second});
      CHECK(copy == a);
      CHECK(copy.get_allocator().from() == second);
    }
  }
  CHECK(first.free_bytes() == 1_MiB);
  CHECK(second.free_bytes() == 1_MiB);
}

TEST_CASE("allocators of different types over one memory are equal", "[memory][allocator]") {
  const vtier::numa memory{{.budget = 1_MiB}};
  const vtier::numa other{{.budget = 1_MiB}};
  const vtier::allocator<int, vtier::numa> ints{memory};
  const vtier::allocator<double, vtier::numa> doubles{ints};
  CHECK(ints == doubles);
  CHECK(doubles == ints);
  CHECK(ints != vtier::allocator<double, vtier::numa>{other});
}

TEST_CASE("objects are aligned as their type asks", "[memory][allocator]") {
  struct alignas(128) wide {
    char bytes[128];
  };
  const vtier::pool memory{vtier::numa{{.budget = 1_MiB}}};
  std::vector<wide, vtier::allocator<wide, vtier::pool<vtier::numa>>> v(5, memory);
  CHECK(reinterpret_cast<std::uintptr_t>(v.data()) % 128 == 0);
}

TEST_CASE("the container keeps the memory alive", "[memory][allocator]") {
  auto made = [] {
    const vtier::numa memory{{.budget = 1_MiB}};
    return floats<vtier::numa>(1'000, 5.0F, memory);
  }();
  made.resize(2'000, 6.0F);
  CHECK((made.front() == 5.0F && made.back() == 6.0F));
}

TEST_CASE("what does not fit is refused as the standard says", "[memory][allocator]") {
  vtier::allocator<double, vtier::numa> doubles{vtier::numa{{.budget = 4_KiB}}};
  CHECK_THROWS_AS(doubles.allocate((std::numeric_limits<std::size_t>::max)() / 4), std::bad_array_new_length);
  CHECK_THROWS_AS(doubles.allocate(1'000), std::bad_alloc);
  CHECK_THROWS_AS(doubles.allocate(1'000), vtier::out_of_memory);
  CHECK(doubles.allocate(0) == nullptr);
  doubles.deallocate(nullptr, 0);
}
