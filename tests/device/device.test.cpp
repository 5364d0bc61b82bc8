// SPDX-License-Identifier: Apache-2.0
// The concept: what is a device, and what is refused for lack of which promise.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "support/catch.hpp"

#include <vtier/device/device.hpp>

namespace {

/// The least that is a device. `Variant` takes one promise away.
enum class lacks { nothing, equality, shared_event, stream_order_free, noexcept_free, default_event, movable_stream };

template <lacks Variant>
struct event_of {};

template <>
struct event_of<lacks::shared_event> {
  event_of() = default;
  event_of(event_of&&) = default;
  event_of& operator=(event_of&&) = default;
};

template <>
struct event_of<lacks::default_event> {
  explicit event_of(int) {}
};

template <lacks Variant>
struct archetype {
  using event = event_of<Variant>;
  struct stream_ref {};
  struct stream {
    stream() = default;
    stream(stream&&) requires(Variant != lacks::movable_stream) = default;
    stream& operator=(stream&&) requires(Variant != lacks::movable_stream) = default;
    operator stream_ref() const { return {}; }
  };

  stream make_stream() const;
  event record(stream_ref) const;
  void wait(stream_ref, const event&) const;
  bool passed(const event&) const;
  void synchronize(const event&) const;
  void synchronize(stream_ref) const;
  void copy(stream_ref, void*, const void*, std::size_t, vtier::copy_direction) const;
  void fill(stream_ref, void*, std::byte, std::size_t) const;
  void launch(stream_ref, std::function<void()>) const;
  void* allocate(std::size_t) const;
  void deallocate(void*, std::size_t) const noexcept(Variant != lacks::noexcept_free);
  void* allocate(stream_ref, std::size_t) const;
  void deallocate(stream_ref, void*, std::size_t) const noexcept requires(Variant != lacks::stream_order_free);
  bool register_host(void*, std::size_t) const;
  void unregister_host(void*) const noexcept;
  void* allocate_host(std::size_t) const;
  void deallocate_host(void*, std::size_t) const noexcept;
  vtier::device_memory memory() const;
  std::string name() const;
  std::string bus_id() const;
  std::int64_t now_ns() const;
  void pause(std::int64_t) const;

  friend bool operator==(const archetype&, const archetype&) requires(Variant != lacks::equality) { return true; }
};

static_assert(vtier::device<archetype<lacks::nothing>>);
static_assert(!vtier::device<archetype<lacks::equality>>);
static_assert(!vtier::device<archetype<lacks::shared_event>>);
static_assert(!vtier::device<archetype<lacks::stream_order_free>>);
static_assert(!vtier::device<archetype<lacks::noexcept_free>>);
static_assert(!vtier::device<archetype<lacks::default_event>>);
static_assert(!vtier::device<archetype<lacks::movable_stream>>);
static_assert(!vtier::device<int>);

}  // namespace

TEST_CASE("device memory is nothing until somebody says otherwise") {
  const vtier::device_memory none;
  CHECK(none.free_bytes == 0);
  CHECK(none.total_bytes == 0);
}
