// SPDX-License-Identifier: Apache-2.0
// A drive that stops working and comes back: errors reach the caller or the handler, and no tensor is lost.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
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

/// A mapped_file whose descriptors stop working while `broken` is set: every transfer then gets EBADF.
class fragile_file {
 public:
  static constexpr vtier::memory_kind kind = vtier::memory_kind::file;
  explicit fragile_file(vtier::mapped_file inside)
      : inside_{std::move(inside)}, broken_{std::make_shared<std::atomic<bool>>(false)} {}

  void* allocate(std::size_t size, std::size_t alignment) const { return inside_.allocate(size, alignment); }
  void deallocate(void* p, std::size_t size, std::size_t alignment) const noexcept {
    inside_.deallocate(p, size, alignment);
  }
  vtier::slab make_slab() const {
    vtier::slab whole = inside_.make_slab();
    auto properties = whole.properties();
    return {properties, std::make_unique<backing>(std::move(whole), broken_)};
  }
  std::string name() const { return inside_.name(); }
  std::size_t free_bytes() const { return inside_.free_bytes(); }
  std::vector<std::string> notes() const { return inside_.notes(); }
  [[maybe_unused]] friend bool operator==(const fragile_file& a, const fragile_file& b) noexcept {
    return a.inside_ == b.inside_;
  }

  std::atomic<bool>& broken() const noexcept { return *broken_; }

 private:
  struct backing final : vtier::detail::slab_backing {
    backing(vtier::slab w, std::shared_ptr<std::atomic<bool>> b) : whole{std::move(w)}, is_broken{std::move(b)} {}
    std::byte* base() override { return whole.base(); }
    void commit(std::size_t end) override { whole.commit(end); }
    vtier::file_place locate(std::size_t offset) const override {
      auto place = whole.locate(offset);
      if (*is_broken) place.descriptor = -1;
      return place;
    }
    std::optional<vtier::io::engine> make_engine(vtier::notes& remarks) const override {
      return whole.make_engine(remarks);
    }
    vtier::slab whole;
    std::shared_ptr<std::atomic<bool>> is_broken;
  };
  vtier::mapped_file inside_;
  std::shared_ptr<std::atomic<bool>> broken_;
};

static_assert(vtier::resource<fragile_file>);

struct fixture {
  explicit fixture(bool with_thread) {
    limits.progress_thread = with_thread;
    limits.clean_share = 0.0;
    limits.on_error = [this](const std::string& text) {
      const std::scoped_lock hold{lock};
      told.push_back(text);
    };
  }
  std::mutex lock;
  std::vector<std::string> told;
  vtier::options limits;
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
};

}  // namespace

TEST_CASE("a write to a drive that fails is an error of the lease that needed room, and nothing is lost") {
  const bool with_thread = GENERATE(true, false);
  fixture f{with_thread};
  const fragile_file file{vtier::mapped_file{f.directory.path(), {.budget = 32_MiB}}};
  vtier::hierarchy mem{vtier::hbm{f.gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}}, file, f.limits};
  auto stream = f.gpu.make_stream();
  std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
  for (std::size_t i = 0; i < 6; ++i) tensors.push_back(mem.make_tensor<std::uint8_t>({400'000}, role::parameter));
  for (std::size_t i = 0; i < 3; ++i) fill(f.gpu, stream, tensors[i], i);

  file.broken() = true;
  std::string message;
  std::size_t filled = 3;
  for (; filled < 6 && message.empty(); ++filled) {
    try {
      fill(f.gpu, stream, tensors[filled], filled);
    } catch (const vtier::io_error& e) {
      message = e.what();
      CHECK(e.code().value() == EBADF);
      break;
    }
  }
  CAPTURE(message);
  for (const char* word : {"file", "writing", "wanted", "offset"}) CHECK(message.find(word) != std::string::npos);
  CHECK(message.find(f.directory.path().string()) != std::string::npos);
  CHECK(mem.broken_rules().empty());

  file.broken() = false;
  for (; filled < 6; ++filled) fill(f.gpu, stream, tensors[filled], filled);
  for (int lap = 0; lap < 2; ++lap) {
    for (std::size_t i = 0; i < 6; ++i) CHECK(differences(f.gpu, stream, tensors[i], i) == 0);
  }
  CHECK(mem.broken_rules().empty());
}

TEST_CASE("a read from a drive that fails is an error of the lease that wanted the bytes") {
  const bool with_thread = GENERATE(true, false);
  fixture f{with_thread};
  const fragile_file file{vtier::mapped_file{f.directory.path(), {.budget = 32_MiB}}};
  vtier::hierarchy mem{vtier::hbm{f.gpu, {.budget = 1_MiB}}, file, f.limits};
  auto stream = f.gpu.make_stream();
  auto a = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
  auto b = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
  fill(f.gpu, stream, a, 1);
  fill(f.gpu, stream, b, 2);  // a is in the file now
  mem.flush(b);
  file.broken() = true;
  CHECK_THROWS_AS(a.read(stream), vtier::io_error);
  CHECK_THROWS_AS(a.read(stream), vtier::io_error);  // and again: every attempt is one of its own
  CHECK(mem.broken_rules().empty());
  file.broken() = false;
  CHECK(differences(f.gpu, stream, a, 1) == 0);
  CHECK(differences(f.gpu, stream, b, 2) == 0);
}

TEST_CASE("a prefetch that fails reaches the handler and the report, and harms nobody") {
  // VO-D10
  fixture f{false};
  const fragile_file file{vtier::mapped_file{f.directory.path(), {.budget = 32_MiB}}};
  vtier::hierarchy mem{vtier::hbm{f.gpu, {.budget = 2_MiB}}, file, f.limits};
  auto stream = f.gpu.make_stream();
  auto a = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
  auto b = mem.make_tensor<std::uint8_t>({700'000}, role::parameter);
  fill(f.gpu, stream, a, 1);
  fill(f.gpu, stream, b, 2);
  mem.flush(a);
  mem.evict(a);
  file.broken() = true;
  mem.prefetch(a);
  for (int i = 0; i < 1'000'000 && f.told.empty(); ++i) {
    CHECK(b.size() == 700'000);
    auto lease = b.read(stream);  // calls drive the transfers
  }
  REQUIRE(f.told.size() == 1);
  CHECK(f.told.front().find("reading") != std::string::npos);
  CHECK(mem.count().errors == f.told);
  file.broken() = false;
  CHECK(differences(f.gpu, stream, a, 1) == 0);
  CHECK(differences(f.gpu, stream, b, 2) == 0);
}
