// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/slab.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/death.hpp"

namespace {

struct journal {
  std::vector<std::size_t> commits;
  std::vector<std::size_t> ends;
  int deaths = 0;
};

class told_backing final : public vtier::detail::slab_backing {
 public:
  explicit told_backing(journal& to) : log_{to} {}
  ~told_backing() override { ++log_.deaths; }
  std::byte* base() override { return bytes_; }
  void commit(std::size_t end_bytes) override { log_.commits.push_back(end_bytes); }
  void shrink(std::size_t end_bytes) noexcept override { log_.ends.push_back(end_bytes); }
  vtier::file_place locate(std::size_t offset_bytes) const override { return {7, offset_bytes + 1, 10}; }

 private:
  journal& log_;
  std::byte bytes_[64]{};
};

vtier::slab make(journal& to) {
  vtier::slab_properties properties;
  properties.name = "told";
  properties.kind = vtier::memory_kind::file;
  properties.size_bytes = 64;
  return {properties, std::make_unique<told_backing>(to)};
}

// A backing that can do nothing but be there.
class plain_backing final : public vtier::detail::slab_backing {
 public:
  std::byte* base() override { return bytes_; }

 private:
  std::byte bytes_[64]{};
};

static_assert(!std::is_copy_constructible_v<vtier::slab> && std::is_nothrow_move_constructible_v<vtier::slab>);

}  // namespace

TEST_CASE("a slab says what it is and passes questions on", "[memory][slab]") {
  journal told;
  auto slab = make(told);
  CHECK(slab.properties().name == "told");
  CHECK(slab.kind() == vtier::memory_kind::file);
  CHECK(slab.size_bytes() == 64);
  CHECK(slab.base() != nullptr);
  const auto place = slab.locate(5);
  CHECK(place.descriptor == 7);
  CHECK(place.offset_bytes == 6);
  CHECK(place.contiguous_bytes == 10);
  slab.commit(0);
  slab.commit(64);
  CHECK(told.commits == std::vector<std::size_t>{0, 64});
  slab.shrink(64);
  slab.shrink(3);
  CHECK(told.ends == std::vector<std::size_t>{64, 3});
}

TEST_CASE("where bytes cannot be given back, shrinking does nothing", "[memory][slab]") {
  vtier::slab_properties properties;
  properties.size_bytes = 64;
  vtier::slab slab{properties, std::make_unique<plain_backing>()};
  slab.base()[63] = std::byte{5};
  slab.shrink(0);
  CHECK(slab.base()[63] == std::byte{5});
}

TEST_CASE("the range is given back once, by the last owner", "[memory][slab]") {
  journal told;
  {
    auto first = make(told);
    const std::byte* const base = first.base();
    const auto second = std::move(first);
    CHECK(second.base() == base);
    CHECK(told.deaths == 0);
  }
  CHECK(told.deaths == 1);
}

TEST_CASE("committing more than there is is a programmer's error", "[memory][slab]") {
  journal told;
  auto slab = make(told);
  CHECK(vtier::test::in_child([&] { slab.commit(65); }).asserted("more was to be committed"));
  CHECK(vtier::test::in_child([&] { slab.shrink(65); }).asserted("to more than it holds"));
}
