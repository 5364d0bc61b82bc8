// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/file_engine.hpp>

#include "support/catch.hpp"
#include "support/scripted_engine.hpp"

namespace {

// A model, and near misses.
struct model {
  bool try_submit(const vtier::file_request&) { return false; }
  std::size_t reap(std::span<vtier::file_completion>) { return 0; }
  void wait(std::int64_t) {}
  bool register_buffers(std::span<const std::span<std::byte>>) { return false; }
  std::size_t in_flight() const { return 0; }
  std::size_t depth_max() const { return 1; }
  std::string_view name() const { return "model"; }
};
struct submits_nothing : model {
  void try_submit(const vtier::file_request&) {}
};
struct counts_when_asked_mutably : model {
  std::size_t in_flight() { return 0; }
};

static_assert(vtier::file_engine<model>);
static_assert(vtier::file_engine<vtier::test::scripted_engine>);
static_assert(!vtier::file_engine<submits_nothing>);
static_assert(!vtier::file_engine<counts_when_asked_mutably>);
static_assert(!vtier::file_engine<int>);

}  // namespace

TEST_CASE("file_engine: a request made without thought moves nothing of anybody") {
  const vtier::file_request request;
  CHECK(request.descriptor == -1);
  CHECK(request.operation == vtier::file_operation::read);
  CHECK(request.memory.empty());
  const vtier::file_completion completion;
  CHECK(completion.result == 0);
}
