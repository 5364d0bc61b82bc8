// SPDX-License-Identifier: Apache-2.0
#pragma once

// Saved activations: pushed in the forward pass, popped in reverse in the backward pass, and out of the way in between.
//
// The order of use is known without any recording: what was pushed first is needed last. So the stack asks for eviction
// of all but the newest entries as they come, and for the next ones ahead of each pop.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/element.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// Limits of an activation_stack.
struct activation_stack_options {
  std::size_t keep = 4;   // how many of the newest entries stay in the fastest tier
  std::size_t ahead = 4;  // how many entries are prefetched below the top when one is popped
};

/// Tensors in last-in, first-out order, offloaded ahead of need and brought back in reverse.
///
/// Needs   a hierarchy that outlives the stack
/// Threads one at a time
/// Cost    push and pop: a hint or a few to the hierarchy; the host never blocks
template <class Hierarchy>
class activation_stack {
 public:
  explicit activation_stack(Hierarchy& owner, const activation_stack_options& limits = {})
      : owner_{&owner}, limits_{limits} {}

  /// Saves a tensor; older entries than the newest `keep` begin to move down.
  ///
  /// Needs   no lease on the tensor that lasts, or it stays where it is
  template <element T>
  void push(typename Hierarchy::template tensor<T> saved) {
    entries_.push_back(std::make_unique<entry_of<T>>(std::move(saved)));
    if (entries_.size() > limits_.keep) entries_[entries_.size() - 1 - limits_.keep]->evict(*owner_);
  }

  /// Saves a tensor, its element type deduced.
  template <class Tensor>
  requires element<typename Tensor::value_type>
  void push(Tensor saved) { push<typename Tensor::value_type>(std::move(saved)); }

  /// Gives the newest entry back and asks for the next ones.
  ///
  /// Errors  usage_error where the stack is empty or the newest entry has other elements; it stays then
  template <element T>
  [[nodiscard]] typename Hierarchy::template tensor<T> pop() {
    if (entries_.empty()) throw usage_error("an activation was popped from an empty stack: pops must mirror pushes");
    if (entries_.back()->type != element_type_of<T>) {
      throw usage_error("an activation of " + std::string{name(element_type_of<T>)} + " was popped where one of " +
                        std::string{name(entries_.back()->type)} + " was pushed: pops must mirror pushes");
    }
    auto result = std::move(static_cast<entry_of<T>&>(*entries_.back()).saved);
    entries_.pop_back();
    try {
      for (std::size_t i = 0; i < limits_.ahead && i < entries_.size(); ++i) {
        entries_[entries_.size() - 1 - i]->prefetch(*owner_);
      }
    } catch (const error&) {  // a hint is not worth the activation; what is broken shows at the next lease
    }
    return result;
  }

  /// How many entries there are.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  /// Frees all entries: a forward pass that nobody goes back through.
  void clear() noexcept { entries_.clear(); }

 private:
  struct entry {
    explicit entry(element_type t) noexcept : type{t} {}
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;
    virtual ~entry() = default;
    virtual void evict(Hierarchy& from) = 0;
    virtual void prefetch(Hierarchy& into) = 0;
    element_type type;
  };
  template <element T>
  struct entry_of final : entry {
    explicit entry_of(typename Hierarchy::template tensor<T> t) : entry{element_type_of<T>}, saved{std::move(t)} {}
    void evict(Hierarchy& from) override { from.evict(saved); }
    void prefetch(Hierarchy& into) override { into.prefetch(saved); }
    typename Hierarchy::template tensor<T> saved;
  };

  Hierarchy* owner_;
  activation_stack_options limits_;
  std::vector<std::unique_ptr<entry>> entries_;
};

}  // namespace vtier
