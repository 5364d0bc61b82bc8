// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/thread_safe.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/numa.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;

// Says when two threads are in it at once; yields to let the second in.
struct visits {
  std::atomic<int> inside{0};
  std::atomic<int> met{0};
  void visit() {
    if (inside.fetch_add(1) != 0) met.fetch_add(1);
    std::this_thread::yield();
    inside.fetch_sub(1);
  }
};

struct visited_backing final : vtier::detail::slab_backing {
  visited_backing(std::shared_ptr<visits> who, vtier::slab slab) : seen{std::move(who)}, inner{std::move(slab)} {}
  ~visited_backing() override { seen->visit(); }
  std::byte* base() override {
    seen->visit();
    return inner.base();
  }
  void commit(std::size_t end_bytes) override {
    seen->visit();
    inner.commit(end_bytes);
  }
  std::shared_ptr<visits> seen;
  vtier::slab inner;
};

// One thread at a time.
struct single {
  static constexpr vtier::memory_kind kind = vtier::memory_kind::host;
  explicit single(std::size_t budget) : inner{{.budget = budget}} {}
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    seen->visit();
    return inner.allocate(size_bytes, alignment_bytes);
  }
  void deallocate(void* p, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    seen->visit();
    inner.deallocate(p, size_bytes, alignment_bytes);
  }
  [[nodiscard]] vtier::slab make_slab() const {
    seen->visit();
    auto made = inner.make_slab();
    auto properties = made.properties();
    return {std::move(properties), std::make_unique<visited_backing>(seen, std::move(made))};
  }
  [[nodiscard]] std::string name() const {
    seen->visit();
    return inner.name();
  }
  [[nodiscard]] std::size_t free_bytes() const {
    seen->visit();
    return inner.free_bytes();
  }
  [[nodiscard]] std::vector<std::string> notes() const {
    seen->visit();
    return inner.notes();
  }
  friend bool operator==(const single& a, const single& b) noexcept { return a.inner == b.inner; }
  vtier::numa inner;
  std::shared_ptr<visits> seen = std::make_shared<visits>();
};

static_assert(vtier::host_resource<vtier::thread_safe<single>>);
static_assert(!vtier::stream_ordered_resource<vtier::thread_safe<single>>);
static_assert(vtier::stream_ordered_resource<vtier::thread_safe<vtier::hbm<device>>>);

}  // namespace

TEST_CASE("a locked resource is a resource", "[memory][thread_safe]") {
  SECTION("over one that serves one thread") {
    std::vector<std::shared_ptr<visits>> all;
    const auto make = [&](std::size_t budget) {
      const single below{budget};
      all.push_back(below.seen);
      return vtier::thread_safe{below};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
    for (const auto& seen : all) CHECK(seen->met == 0);
  }
  SECTION("hbm") {
    const device on;
    const auto make = [&](std::size_t budget) {
      return vtier::thread_safe{vtier::hbm<device>{on, {.budget = budget}}};
    };
    vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 1);
    vtier::test::check_slab(make, vtier::test::device_bytes<device>{on});
    const auto memory = make(64_KiB);
    const auto stream = on.make_stream();
    void* const p = memory.allocate(stream, 1_KiB, 16);
    CHECK(memory.free_bytes() == 63_KiB);
    memory.deallocate(stream, p, 1_KiB, 16);
    CHECK(memory.free_bytes() == 64_KiB);
  }
}

TEST_CASE("every call into a locked resource is alone there", "[memory][thread_safe]") {
  const single below{8_MiB};
  const vtier::thread_safe memory{below};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        if (t == 0 && i % 10 == 0) {  // takes all: the others are refused meanwhile
          try {
            auto slab = memory.make_slab();
            slab.commit(4096);
            static_cast<void>(slab.base());
          } catch (const vtier::usage_error&) {
          }
        }
        try {
          void* const p = memory.allocate(1 + static_cast<std::size_t>(i), 16);
          memory.deallocate(p, 1 + static_cast<std::size_t>(i), 16);
        } catch (const vtier::out_of_memory&) {
        }
        static_cast<void>(memory.free_bytes());
        static_cast<void>(memory.name());
        static_cast<void>(memory.notes());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(below.seen->met == 0);
  CHECK(memory.free_bytes() == 8_MiB);
}
