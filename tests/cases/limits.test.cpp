// SPDX-License-Identifier: Apache-2.0
// What a container or a device's runtime allows less of than there is, through the front door (VO-C02, VO-C06).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/faulty_device.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"
#include "topology/fake_tree.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

std::size_t count_of(const std::vector<std::string>& list, const std::string& what) {
  std::size_t count = 0;
  for (const std::string& text : list) count += has(text, what) ? 1U : 0U;
  return count;
}

/// Host memory of a process in a container that the test has made up.
class contained : public vtier::detail::page_resource {
 public:
  contained(const vtier::test::fake_tree& tree, std::size_t budget, bool lock, const std::string& name)
      : page_resource{std::make_shared<vtier::detail::page_state>(request(tree, lock, name), budget)} {}

  /// As `pinned` on a device: the device's runtime gives the memory.
  contained(const vtier::test::fake_tree& tree, std::size_t budget, const vtier::host::device& on)
      : contained{tree, budget, true, "dram"} {
    state().device_allocate = [on](std::size_t size_bytes) { return on.allocate_host(size_bytes); };
    state().device_deallocate = [on](void* p, std::size_t size_bytes) { on.deallocate_host(p, size_bytes); };
  }

 private:
  static vtier::detail::page_request request(const vtier::test::fake_tree& tree, bool lock, const std::string& name) {
    vtier::detail::page_request wanted;
    wanted.name = name;
    wanted.lock = lock;
    wanted.roots = tree.roots();
    return wanted;
  }
};

static_assert(vtier::host_resource<contained>);

}  // namespace

TEST_CASE("a host tier above the container's limit is refused when the hierarchy is made (VO-C06)", "[cases]") {
  const bool v2 = GENERATE(true, false);
  const int kind = GENERATE(0, 1, 2);  // unlocked, locked, from the device's runtime
  CAPTURE(v2, kind);
  const vtier::test::fake_tree tree;
  const vtier::test::scratch_directory directory;
  // The limit stands in a parent, as that of a pod does.
  const std::string limit_file = v2 ? "sys/fs/cgroup/pod/memory.max" : "sys/fs/cgroup/memory/pod/memory.limit_in_bytes";
  tree.file("proc/self/cgroup", v2 ? "0::/pod/box" : "7:memory:/pod/box\n1:name=systemd:/\n0::/");
  if (v2) tree.file("sys/fs/cgroup/pod/box/memory.max", "max");
  if (!v2) tree.file("sys/fs/cgroup/memory/pod/box/memory.limit_in_bytes", "9223372036854771712");
  tree.file(limit_file, std::to_string(16_MiB));

  const vtier::host::device gpu{{.memory_bytes = 8_MiB, .name = "toy"}};
  const vtier::hbm first{gpu, {.budget = 1_MiB}};
  const vtier::mapped_file third{directory.path().string(), {.budget = 32_MiB}};
  const auto make = [&](std::size_t budget) {
    return kind == 2 ? contained{tree, budget, gpu} : contained{tree, budget, kind == 1, "dram"};
  };
  {
    const contained second = make(17_MiB);
    REQUIRE(second.notes().size() == 1);  // already before anything is asked of it
    CHECK(has(second.notes().front(), limit_file));
    CHECK(has(second.notes().front(), "17 MiB"));
    try {
      vtier::hierarchy mem{first, second, third};
      FAIL("nothing was thrown");
    } catch (const vtier::out_of_memory& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(e.tier() == "dram");
      CHECK(e.asked_bytes() == 17_MiB);
      CHECK(e.free_bytes() <= 16_MiB);
      CHECK(has(text, "may use 16 MiB"));
      CHECK(has(text, limit_file));
    }
    CHECK(second.free_bytes() == 17_MiB);
  }
  CHECK(first.free_bytes() == 1_MiB);
  CHECK(third.free_bytes() == 32_MiB);
  CHECK(gpu.memory().free_bytes == 8_MiB);

  const contained second = make(2_MiB);
  CHECK(second.notes().empty());
  vtier::hierarchy mem{first, second, third};
  auto stream = gpu.make_stream();
  std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
  for (std::size_t i = 0; i < 10; ++i) {
    tensors.push_back(mem.make_tensor<std::uint8_t>({600'000}, role::parameter));
    fill(gpu, stream, tensors.back(), i);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) CHECK(differences(gpu, stream, tensors[i], i) == 0);
}

TEST_CASE("two tiers that fit alone and not together are refused as soon as the first is there (VO-C06)", "[cases]") {
  const vtier::test::fake_tree tree;
  tree.file("proc/self/cgroup", "0::/box");
  tree.file("sys/fs/cgroup/box/memory.max", std::to_string(32_MiB));
  const contained near{tree, 20_MiB, true, "near"};
  const contained far{tree, 20_MiB, true, "far"};
  const vtier::slab taken = near.make_slab();
  tree.file("sys/fs/cgroup/box/memory.stat", "anon " + std::to_string(20_MiB));  // as the kernel counts it
  try {
    const vtier::slab more = far.make_slab();
    FAIL("nothing was thrown");
  } catch (const vtier::out_of_memory& e) {
    CHECK(e.tier() == "far");
    CHECK(e.free_bytes() == 12_MiB);
    CHECK(has(e.what(), "uses 20 MiB of it"));
    CHECK(has(e.what(), "sys/fs/cgroup/box/memory.max"));
  }
  CHECK(far.free_bytes() == 20_MiB);
}

TEST_CASE("host memory that the device does not register works all the same, and each tier says so once (VO-C02)",
          "[cases]") {
  // Bit i of the mask: the i-th registration is refused.
  for (const unsigned refused : {0U, 1U, 2U, 3U}) {
    CAPTURE(refused);
    const vtier::test::scratch_directory directory;
    const vtier::test::faulty_device gpu;
    gpu.broken->refused_registrations = refused;
    const std::size_t tiers_refused = (refused & 1U) + (refused >> 1U & 1U);
    {
      vtier::options limits;
      limits.progress_thread = refused != 3;
      vtier::hierarchy mem{
          vtier::hbm{gpu, {.budget = 512_KiB}},
          vtier::numa{{.budget = 512_KiB, .name = "near"}},
          vtier::pinned{{.budget = 512_KiB, .name = "far"}},
          vtier::mapped_file{directory.path().string(), {.budget = 16_MiB}},
          limits,
      };
      CHECK(gpu.broken->registered == 2 - tiers_refused);
      const auto stream = gpu.make_stream();
      std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
      for (std::size_t i = 0; i < 20; ++i) {
        tensors.push_back(mem.make_tensor<std::uint8_t>({200'000}, role::parameter));
        fill(gpu, stream, tensors.back(), i);
      }
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < tensors.size(); ++i) wrong += differences(gpu, stream, tensors[i], i);
      CHECK(wrong == 0);
      CHECK(mem.broken_rules().empty());
      const auto counted = mem.count();
      CHECK(counted.errors.empty());
      CHECK(count_of(counted.notes, "does not take this memory as page-locked") == tiers_refused);
      CHECK(count_of(counted.notes, "near: the device") == (refused & 1U));
      CHECK(count_of(counted.notes, "far: the device") == (refused >> 1U & 1U));
    }
    CHECK(gpu.broken->registered == 0);  // and nothing is unregistered that was not registered
  }
}
