// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one parameter of a model consists of, and the host memory that its first values come through.

#include <cstddef>
#include <optional>
#include <string>

namespace train_gpt {

/// A parameter and what training keeps with it.
template <class Hierarchy>
struct parameter {
  using tensor = typename Hierarchy::template tensor<float>;
  std::string name;
  tensor value;
  tensor first_moment;
  tensor second_moment;
  bool decays = false;
  std::optional<tensor> gradient{};  // from the backward pass until the update
};

/// Host memory that a device copies from and to.
///
/// Needs   nothing enqueued uses it when it dies
template <class Device>
class host_buffer {
 public:
  host_buffer(const Device& on, std::size_t size_bytes)
      : on_{on}, size_bytes_{size_bytes}, data_{on.allocate_host(size_bytes)} {}
  host_buffer(const host_buffer&) = delete;
  host_buffer& operator=(const host_buffer&) = delete;
  ~host_buffer() { on_.deallocate_host(data_, size_bytes_); }

  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  Device on_;
  std::size_t size_bytes_;
  void* data_;
};

}  // namespace train_gpt
