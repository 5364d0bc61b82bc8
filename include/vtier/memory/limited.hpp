// SPDX-License-Identifier: Apache-2.0
#pragma once

// A hard cap below the budget of a resource: several users of one memory, each with a share that it cannot pass.
//
// A resource has one budget; the cap is another one, for those who get this handle. It charges what was asked, not what
// the resource below rounds it up to.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/detail/held_slab.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// Limits of a `limited` resource.
struct limited_options {
  std::size_t budget = 0;  // bytes
  std::string name = {};   // in messages and reports; empty: that of the resource below
};

namespace detail {

template <resource Upstream>
struct limited_state {
  limited_state(Upstream from, const limited_options& options)
      : upstream{std::move(from)}, limit{options.name.empty() ? upstream.name() : options.name, options.budget} {}
  Upstream upstream;
  budget limit;
};

}  // namespace detail

/// A resource that gives no more than a cap, however much is below it.
///
/// Units   bytes as asked, without what the resource below adds
/// Gives   a resource; free_bytes() is what both the cap and the resource below have left
/// Errors  out_of_memory from the cap, which names it, before the resource below is asked; else whatever that says, and
///         then nothing is charged
/// Threads as the resource below; the cap itself any
/// Cost    two atomic operations
template <resource Upstream>
class limited : public detail::adaptor<limited<Upstream>, Upstream, detail::limited_state<Upstream>> {
  using base = detail::adaptor<limited<Upstream>, Upstream, detail::limited_state<Upstream>>;

 public:
  limited(Upstream upstream, const limited_options& options)
      : base{std::make_shared<detail::limited_state<Upstream>>(std::move(upstream), options)} {}

  /// Gives all that is left of the resource below, where the cap has room for it.
  ///
  /// Errors  usage_error where the cap is the smaller one: a resource gives only all that is left of it as a slab
  [[nodiscard]] slab make_slab() const {
    budget& limit = this->state().limit;
    if (this->upstream().free_bytes() > limit.free_bytes()) throw too_large(this->upstream().free_bytes());
    slab inner = this->upstream().make_slab();
    const std::size_t size_bytes = inner.size_bytes();
    if (!limit.try_take(size_bytes)) throw too_large(size_bytes);
    try {
      return detail::hold_slab(std::move(inner), [state = this->shared_state(), size_bytes]() noexcept {
        state->limit.give_back(size_bytes);
      });
    } catch (...) {
      limit.give_back(size_bytes);
      throw;
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return this->state().limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const {
    return (std::min)(this->state().limit.free_bytes(), this->upstream().free_bytes());
  }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return this->state().limit.limit_bytes(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return this->state().limit.used_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return this->state().limit.peak_bytes(); }

 private:
  friend base;

  template <class Order>
  [[nodiscard]] void* give(std::size_t size_bytes, std::size_t alignment_bytes, const Order& order) const {
    this->state().limit.take(size_bytes);
    try {
      return order.allocate(size_bytes, alignment_bytes);
    } catch (...) {
      this->state().limit.give_back(size_bytes);
      throw;
    }
  }

  template <class Order>
  void take_back(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes,
                 const Order& order) const noexcept {
    // The resource below first: who gets room under the cap finds it there too.
    order.deallocate(pointer, size_bytes, alignment_bytes);
    this->state().limit.give_back(size_bytes);
  }

  [[nodiscard]] usage_error too_large(std::size_t size_bytes) const {
    return usage_error{name() + ": its cap leaves " + format_bytes(this->state().limit.free_bytes()) +
                       ", a slab would be all that is left below it, " + format_bytes(size_bytes) +
                       ": give the resource below that budget instead"};
  }
};

}  // namespace vtier
