// SPDX-License-Identifier: Apache-2.0
#pragma once

// A host device that refuses to record events, to say whether one has passed, or to register memory, while a test says
// so.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/host.hpp>

namespace vtier::test {

/// What is broken.
struct faults {
  std::atomic<bool> record{false};
  std::atomic<bool> passed{false};
  unsigned refused_registrations = 0;  // bit i: the i-th call of register_host gives false
  unsigned registrations = 0;          // calls so far
  std::size_t registered = 0;          // blocks at present
};

/// The device.
class faulty_device {
 public:
  using event = host::event;
  using stream = host::stream;
  using stream_ref = host::stream_ref;

  stream make_stream() const { return inside_.make_stream(); }
  event record(stream_ref s) const {
    if (broken->record) throw device_error(2, "record refused");
    return inside_.record(std::move(s));
  }
  void wait(stream_ref s, const event& e) const { inside_.wait(std::move(s), e); }
  bool passed(const event& e) const {
    if (broken->passed) throw device_error(700, "no answer");
    return inside_.passed(e);
  }
  void synchronize(const event& e) const { inside_.synchronize(e); }
  void synchronize(stream_ref s) const { inside_.synchronize(std::move(s)); }
  void copy(stream_ref s, void* target, const void* source, std::size_t size, copy_direction way) const {
    inside_.copy(std::move(s), target, source, size, way);
  }
  void fill(stream_ref s, void* target, std::byte value, std::size_t size) const {
    inside_.fill(std::move(s), target, value, size);
  }
  void launch(stream_ref s, std::function<void()> function) const { inside_.launch(std::move(s), std::move(function)); }
  void* allocate(std::size_t size) const { return inside_.allocate(size); }
  void deallocate(void* p, std::size_t size) const noexcept { inside_.deallocate(p, size); }
  void* allocate(stream_ref s, std::size_t size) const { return inside_.allocate(std::move(s), size); }
  void deallocate(stream_ref s, void* p, std::size_t size) const noexcept { inside_.deallocate(std::move(s), p, size); }
  bool register_host(void* p, std::size_t size) const {
    if ((broken->refused_registrations >> broken->registrations++ & 1U) != 0) return false;
    ++broken->registered;
    return inside_.register_host(p, size);
  }
  void unregister_host(void* p) const noexcept {
    --broken->registered;
    inside_.unregister_host(p);
  }
  void* allocate_host(std::size_t size) const { return inside_.allocate_host(size); }
  void deallocate_host(void* p, std::size_t size) const noexcept { inside_.deallocate_host(p, size); }
  device_memory memory() const { return inside_.memory(); }
  std::string name() const { return inside_.name(); }
  std::string bus_id() const { return {}; }
  std::int64_t now_ns() const { return inside_.now_ns(); }
  void pause(std::int64_t ns) const { inside_.pause(ns); }
  friend bool operator==(const faulty_device& a, const faulty_device& b) { return a.inside_ == b.inside_; }

  std::shared_ptr<faults> broken = std::make_shared<faults>();

 private:
  host::device inside_;
};

static_assert(device<faulty_device>);

}  // namespace vtier::test
