// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a device is to vtier: streams, events, asynchronous copies, bytes.
//
// The concept is the seam between the library and any runtime: `cuda::device`, `host::device` and, under test,
// `sim::device` are its models. Everything above this room is a template over it.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <vtier/core/config.hpp>

namespace vtier {

/// Which way a copy goes, seen from the host. Host memory given to an asynchronous copy is registered with the device.
enum class copy_direction { host_to_device, device_to_host, device_to_device, host_to_host };

/// How much memory a device has, in bytes.
struct device_memory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};

/// Something that runs work in streams and owns memory.
///
/// Needs   a cheap copyable handle over shared state: copies are the same device and compare equal.
///         `stream` owns a queue of work and converts to `stream_ref`, which does not own it. Work in one stream runs
///         in order; work in two streams is unordered but for events.
///         `event` is a shared, copyable mark: one recording for its whole life, never re-recorded, so whoever holds it
///         may wait for it at any time, also after the stream is gone. A default-made event has always passed.
///         Destroying a stream loses no work: what was submitted still runs.
/// Gives   record(s): an event that passes once everything submitted to s so far has run.
///         wait(s, e): later work of s starts after e has passed; the host does not block.
///         passed(e): never blocks. synchronize(e), synchronize(s): the host blocks until passed or empty.
///         copy(s, target, source, bytes, direction), fill(s, target, value, bytes): in stream order, host not blocked.
///         launch(s, f): runs f on the host in stream order; f calls no device function and waits for no other f. What
///         f throws is kept: the next synchronize() behind it throws it as device_error, once, and later work runs.
///         allocate(bytes): device bytes at 256-byte alignment, null for zero bytes. allocate(s, bytes) and
///         deallocate(s, p, bytes): the same in stream order.
///         register_host(p, bytes): makes host memory fit for asynchronous copies; false where the runtime refuses, in
///         which case copies still work, slower. allocate_host(bytes): page-locked host memory.
///         bus_id(): the PCI address as text, empty where there is none.
///         now_ns(): the time in which waits are counted, never going back. pause(ns): the host waits for about so
///         long. Both are the machine's own, but for a simulated device, which has a time of its own.
/// Errors  out_of_memory, device_error; deallocation, unregistering and the destructors of stream and event never throw
/// Threads every member from any thread; one stream may be fed from several threads, in the order that they agree on
template <class D>
concept device = std::copyable<D> && std::equality_comparable<D> && std::copyable<typename D::event> &&
    std::default_initializable<typename D::event> && std::copyable<typename D::stream_ref> &&
    std::movable<typename D::stream> && std::convertible_to<const typename D::stream&, typename D::stream_ref> &&
    requires(const D& d, typename D::stream_ref s, const typename D::event& e, void* p, const void* q,
             std::size_t size_bytes, std::function<void()> f) {
  { d.make_stream() } -> std::same_as<typename D::stream>;
  { d.record(s) } -> std::same_as<typename D::event>;
  { d.wait(s, e) } -> std::same_as<void>;
  { d.passed(e) } -> std::same_as<bool>;
  { d.synchronize(e) } -> std::same_as<void>;
  { d.synchronize(s) } -> std::same_as<void>;
  { d.copy(s, p, q, size_bytes, copy_direction::host_to_device) } -> std::same_as<void>;
  { d.fill(s, p, std::byte{}, size_bytes) } -> std::same_as<void>;
  { d.launch(s, f) } -> std::same_as<void>;
  { d.allocate(size_bytes) } -> std::same_as<void*>;
  { d.deallocate(p, size_bytes) }
  noexcept->std::same_as<void>;
  { d.allocate(s, size_bytes) } -> std::same_as<void*>;
  { d.deallocate(s, p, size_bytes) }
  noexcept->std::same_as<void>;
  { d.register_host(p, size_bytes) } -> std::same_as<bool>;
  { d.unregister_host(p) }
  noexcept->std::same_as<void>;
  { d.allocate_host(size_bytes) } -> std::same_as<void*>;
  { d.deallocate_host(p, size_bytes) }
  noexcept->std::same_as<void>;
  { d.memory() } -> std::same_as<device_memory>;
  { d.name() } -> std::same_as<std::string>;
  { d.bus_id() } -> std::same_as<std::string>;
  { d.now_ns() } -> std::same_as<std::int64_t>;
  { d.pause(std::int64_t{}) } -> std::same_as<void>;
};

}  // namespace vtier
