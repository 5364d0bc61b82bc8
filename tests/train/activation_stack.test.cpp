// SPDX-License-Identifier: Apache-2.0

#include <vtier/train/activation_stack.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

struct fixture {
  fixture() {
    limits.progress_thread = false;  // hints are acted on within the calls: what is where can be asked right after
    limits.clean_share = 0.0;
  }
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::options limits;
};

}  // namespace

TEST_CASE("a stack larger than two tiers comes back in reverse, step after step") {
  // VO-D02: the pool is as large as one step needs, other values each step
  fixture f;
  vtier::hierarchy mem{vtier::hbm{f.gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 2_MiB}},
                       vtier::mapped_file{f.directory.path(), {.budget = 16_MiB}}, f.limits};
  auto stream = f.gpu.make_stream();
  vtier::activation_stack stack{mem};
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < 24; ++i) {
      auto t = mem.make_tensor<std::uint8_t>({200'000 + i}, role::activation);
      fill(f.gpu, stream, t, step * 100 + i);
      stack.push(std::move(t));
    }
    CHECK(stack.size() == 24);
    for (std::size_t i = 24; i-- > 0;) {
      const auto t = stack.pop<std::uint8_t>();
      CAPTURE(step, i);
      CHECK(t.size() == 200'000 + i);
      CHECK(differences(f.gpu, stream, t, step * 100 + i) == 0);
    }
    CHECK(stack.empty());
  }
  CHECK(mem.broken_rules().empty());
  for (const auto& t : mem.count().tiers) CHECK(t.used_bytes == t.staging_bytes);
}

TEST_CASE("older entries leave the fast tier ahead of need, and come back ahead of the pop") {
  fixture f;
  vtier::hierarchy mem{vtier::hbm{f.gpu, {.budget = 8_MiB}}, vtier::pinned{{.budget = 8_MiB}}, f.limits};
  auto stream = f.gpu.make_stream();
  vtier::activation_stack stack{mem, {.keep = 2, .ahead = 1}};
  for (std::size_t i = 0; i < 5; ++i) {
    auto t = mem.make_tensor<std::uint8_t>({4096}, role::activation);
    fill(f.gpu, stream, t, i);
    stack.push(std::move(t));
  }
  // There would be room for all: only the newest two are kept up all the same.
  CHECK(mem.count().tiers[0].used_bytes == 2U * 4096U);
  CHECK(mem.count().tiers[1].used_bytes == 3U * 4096U);
  { const auto top = stack.pop<std::uint8_t>(); }
  { const auto second = stack.pop<std::uint8_t>(); }  // asks for the third
  const auto hits = mem.count().prefetch_hit_count;
  const auto third = stack.pop<std::uint8_t>();
  CHECK(differences(f.gpu, stream, third, 2) == 0);
  CHECK(mem.count().prefetch_hit_count == hits + 1);
}

TEST_CASE("pops that do not mirror pushes are refused and lose nothing") {
  fixture f;
  vtier::hierarchy mem{vtier::hbm{f.gpu, {.budget = 1_MiB}}, f.limits};
  auto stream = f.gpu.make_stream();
  vtier::activation_stack stack{mem};
  CHECK_THROWS_AS(stack.pop<float>(), vtier::usage_error);
  auto t = mem.make_tensor<std::uint8_t>({100}, role::activation);
  fill(f.gpu, stream, t, 1);
  stack.push(std::move(t));
  std::string message;
  try {
    auto wrong = stack.pop<float>();
  } catch (const vtier::usage_error& e) {
    message = e.what();
  }
  CHECK(message.find("fp32") != std::string::npos);
  CHECK(message.find("u8") != std::string::npos);
  CHECK(stack.size() == 1);
  const auto back = stack.pop<std::uint8_t>();
  CHECK(differences(f.gpu, stream, back, 1) == 0);
  stack.push(mem.make_tensor<float>({0}, role::activation));
  stack.clear();
  CHECK(stack.empty());
}
