// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranges that NVIDIA's profilers show beside kernels and copies: where a step begins and ends, and whatever a trainer
// wants to name.
//
// The one header that knows NVTX, which is headers only: without a profiler a range costs a load and a branch.

#include <nvtx3/nvToolsExt.h>

#include <string>

#include <vtier/core/config.hpp>

namespace vtier {

/// A named range of the calling thread, from here to the end of the scope.
///
/// Needs   a name that ends with a null; it is copied
/// Threads it ends in the thread that it began in, the last that began first
/// Cost    without a profiler a load and a branch; no allocation
class nvtx_range {
 public:
  explicit nvtx_range(const char* name) noexcept { nvtxRangePushA(name); }
  explicit nvtx_range(const std::string& name) noexcept : nvtx_range{name.c_str()} {}
  nvtx_range(const nvtx_range&) = delete;
  nvtx_range& operator=(const nvtx_range&) = delete;
  ~nvtx_range() { nvtxRangePop(); }
};

/// A step of a hierarchy and a range around it: `const vtier::nvtx_step step{mem};` in place of `mem.step()`.
///
/// Errors  usage_error inside another step; then there is no range either
/// Threads as nvtx_range
template <class Hierarchy>
class nvtx_step {
 public:
  explicit nvtx_step(Hierarchy& mem, const char* name = "step") : around_{name}, step_{mem.step()} {}

 private:
  nvtx_range around_;
  typename Hierarchy::step_scope step_;
};

}  // namespace vtier
