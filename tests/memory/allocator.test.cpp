// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/allocator.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <type_traits>
#include <unordered_map>
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
static_assert(traits::propagate_on_container_copy_assignment::value);
static_assert(traits::propagate_on_container_move_assignment::value);
static_assert(traits::propagate_on_container_swap::value);
static_assert(!std::is_constructible_v<vtier::allocator<int, vtier::numa>, vtier::allocator<int, vtier::pinned>>);
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

TEST_CASE("every kind of container lives in a pool", "[memory][allocator]") {
  using pool = vtier::pool<vtier::numa>;
  const pool memory{vtier::numa{{.budget = 4_MiB}}};
  {
    using entry = std::pair<const int, int>;
    std::unordered_map<int, int, std::hash<int>, std::equal_to<>, vtier::allocator<entry, pool>> table{
        16, std::hash<int>{}, std::equal_to<>{}, memory};
    for (int i = 0; i < 2'000; ++i) table[i] = -i;
    const auto copy = table;
    CHECK(copy.get_allocator() == table.get_allocator());
    CHECK(copy.at(1'999) == -1'999);

    std::deque<int, vtier::allocator<int, pool>> queue{memory};
    for (int i = 0; i < 5'000; ++i) queue.push_front(i);
    queue.resize(4'000);
    CHECK((queue.front() == 4'999 && queue.back() == 1'000));

    using text = std::basic_string<char, std::char_traits<char>, vtier::allocator<char, pool>>;
    text words{memory};
    for (int i = 0; i < 1'000; ++i) words += "word ";
    CHECK(words.size() == 5'000);
    const text words_again = words;
    CHECK(words_again.get_allocator() == words.get_allocator());

    const std::size_t used_before = memory.used_bytes();
    auto shared = std::allocate_shared<std::uint64_t>(vtier::allocator<std::uint64_t, pool>{memory}, 7U);
    CHECK(memory.used_bytes() > used_before);
    const std::weak_ptr<std::uint64_t> weak = shared;
    CHECK(*shared == 7U);
    shared.reset();
    CHECK(weak.expired());
  }
  CHECK(memory.used_bytes() == 0);
}

TEST_CASE("nodes move between two memories with their allocators", "[memory][allocator]") {
  using pool = vtier::pool<vtier::numa>;
  using list = std::list<int, vtier::allocator<int, pool>>;
  const pool first{vtier::numa{{.budget = 1_MiB}}};
  const pool second{vtier::numa{{.budget = 1_MiB}}};
  {
    list a({1, 2, 3}, first);
    list b({4}, second);
    swap(a, b);
    CHECK(a == list({4}, first));
    CHECK(a.get_allocator().from() == second);
    b = std::move(a);
    CHECK(b.get_allocator().from() == second);
    CHECK(first.used_bytes() == 0);
    b = list({5, 6}, first);
    CHECK(b.get_allocator().from() == first);
    CHECK(second.used_bytes() == 0);
    const list copy = b;
    CHECK(copy.get_allocator().from() == first);
    list other(std::move(b), second);  // into another memory: element by element
    CHECK(other == copy);
    CHECK(other.get_allocator().from() == second);
    CHECK(second.used_bytes() > 0);
  }
  CHECK(first.used_bytes() == 0);
  CHECK(second.used_bytes() == 0);
}

TEST_CASE("an allocator that a container gave outlives both it and the pool's own handle", "[memory][allocator]") {
  using pool = vtier::pool<vtier::numa>;
  auto memory = std::make_unique<pool>(vtier::numa{{.budget = 1_MiB}});
  auto numbers = std::make_unique<std::vector<int, vtier::allocator<int, pool>>>(100, 1, *memory);
  auto left = numbers->get_allocator();
  numbers.reset();
  memory.reset();
  int* const p = left.allocate(10);
  CHECK(left.from().used_bytes() == 256);
  left.deallocate(p, 10);
  CHECK(left.from().used_bytes() == 0);
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
