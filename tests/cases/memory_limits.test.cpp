// SPDX-License-Identifier: Apache-2.0
// Memory that cannot be locked, registered or had at all, through the front door (VO-C03, VO-C09).

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/host_hierarchy.hpp"
#include "support/process_memory.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

/// Moves tensors through all tiers; whether every byte was right.
template <class Hierarchy>
bool swaps_right(Hierarchy& mem, const vtier::host::device& gpu) {
  const auto stream = gpu.make_stream();
  std::vector<typename Hierarchy::template tensor<std::uint8_t>> tensors;
  for (std::size_t i = 0; i < 20; ++i) {
    tensors.push_back(mem.template make_tensor<std::uint8_t>({700'000}, role::parameter));
    fill(gpu, stream, tensors.back(), i);
    mem.flush(tensors.back());  // to the file and, below, back from it
    mem.evict(tensors.back(), 0);
    mem.evict(tensors.back(), 1);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) wrong += differences(gpu, stream, tensors[i], i);
  return wrong == 0 && mem.broken_rules().empty();
}

constexpr int skipped = 77;

}  // namespace

TEST_CASE("with little memory to lock, a tier goes unlocked and a ring unregistered, and each is said once (VO-C03)",
          "[cases]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: the sanitizers answer mlock themselves");
  return;
#endif
  if (!vtier::test::locking_is_real()) {
    WARN("skipped: mlock does nothing here");
    return;
  }
  const vtier::test::scratch_directory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
  for (const std::size_t limit_bytes : {0_B, 64_KiB, 8_MiB}) {
    for (const auto engine : {vtier::io::engine_kind::uring, vtier::io::engine_kind::automatic}) {
      CAPTURE(limit_bytes, static_cast<int>(engine));
      const auto end = vtier::test::in_child([&] {
        ::alarm(60);
        const ::rlimit limit{limit_bytes, limit_bytes};
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) ::_exit(skipped);
        constexpr unsigned nobody = 65'534 - 77;  // what the kernel counts for a user is hardly anybody else's
        if (::geteuid() == 0 && (::setgid(nobody) != 0 || ::setuid(nobody) != 0)) ::_exit(skipped);
        const std::string shown = limit_bytes == 0 ? "0 B" : vtier::format_bytes(limit_bytes);
        const vtier::host::device gpu;
        using hierarchy = vtier::hierarchy<vtier::host::device>;
        std::optional<hierarchy> mem;
        try {
          mem.emplace(vtier::hbm{gpu, {.budget = 2_MiB}}, vtier::pinned{{.budget = 64_MiB, .name = "dram"}},
                      vtier::mapped_file{directory.path().string(), {.budget = 64_MiB, .engine = engine}});
        } catch (const vtier::io_error& e) {
          // Newer kernels count the ring itself too; who insists on one is told so.
          std::fprintf(stderr, "%s\n", e.what());
          const bool ring_fits = limit_bytes >= 1_MiB;
          if (engine == vtier::io::engine_kind::automatic || e.code().value() == ENOSYS || ring_fits) throw;
          return has(e.what(), "limit of " + shown) && has(e.what(), "ulimit -l");
        }
        if (!swaps_right(*mem, gpu)) return false;
        int unlocked = 0;
        int engine_notes = 0;
        const auto counted = mem->count();
        for (const std::string& note : counted.notes) {
          std::fprintf(stderr, "%s\n", note.c_str());
          const bool told = has(note, "limit") && has(note, shown) && has(note, "ulimit -l");
          if (has(note, "unlocked")) unlocked += told && has(note, "dram") && has(note, "64 MiB") ? 1 : 100;
          if (has(note, "unregistered")) engine_notes += told && has(note, "wanted 64 MiB") ? 1 : 100;
          if (has(note, "threads: io_uring")) engine_notes += told ? 1 : 100;
        }
        return unlocked == 1 && engine_notes == 1 && counted.errors.empty();
      });
      if (end.exit_status == skipped || has(end.text, "(EPERM)") || has(end.text, "(ENOSYS)")) {
        WARN("skipped: this process may not lower its limits, or there is no io_uring");
        return;
      }
      CAPTURE(end.text, end.signal);
      CHECK(end.exit_status == 0);
      CHECK(directory.empty());
    }
  }
}

TEST_CASE("a pinned tier larger than the machine is refused when the hierarchy is made, and costs nothing (VO-C09)",
          "[cases]") {
  const vtier::test::scratch_directory directory;
  const vtier::host::device gpu{{.memory_bytes = 8_MiB, .name = "toy"}};
  const vtier::hbm first{gpu, {.budget = 2_MiB}};
  const vtier::mapped_file third{directory.path().string(), {.budget = 64_MiB}};
  const std::size_t budget = 4 * vtier::test::physical_bytes();
  const std::size_t locked = vtier::test::status_bytes("VmLck:");
  const std::size_t resident = vtier::test::status_bytes("VmRSS:");
  const vtier::pinned second{{.budget = budget, .name = "dram"}};
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      vtier::hierarchy mem{first, second, third};
      FAIL("nothing was thrown");
    } catch (const vtier::out_of_memory& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(e.tier() == "dram");
      CHECK(e.asked_bytes() == budget);
      CHECK(has(text, "asked " + vtier::format_bytes(budget)));
      CHECK(has(text, "of " + vtier::format_bytes(vtier::test::physical_bytes())));
      CHECK(has(text, "locked-memory limit"));
      CHECK(has(text, "lower the budget"));
    }
    CHECK(first.free_bytes() == 2_MiB);
    CHECK(second.free_bytes() == budget);
    CHECK(third.free_bytes() == 64_MiB);
    CHECK(gpu.memory().free_bytes == 8_MiB);
    CHECK(directory.empty());
    CHECK(vtier::test::status_bytes("VmLck:") == locked);
    CHECK(vtier::test::status_bytes("VmRSS:") < resident + 64_MiB);
  }
  // The next allowed tier takes all, and so does a smaller one.
  {
    vtier::hierarchy without{first, third};
    CHECK(swaps_right(without, gpu));
  }
  vtier::hierarchy smaller{first, vtier::pinned{{.budget = 4_MiB}}, third};
  CHECK(swaps_right(smaller, gpu));
}
