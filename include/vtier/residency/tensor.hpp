// SPDX-License-Identifier: Apache-2.0
#pragma once

// The typed handle of a trainer: it owns an identity, not a place.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/element.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/shape.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/lease.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// An owning, movable handle on a tensor of a hierarchy; it may outlive the hierarchy object.
///
/// Shape   any of up to 8 extents, zero elements included
/// Needs   Core, the part of a hierarchy that does the work; made by hierarchy::make_tensor
/// Errors  usage_error from every member but the queries on a tensor that was moved from
/// Threads queries any; leases any, one tensor's leases under the reader-writer rule below
template <element T, class Core>
class tensor {
 public:
  using value_type = T;
  using stream_ref = typename Core::stream_ref;
  using read_lease = lease<const T, Core>;
  using write_lease = lease<T, Core>;

  /// Made by hierarchy::make_tensor.
  tensor(std::shared_ptr<Core> core, typename Core::block_type& owned, vtier::shape extents) noexcept
      : core_{std::move(core)}, owned_{&owned}, shape_{extents} {}

  tensor(tensor&& other) noexcept
      : core_{std::move(other.core_)}, owned_{std::exchange(other.owned_, nullptr)}, shape_{other.shape_} {}
  tensor& operator=(tensor&& other) noexcept {
    if (this != &other) {
      reset();
      core_ = std::move(other.core_);
      owned_ = std::exchange(other.owned_, nullptr);
      shape_ = other.shape_;
    }
    return *this;
  }
  tensor(const tensor&) = delete;
  tensor& operator=(const tensor&) = delete;
  ~tensor() { reset(); }

  /// Takes a lease to read on a stream: later work of the stream finds the bytes in the first tier.
  ///
  /// Gives   many at once, also on several streams, but none beside one that writes
  /// Errors  usage_error where the tensor was never written, may not live in the first tier, or while a lease that
  ///         writes is in force; out_of_memory
  ///         where leases leave no room (the message lists them); io_error, device_error. The tensor is as before
  /// Threads any
  /// Cost    resident: one lock, a stream wait for each event that has not passed. The host blocks only while bytes are
  ///         on their way from or to a file. It does not wait for kernels in order to evict to memory; bytes from a
  ///         file wait in staging buffers for the kernels that last used their place, and a tensor larger than all
  ///         staging makes the host wait for these too
  [[nodiscard]] read_lease read(stream_ref stream) const { return lease_of<const T>(access::read, std::move(stream)); }

  /// Takes a lease to overwrite: the old content is given up, nothing is fetched.
  ///
  /// Errors  as read(); usage_error while any lease on the tensor is in force
  [[nodiscard]] write_lease write(stream_ref stream) { return lease_of<T>(access::write, std::move(stream)); }

  /// Takes a lease to change the content in place.
  ///
  /// Errors  as read(); usage_error while any lease on the tensor is in force
  [[nodiscard]] write_lease read_write(stream_ref stream) { return lease_of<T>(access::read_write, std::move(stream)); }

  /// Takes a lease for host code, in the fastest tier that the host can touch and the tensor may live in,
  /// or in a slower one in host memory that has its bytes already.
  ///
  /// Gives   an address that is good until the lease ends
  /// Errors  as read(stream); usage_error where no such tier is in host memory or files
  /// Cost    the host blocks until the bytes are there and earlier uses of the place have passed
  [[nodiscard]] read_lease read(on_host_t) const { return lease_of<const T>(access::read, on_host); }
  [[nodiscard]] write_lease write(on_host_t) { return lease_of<T>(access::write, on_host); }
  [[nodiscard]] write_lease read_write(on_host_t) { return lease_of<T>(access::read_write, on_host); }

  /// The twins that answer with nothing where there is no room; other errors are thrown.
  [[nodiscard]] std::optional<read_lease> try_read(stream_ref stream) const {
    return try_lease<const T>(access::read, std::move(stream));
  }
  [[nodiscard]] std::optional<write_lease> try_write(stream_ref stream) {
    return try_lease<T>(access::write, std::move(stream));
  }
  [[nodiscard]] std::optional<write_lease> try_read_write(stream_ref stream) {
    return try_lease<T>(access::read_write, std::move(stream));
  }
  [[nodiscard]] std::optional<read_lease> try_read(on_host_t) const {
    return try_lease<const T>(access::read, on_host);
  }
  [[nodiscard]] std::optional<write_lease> try_write(on_host_t) { return try_lease<T>(access::write, on_host); }
  [[nodiscard]] std::optional<write_lease> try_read_write(on_host_t) {
    return try_lease<T>(access::read_write, on_host);
  }

  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return shape_.elements(); }
  /// The size of the elements in bytes, without any rounding.
  [[nodiscard]] std::size_t bytes() const noexcept { return shape_.elements() * sizeof(T); }
  [[nodiscard]] const vtier::shape& shape() const noexcept { return shape_; }
  [[nodiscard]] static constexpr element_type type() noexcept { return element_type_of<T>; }

  /// Whether the handle owns a tensor: false once it was moved from.
  [[nodiscard]] bool valid() const noexcept { return owned_ != nullptr; }

  /// The block behind the handle, for the hierarchy it belongs to.
  ///
  /// Errors  usage_error on a tensor that was moved from, or that belongs to another hierarchy
  [[nodiscard]] typename Core::block_type& owned_by(const Core& core) const {
    if (owned_ == nullptr) throw usage_error("a tensor was used after it was moved from");
    if (core_.get() != &core) throw usage_error("a tensor was given to another hierarchy than the one that made it");
    return *owned_;
  }

 private:
  template <class U, class Where>
  lease<U, Core> lease_of(access mode, Where where) const {
    Core& core = core_of();
    return {core_, core.acquire(*owned_, mode, std::move(where)), size()};
  }

  template <class U, class Where>
  std::optional<lease<U, Core>> try_lease(access mode, Where where) const {
    Core& core = core_of();
    auto granted = core.try_acquire(*owned_, mode, std::move(where));
    if (!granted) return std::nullopt;
    return lease<U, Core>{core_, std::move(*granted), size()};
  }

  Core& core_of() const {
    if (owned_ == nullptr) throw usage_error("a lease was asked on a tensor that was moved from");
    return *core_;
  }

  void reset() noexcept {
    if (owned_ == nullptr) return;
    core_->destroy(*owned_);
    owned_ = nullptr;
    core_ = nullptr;
  }

  std::shared_ptr<Core> core_;
  typename Core::block_type* owned_;
  vtier::shape shape_;
};

}  // namespace vtier
