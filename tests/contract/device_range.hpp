// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every device does whose memory grows where it stands: one function for each promise of `vtier::growable_device`.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "contract/device.hpp"
#include "support/catch.hpp"

#include <vtier/core/error.hpp>
#include <vtier/device/growable_device.hpp>

namespace contract {

/// How a device is asked.
///
/// Units   bytes
struct range_rules {
  std::size_t granule_bytes = 0;  // 0: the smallest that the device has
  bool exact = true;              // whether what is free is counted to the byte, and by nobody else
};

/// Holds what a device has free against what it should have.
template <vtier::growable_device Device>
void check_free(const Device& on, std::size_t expected_bytes, const range_rules& rules) {
  const std::size_t now = on.memory().free_bytes;
  if (rules.exact) {
    CHECK(now == expected_bytes);
  } else {
    constexpr std::size_t tables_max = std::size_t{128} << 20U;  // the driver's own
    CHECK((now > expected_bytes ? now - expected_bytes : expected_bytes - now) <= tables_max);
  }
}

/// Writes and reads pieces of a range by copies, and waits for each.
template <vtier::growable_device Device>
class range_bytes {
 public:
  range_bytes(const Device& on, std::size_t size) : on_{on}, stream_{on.make_stream()}, host_{on, size} {}

  void write(std::byte* target, std::uint32_t seed) const {
    host_.pattern(seed);
    on_.copy(stream_, target, host_.data(), host_.size(), vtier::copy_direction::host_to_device);
    on_.synchronize(stream_);
  }
  [[nodiscard]] bool holds(const std::byte* source, std::uint32_t seed) const {
    host_.all(std::byte{0});
    on_.copy(stream_, host_.data(), source, host_.size(), vtier::copy_direction::device_to_host);
    on_.synchronize(stream_);
    return host_.has_pattern(seed);
  }

 private:
  Device on_;
  typename Device::stream stream_;
  host_bytes<Device> host_;
};

/// The steps that a device makes of it.
template <vtier::growable_device Device>
std::size_t granule_of(const Device& on, const range_rules& rules) {
  const auto one = on.make_range((std::max)(rules.granule_bytes, std::size_t{1}), rules.granule_bytes);
  REQUIRE(one);
  return one->granule_bytes();
}

template <vtier::growable_device Device>
void a_range_is_addresses_only(const Device& on, const range_rules& rules) {
  const std::size_t free_before = on.memory().free_bytes;
  const auto r = on.make_range(free_before + 1, rules.granule_bytes);  // more than there will ever be
  REQUIRE(r);
  CHECK(r->base() != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(r->base()) % 256 == 0);
  CHECK(r->size_bytes() > free_before);
  CHECK(r->size_bytes() - free_before <= r->granule_bytes());
  CHECK(r->end_bytes() == 0);
  check_free(on, free_before, rules);
}

template <vtier::growable_device Device>
void a_range_grows_and_shrinks(const Device& on, const range_rules& rules) {
  const std::size_t granule = granule_of(on, rules);
  const std::size_t free_before = on.memory().free_bytes;
  const range_bytes<Device> bytes{on, granule};
  {
    auto r = on.make_range(4 * granule - 1, granule);
    REQUIRE(r);
    CHECK(r->granule_bytes() == granule);
    REQUIRE(r->size_bytes() == 4 * granule);
    std::byte* const base = r->base();
    r->grow(0);
    CHECK(r->end_bytes() == 0);
    r->grow(1);
    CHECK(r->end_bytes() == granule);
    check_free(on, free_before - granule, rules);
    bytes.write(base, 1);
    r->grow(2 * granule + 1);
    CHECK(r->end_bytes() == 3 * granule);
    check_free(on, free_before - 3 * granule, rules);
    CHECK(bytes.holds(base, 1));
    bytes.write(base + granule + granule / 2, 2);  // from one step into the next
    CHECK(bytes.holds(base + granule + granule / 2, 2));
    r->grow(granule);  // they all exist
    r->shrink(3 * granule);
    r->shrink(4 * granule);
    CHECK(r->end_bytes() == 3 * granule);
    CHECK(bytes.holds(base + granule + granule / 2, 2));
    r->shrink(1);
    CHECK(r->end_bytes() == granule);
    check_free(on, free_before - granule, rules);
    CHECK(bytes.holds(base, 1));
    r->grow(4 * granule);
    CHECK(r->base() == base);
    CHECK(bytes.holds(base, 1));
    bytes.write(base + 3 * granule, 3);
    CHECK(bytes.holds(base + 3 * granule, 3));
    CHECK(bytes.holds(base, 1));
    r->shrink(0);
    check_free(on, free_before, rules);
    r->grow(2 * granule);
  }
  check_free(on, free_before, rules);
}

template <vtier::growable_device Device>
void a_larger_granule_is_kept(const Device& on, const range_rules& rules) {
  const std::size_t granule = granule_of(on, rules);
  const std::size_t free_before = on.memory().free_bytes;
  auto r = on.make_range(7 * granule, 2 * granule + 1);
  REQUIRE(r);
  CHECK(r->granule_bytes() == 4 * granule);
  CHECK(r->size_bytes() == 7 * granule);
  r->grow(granule);
  CHECK(r->end_bytes() == 4 * granule);
  r->grow(5 * granule);  // the last step is shorter
  CHECK(r->end_bytes() == 7 * granule);
  check_free(on, free_before - 7 * granule, rules);
  r->shrink(4 * granule + 1);
  CHECK(r->end_bytes() == 7 * granule);
  r->shrink(4 * granule);
  CHECK(r->end_bytes() == 4 * granule);
  check_free(on, free_before - 4 * granule, rules);
}

/// Needs   a device with little memory
template <vtier::growable_device Device>
void a_refused_growth_changes_nothing(const Device& on, const range_rules& rules) {
  const std::size_t granule = granule_of(on, rules);
  const std::size_t free_before = on.memory().free_bytes;
  const range_bytes<Device> bytes{on, granule};
  auto r = on.make_range(free_before + 4 * granule, granule);
  REQUIRE(r);
  r->grow(2 * granule);
  bytes.write(r->base(), 1);
  bytes.write(r->base() + granule, 2);
  for (int again = 0; again < 2; ++again) {
    try {
      r->grow(r->size_bytes());
      FAIL("a device gave more memory than it has");
    } catch (const vtier::out_of_memory& e) {
      const std::string text = e.what();
      CAPTURE(text);
      if (rules.exact) CHECK(e.free_bytes() == free_before - 2 * granule);
      CHECK(e.asked_bytes() > e.free_bytes());
      CHECK(text.find("free") != std::string::npos);
      CHECK(text.find(on.name()) != std::string::npos);
    }
    CHECK(r->end_bytes() == 2 * granule);
    check_free(on, free_before - 2 * granule, rules);
  }
  CHECK(bytes.holds(r->base(), 1));
  CHECK(bytes.holds(r->base() + granule, 2));
  r->grow(3 * granule);
  CHECK(r->end_bytes() == 3 * granule);
}

template <vtier::growable_device Device>
void two_ranges_fill_a_device_without_gaps(const Device& on, const range_rules& rules) {
  const std::size_t granule = granule_of(on, rules);
  const std::size_t steps = (std::min)(on.memory().free_bytes / granule, std::size_t{64});
  REQUIRE(steps >= 4);
  auto a = on.make_range(steps * granule, granule);
  auto b = on.make_range(steps * granule, granule);
  REQUIRE(a);
  REQUIRE(b);
  for (std::size_t i = 1; i <= steps / 2; ++i) {  // in turns: blocks would leave holes
    a->grow(i * granule);
    b->grow(i * granule);
  }
  a->shrink(0);
  b->grow((steps / 2 * 2) * granule);
  CHECK(b->end_bytes() == steps / 2 * 2 * granule);
}

template <vtier::growable_device Device>
void a_range_moves_and_outlives_the_handle(const Device& on, const range_rules& rules) {
  const std::size_t granule = granule_of(on, rules);
  const std::size_t free_before = on.memory().free_bytes;
  {
    const range_bytes<Device> bytes{on, granule};
    std::optional<Device> handle{on};
    auto first = handle->make_range(2 * granule, granule);
    REQUIRE(first);
    first->grow(granule);
    bytes.write(first->base(), 5);
    handle.reset();
    auto second = std::move(*first);
    first.reset();
    CHECK(second.end_bytes() == granule);
    CHECK(bytes.holds(second.base(), 5));
    second.grow(2 * granule);
    CHECK(bytes.holds(second.base(), 5));
  }
  check_free(on, free_before, rules);
}

/// All of it.
///
/// Needs   room for eight granules
template <vtier::growable_device Device>
void device_range_contract(const Device& on, const range_rules& rules = {}) {
  a_range_is_addresses_only(on, rules);
  a_range_grows_and_shrinks(on, rules);
  a_larger_granule_is_kept(on, rules);
  a_refused_growth_changes_nothing(on, rules);
  two_ranges_fill_a_device_without_gaps(on, rules);
  a_range_moves_and_outlives_the_handle(on, rules);
}

}  // namespace contract
