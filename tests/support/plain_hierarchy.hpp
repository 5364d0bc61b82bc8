// SPDX-License-Identifier: Apache-2.0
#pragma once

// A hierarchy without tiers: every tensor is a vector of its own. What a trainer computes on it is what it must compute
// on the real one; it also refuses the uses that the real one refuses.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/core/shape.hpp>
#include <vtier/device/host.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/statistics.hpp>

namespace vtier::test {

/// Tensors in plain memory, on the host device.
class plain_hierarchy {
 public:
  using device_type = host::device;
  using stream_ref = host::stream_ref;

  explicit plain_hierarchy(host::device on) : on_{std::move(on)} {}

  template <class T>
  struct content {
    std::vector<T> values;
    bool written = false;
    int readers = 0;
    bool writer = false;
  };

  /// Holds the content until its stream has passed the end.
  template <class T, class Value>
  class lease {
   public:
    lease(const host::device& on, stream_ref stream, std::shared_ptr<content<Value>> of, bool reads, bool writes)
        : on_{on}, stream_{std::move(stream)}, of_{std::move(of)}, writes_{writes} {
      if (of_->writer || (writes && of_->readers > 0))
        throw usage_error("two leases on one tensor, one of which writes");
      if (reads && !of_->written) throw usage_error("a tensor was read that was never written");
      if (writes) {
        of_->writer = of_->written = true;
      } else {
        ++of_->readers;
      }
    }
    lease(lease&&) noexcept = default;
    lease& operator=(lease&&) = delete;
    ~lease() { end(); }
    void end() {
      if (of_ == nullptr) return;
      if (writes_) {
        of_->writer = false;
      } else {
        --of_->readers;
      }
      on_.launch(stream_, [keep = std::move(of_)] {});
    }
    [[nodiscard]] T* data() const noexcept { return of_->values.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return of_->values.size(); }
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), size()}; }

   private:
    host::device on_;
    stream_ref stream_;
    std::shared_ptr<content<Value>> of_;
    bool writes_;
  };

  template <class T>
  class tensor {
   public:
    using value_type = T;
    tensor(host::device on, const vtier::shape& extents)
        : on_{std::move(on)}, shape_{extents}, content_{std::make_shared<content<T>>()} {
      content_->values.resize(extents.elements());
    }
    [[nodiscard]] lease<const T, T> read(stream_ref s) const { return {on_, s, owned(), true, false}; }
    [[nodiscard]] lease<T, T> write(stream_ref s) { return {on_, s, owned(), false, true}; }
    [[nodiscard]] lease<T, T> read_write(stream_ref s) { return {on_, s, owned(), true, true}; }
    [[nodiscard]] std::size_t size() const noexcept { return shape_.elements(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return shape_.elements() * sizeof(T); }
    [[nodiscard]] const vtier::shape& shape() const noexcept { return shape_; }

    tensor(tensor&&) noexcept = default;
    tensor& operator=(tensor&&) noexcept = default;

    /// The values, for a test whose streams are idle.
    [[nodiscard]] std::vector<T>& values() const { return owned()->values; }

   private:
    [[nodiscard]] const std::shared_ptr<content<T>>& owned() const {
      if (content_ == nullptr) throw usage_error("a tensor was used after it was moved from");
      return content_;
    }
    host::device on_;
    vtier::shape shape_;
    std::shared_ptr<content<T>> content_;
  };

  template <class T>
  [[nodiscard]] tensor<T> make_tensor(const shape& extents, role) {
    return {on_, extents};
  }
  template <class T>
  void prefetch(const tensor<T>&, std::size_t = 0) {}
  template <class T>
  void evict(const tensor<T>&, std::size_t = 0) {}
  template <class T>
  void flush(const tensor<T>&) {}

  struct step_scope {
    ~step_scope() {}
  };
  [[nodiscard]] step_scope step() { return {}; }
  [[nodiscard]] statistics count() const { return {}; }

 private:
  host::device on_;
};

}  // namespace vtier::test
