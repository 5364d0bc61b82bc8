// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/pmr.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory_resource>
#include <string>
#include <type_traits>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;

namespace {

using memory_pool = vtier::pool<vtier::numa>;
using front = vtier::pmr_resource<memory_pool>;
static_assert(!std::is_copy_constructible_v<front> && !std::is_copy_assignable_v<front>);

}  // namespace

TEST_CASE("containers of std::pmr live in a resource", "[memory][pmr]") {
  const memory_pool below{vtier::numa{{.budget = 4_MiB}}};
  front memory{below};
  CHECK(memory.from() == below);
  {
    std::pmr::vector<std::pmr::string> words{&memory};
    for (int i = 0; i < 500; ++i) words.emplace_back("a word that does not fit into the string itself, surely");
    std::pmr::map<int, std::pmr::list<int>> lists{&memory};
    for (int i = 0; i < 100; ++i) lists[i].assign(5, i);
    CHECK(below.used_bytes() > 500 * 50);
    CHECK(words.back().size() == words.front().size());
    CHECK(lists.at(99).back() == 99);
    std::pmr::unsynchronized_pool_resource small{&memory};
    std::pmr::vector<int> numbers(1'000, 7, &small);
    CHECK(numbers.back() == 7);
  }
  CHECK(below.used_bytes() == 0);
}

TEST_CASE("alignments and zero bytes are as std::pmr has them", "[memory][pmr]") {
  const memory_pool below{vtier::numa{{.budget = 1_MiB}}};
  front memory{below};
  for (const std::size_t alignment : {1_B, 64_B, 4_KiB, 64_KiB}) {
    CAPTURE(alignment);
    void* const p = memory.allocate(10, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    memory.deallocate(p, 10, alignment);
  }
  // The address as a number: the compiler takes it for granted that a memory_resource gives no null.
  void* volatile const nothing = memory.allocate(0, 16);
  void* volatile const more = memory.allocate(0, 16);
  CHECK(reinterpret_cast<std::uintptr_t>(nothing) != 0);
  CHECK(nothing != more);
  CHECK(below.used_bytes() == 512);
  memory.deallocate(nothing, 0, 16);
  memory.deallocate(more, 0, 16);
  CHECK(below.used_bytes() == 0);
  CHECK_THROWS_AS(memory.allocate(2_MiB, 16), std::bad_alloc);
  CHECK_THROWS_AS(memory.allocate(1, 3), vtier::usage_error);
}

TEST_CASE("a front is equal to itself alone", "[memory][pmr]") {
  const memory_pool below{vtier::numa{{.budget = 1_MiB}}};
  front first{below};
  front second{below};
  vtier::pmr_resource other{vtier::limited{below, {.budget = 1_MiB}}};
  CHECK(first.is_equal(first));
  CHECK_FALSE(first.is_equal(second));
  CHECK_FALSE(first.is_equal(other));
  CHECK_FALSE(first.is_equal(*std::pmr::new_delete_resource()));
  CHECK_FALSE(std::pmr::new_delete_resource()->is_equal(first));
  std::pmr::vector<int> a({1, 2, 3}, &first);
  std::pmr::vector<int> b(&second);
  b = std::move(a);  // between unequal resources: copied
  CHECK(b == std::pmr::vector<int>{1, 2, 3});
  CHECK(b.get_allocator().resource() == &second);
  std::pmr::vector<int> c(&second);
  const int* const bytes = b.data();
  c = std::move(b);
  CHECK(c.data() == bytes);
}
