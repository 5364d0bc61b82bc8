// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/pinned.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/process_memory.hpp"

using namespace vtier::literals;

TEST_CASE("pinned is a resource", "[memory][pinned]") {
  SECTION("of pages of its own") {
    const auto make = [](std::size_t budget) { return vtier::pinned{{.budget = budget}}; };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 2);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
  }
  SECTION("of a device's runtime") {
    const vtier::host::device device;
    const auto make = [&](std::size_t budget) {
      return vtier::pinned{device, {.budget = budget, .name = "of device"}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 2);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
    CHECK(make(1_MiB).make_slab().properties().registered);
    CHECK_THROWS_AS(make(1_MiB).allocate(4096, 1_MiB), vtier::usage_error);
    CHECK(make(1_MiB).free_bytes() == 1_MiB);
  }
}

// VO-C01: 129.5 MiB and 1.20 GiB, eight of each, 64 times smaller. A rounding to powers of two would book 2 MiB more
// than it shows on the first and 12 on the second.
TEST_CASE("what is locked is what was booked, and the budget shows it", "[memory][pinned]") {
  const std::vector<std::size_t> sizes{2'121'728, 20'132'660};
  const std::size_t budget = 256_MiB;
  const vtier::pinned memory{{.budget = budget}};
  const std::size_t mapped_before = vtier::test::status_bytes("VmSize:");
  const std::size_t locked_before = vtier::test::status_bytes("VmLck:");
  const std::size_t resident_before = vtier::test::status_bytes("VmRSS:");
  std::size_t asked = 0;
  std::vector<std::pair<void*, std::size_t>> held;
  for (const std::size_t size : sizes) {
    for (int i = 0; i < 8; ++i) {
      held.emplace_back(memory.allocate(size, 64), size);
      asked += size;
    }
  }
  const std::size_t booked = budget - memory.free_bytes();
  CHECK(booked >= asked);
  CHECK(booked <= asked + 16 * 4096);
  const std::size_t most = booked + booked / 50 + 2_MiB;
  CHECK(vtier::test::status_bytes("VmSize:") - mapped_before >= booked);
  CHECK(vtier::test::status_bytes("VmSize:") - mapped_before <= most);
  if (!memory.notes().empty()) {
    WARN("not locked: " + memory.notes().front());
  } else if (!vtier::test::locking_is_real()) {
    WARN("not looked at: mlock does nothing here");
  } else {
    CHECK(vtier::test::status_bytes("VmLck:") - locked_before == booked);
    CHECK(vtier::test::status_bytes("VmRSS:") - resident_before <= most);
  }
  CHECK(memory.peak_bytes() == booked);
  for (const auto& [pointer, size] : held) memory.deallocate(pointer, size, 64);
  CHECK(memory.free_bytes() == budget);
  CHECK(vtier::test::status_bytes("VmLck:") == locked_before);
  CHECK(vtier::test::status_bytes("VmSize:") <= mapped_before + 2_MiB);
}

namespace {

// As an ordinary user who may lock 64 KiB; 3 where that cannot be arranged or locking means nothing.
template <class Function>
vtier::test::child_end with_little_to_lock(const Function& function) {
  return vtier::test::in_child([&] {
    const ::rlimit limit{64_KiB, 64_KiB};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) ::_exit(3);
    if (::geteuid() == 0 && ::setuid(65'534) != 0) ::_exit(3);
    if (!vtier::test::locking_is_real()) ::_exit(3);
    return function();
  });
}

}  // namespace

TEST_CASE("where the limit forbids locking, memory comes unlocked and a note names the limit", "[memory][pinned]") {
  const auto end = with_little_to_lock([] {
    const vtier::pinned memory{{.budget = 8_MiB, .name = "dram"}};
    void* const fits = memory.allocate(32_KiB, 16);
    const bool quiet = memory.notes().empty();
    void* const large = memory.allocate(4_MiB, 16);
    if (large == nullptr) return false;
    std::memset(large, 1, 4_MiB);
    static_cast<void>(memory.allocate(1_MiB, 16));
    const auto notes = memory.notes();
    memory.deallocate(large, 4_MiB, 16);
    memory.deallocate(fits, 32_KiB, 16);
    const auto slab = memory.make_slab();
    slab.base()[slab.size_bytes() - 1] = std::byte{1};
    return quiet && notes.size() == 1 && notes[0].find("dram") != std::string::npos &&
           notes[0].find("limit 64 KiB") != std::string::npos && notes[0].find("wants 8 MiB") != std::string::npos &&
           notes[0].find("ulimit -l") != std::string::npos;
  });
  if (end.exit_status == 3) {
    WARN("skipped: this process may not lower its limits, or mlock does nothing here");
    return;
  }
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
}

TEST_CASE("memory that must be locked is refused where it cannot be", "[memory][pinned]") {
  const auto end = with_little_to_lock([] {
    const vtier::pinned memory{{.budget = 8_MiB, .name = "dram", .require_lock = true}};
    memory.deallocate(memory.allocate(32_KiB, 16), 32_KiB, 16);
    const std::size_t mapped = vtier::test::status_bytes("VmSize:");
    const auto refused = [&](const auto& ask) {
      try {
        ask();
        return false;
      } catch (const vtier::out_of_memory& e) {
        return std::string{e.what()}.find("64 KiB") != std::string::npos && memory.free_bytes() == 8_MiB;
      }
    };
    return refused([&] { static_cast<void>(memory.allocate(4_MiB, 16)); }) &&
           refused([&] { static_cast<void>(memory.make_slab()); }) &&
           vtier::test::status_bytes("VmSize:") < mapped + 1_MiB;
  });
  if (end.exit_status == 3) {
    WARN("skipped: this process may not lower its limits, or mlock does nothing here");
    return;
  }
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
}

// VO-C09
TEST_CASE("a pinned slab larger than the machine is refused before anything is locked", "[memory][pinned]") {
  const std::size_t budget = 4 * vtier::test::physical_bytes();
  const vtier::pinned memory{{.budget = budget, .name = "dram"}};
  const std::size_t locked = vtier::test::status_bytes("VmLck:");
  try {
    static_cast<void>(memory.make_slab());
    FAIL("four times the machine's memory was given");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(e.tier() == "dram");
    CHECK(e.asked_bytes() == budget);
    CHECK(e.free_bytes() > 0);
    CHECK(e.free_bytes() < vtier::test::physical_bytes());
    CHECK(text.find(vtier::format_bytes(budget)) != std::string::npos);
    CHECK(text.find(vtier::format_bytes(e.free_bytes())) != std::string::npos);
    CHECK(text.find(vtier::format_bytes(vtier::test::physical_bytes())) != std::string::npos);
    CHECK(text.find("locked-memory limit") != std::string::npos);
  }
  CHECK(memory.free_bytes() == budget);
  CHECK(vtier::test::status_bytes("VmLck:") == locked);
  CHECK_THROWS_AS(memory.allocate(budget / 2, 16), vtier::out_of_memory);  // lazy: at the allocation that fails
  memory.deallocate(memory.allocate(64_KiB, 16), 64_KiB, 16);
  CHECK(memory.free_bytes() == budget);
}

// A drive writes into a slab while the parent goes on: with copy on write, what arrives could be the child's (open(2)).
TEST_CASE("a slab is not in a forked child, and ends there without a trace (VO-C07)", "[memory][pinned]") {
  const vtier::pinned memory{{.budget = 4_MiB}};
  auto slab = std::make_unique<vtier::slab>(memory.make_slab());
  std::byte* const base = slab->base();
  std::memset(base, 1, 4_MiB);
  const auto end = vtier::test::in_child([&] {
    unsigned char resident = 0;
    if (::mincore(base, 4096, &resident) == 0) return false;
    // The addresses are free here, and somebody else's now.
    void* const other = ::mmap(base, 4_MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (other != base) return false;
    slab.reset();
    std::memset(base, 2, 4_MiB);
    const vtier::pinned own{{.budget = 1_MiB}};
    vtier::slab of_the_child = own.make_slab();
    of_the_child.base()[0] = std::byte{3};
    return base[4_MiB - 1] == std::byte{2};
  });
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  CHECK(base[4_MiB - 1] == std::byte{1});
  slab.reset();
  CHECK(memory.free_bytes() == 4_MiB);
}
