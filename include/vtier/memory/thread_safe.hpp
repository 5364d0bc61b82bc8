// SPDX-License-Identifier: Apache-2.0
#pragma once

// A lock around a resource that serves one thread at a time.
//
// The resources of vtier lock for themselves, but for the simulated ones; this is for those of users, who need not
// think of threads then.

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

namespace detail {

template <resource Upstream>
struct thread_safe_state {
  explicit thread_safe_state(Upstream from) : upstream{std::move(from)} {}
  Upstream upstream;
  mutable std::mutex lock;
};

/// A slab whose calls into the resource below take the same lock as everybody.
template <class State>
class locked_slab final : public slab_backing {
 public:
  locked_slab(std::shared_ptr<State> state, slab inner) : state_{std::move(state)}, inner_{std::move(inner)} {}
  ~locked_slab() override {
    const std::scoped_lock hold{state_->lock};
    inner_.reset();
  }
  std::byte* base() override {
    const std::scoped_lock hold{state_->lock};
    return inner_->base();
  }
  void commit(std::size_t end_bytes) override {
    const std::scoped_lock hold{state_->lock};
    inner_->commit(end_bytes);
  }
  file_place locate(std::size_t offset_bytes) const override {
    const std::scoped_lock hold{state_->lock};
    return inner_->locate(offset_bytes);
  }
  std::optional<io::engine> make_engine(notes& remarks) const override {
    const std::scoped_lock hold{state_->lock};
    return inner_->make_engine(remarks);
  }

 private:
  std::shared_ptr<State> state_;
  std::optional<slab> inner_;
};

}  // namespace detail

/// A resource for any number of threads over one that serves one at a time.
///
/// Needs   all use of the resource below goes through this handle and its copies. Calls that wait for another thread
///         do not belong below it: put `on_failure` around it, not into it
/// Gives   a resource; its slab is locked too, the file engine of that slab is not
/// Errors  whatever the resource below says
/// Threads any
/// Cost    one lock, held as long as the resource below takes
template <resource Upstream>
class thread_safe : public detail::adaptor<thread_safe<Upstream>, Upstream, detail::thread_safe_state<Upstream>> {
  using state_type = detail::thread_safe_state<Upstream>;
  using base = detail::adaptor<thread_safe<Upstream>, Upstream, state_type>;

 public:
  explicit thread_safe(Upstream upstream) : base{std::make_shared<state_type>(std::move(upstream))} {}

  [[nodiscard]] slab make_slab() const {
    std::unique_lock hold{this->state().lock};
    slab inner = this->upstream().make_slab();
    slab_properties properties = inner.properties();
    // The lock is let go only where nothing is left that would return `inner` without it.
    auto backing = std::make_unique<detail::locked_slab<state_type>>(this->shared_state(), std::move(inner));
    hold.unlock();
    return {std::move(properties), std::move(backing)};
  }

  [[nodiscard]] std::string name() const {
    const std::scoped_lock hold{this->state().lock};
    return this->upstream().name();
  }
  [[nodiscard]] std::size_t free_bytes() const {
    const std::scoped_lock hold{this->state().lock};
    return this->upstream().free_bytes();
  }
  [[nodiscard]] std::vector<std::string> notes() const {
    const std::scoped_lock hold{this->state().lock};
    return this->upstream().notes();
  }

 private:
  friend base;

  template <class Order>
  [[nodiscard]] void* give(std::size_t size_bytes, std::size_t alignment_bytes, const Order& order) const {
    const std::scoped_lock hold{this->state().lock};
    return order.allocate(size_bytes, alignment_bytes);
  }

  template <class Order>
  void take_back(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes,
                 const Order& order) const noexcept {
    const std::scoped_lock hold{this->state().lock};
    order.deallocate(pointer, size_bytes, alignment_bytes);
  }
};

}  // namespace vtier
