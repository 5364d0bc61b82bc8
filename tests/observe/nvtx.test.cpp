// SPDX-License-Identifier: Apache-2.0
// A stand-in for a profiler takes the place of the real one, as NVTX provides for: it sees what a profiler would.

#include "support/catch.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <vtier/observe/nvtx.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <vtier/core/error.hpp>

namespace {

std::vector<std::string> seen;

int push(const char* name) {
  seen.emplace_back("+" + std::string{name});
  return 0;
}
int pop() {
  seen.emplace_back("-");
  return 0;
}

// What NVTX calls before its first range.
int attach(NvtxGetExportTableFunc_t get_table) {
  const auto* const tables = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (tables == nullptr || tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count) == 0) return 0;
  if (count <= NVTX_CBID_CORE_RangePop) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

// Begins afresh, with the stand-in in place before the first range of the process.
void watch() {
  InitializeInjectionNvtx2_fnptr = &attach;
  seen.clear();
}

struct counting_hierarchy {
  struct step_scope {
    explicit step_scope(bool fails) {
      if (fails) throw vtier::usage_error("a step inside another");
      seen.emplace_back("begin");
    }
    step_scope(const step_scope&) = delete;
    step_scope& operator=(const step_scope&) = delete;
    ~step_scope() { seen.emplace_back("end"); }
  };
  step_scope step() { return step_scope{fails}; }
  bool fails = false;
};

}  // namespace

TEST_CASE("a range begins and ends where a profiler sees it", "[observe][nvtx]") {
  watch();
  {
    const vtier::nvtx_range outer{"forward"};
    const vtier::nvtx_range inner{std::string{"layer 3"}};
  }
  CHECK(seen == std::vector<std::string>{"+forward", "+layer 3", "-", "-"});
}

TEST_CASE("a step has a range around it", "[observe][nvtx]") {
  watch();
  counting_hierarchy mem;
  {
    const vtier::nvtx_step step{mem};
    seen.emplace_back("inside");
  }
  { const vtier::nvtx_step step{mem, "step 2"}; }
  CHECK(seen == std::vector<std::string>{"+step", "begin", "inside", "end", "-", "+step 2", "begin", "end", "-"});
}

TEST_CASE("a step that is refused leaves no range open", "[observe][nvtx]") {
  watch();
  counting_hierarchy mem{true};
  CHECK_THROWS_AS(vtier::nvtx_step{mem}, vtier::usage_error);
  CHECK(seen == std::vector<std::string>{"+step", "-"});
}

#else

TEST_CASE("ranges for profilers need the headers of NVTX", "[observe][nvtx]") {
  WARN("nvtx3/nvToolsExt.h is not here: nothing was tested");
}

#endif
