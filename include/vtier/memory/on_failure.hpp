// SPDX-License-Identifier: Apache-2.0
#pragma once

// A second chance for an allocation that does not fit: somebody else is asked to give something up first.
//
// What that is, a cache, a plan, tensors that can go down a tier, only the user knows: it is a function of theirs.

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// Limits of an `on_failure` resource.
struct on_failure_options {
  std::size_t attempts_max = 8;  // how often the function is asked for one allocation
};

/// Makes room: it is told the bytes that did not fit and how often it has been asked, from 1; true to try again.
using make_room = std::function<bool(std::size_t size_bytes, std::size_t attempt)>;

namespace detail {

template <resource Upstream>
struct on_failure_state {
  on_failure_state(Upstream from, make_room function, const on_failure_options& o)
      : upstream{std::move(from)}, callback{std::move(function)}, options{o} {}
  Upstream upstream;
  make_room callback;
  on_failure_options options;
};

}  // namespace detail

/// A resource that asks for room to be made before it refuses.
///
/// Needs   a function that may be called by several threads at once where several threads allocate, that does not hold
///         this handle for good, and that allocates from this resource only if it stops by itself
/// Gives   a resource; the function is called with no lock held and with no exception being handled, for out_of_memory
///         alone and for a slab as well
/// Errors  the last out_of_memory of the resource below once the function says false or was asked often enough;
///         whatever the function throws, as it is: nothing is held and nothing charged then. usage_error from the
///         constructor for an empty function
/// Threads as the resource below
/// Cost    none where the first attempt succeeds
template <resource Upstream>
class on_failure : public detail::adaptor<on_failure<Upstream>, Upstream, detail::on_failure_state<Upstream>> {
  using base = detail::adaptor<on_failure<Upstream>, Upstream, detail::on_failure_state<Upstream>>;

 public:
  on_failure(Upstream upstream, make_room callback, const on_failure_options& options = {})
      : base{std::make_shared<detail::on_failure_state<Upstream>>(std::move(upstream), std::move(callback), options)} {
    if (!this->state().callback) throw usage_error(this->name() + ": on_failure needs a function, this one is empty");
  }

  /// Gives the rest of the resource below as one range; asks for room where that is refused as an allocation is.
  [[nodiscard]] slab make_slab() const {
    return retry(this->free_bytes(), [&] { return this->upstream().make_slab(); });
  }

 private:
  friend base;

  template <class Order>
  [[nodiscard]] void* give(std::size_t size_bytes, std::size_t alignment_bytes, const Order& order) const {
    return retry(size_bytes, [&] { return order.allocate(size_bytes, alignment_bytes); });
  }

  template <class Order>
  void take_back(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes,
                 const Order& order) const noexcept {
    order.deallocate(pointer, size_bytes, alignment_bytes);
  }

  template <class Call>
  [[nodiscard]] auto retry(std::size_t size_bytes, const Call& call) const {
    for (std::size_t attempt = 1;; ++attempt) {
      std::exception_ptr refusal;  // kept, so that the function runs outside of the handler
      try {
        return call();
      } catch (const out_of_memory&) {
        refusal = std::current_exception();
      }
      const auto& state = this->state();
      if (attempt > state.options.attempts_max || !state.callback(size_bytes, attempt)) {
        std::rethrow_exception(refusal);
      }
    }
  }
};

}  // namespace vtier
