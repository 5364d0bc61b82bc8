// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every adaptor of a resource has in common.
//
// An adaptor puts one thing around a resource and is a resource again. It says what happens around one allocation and
// one deallocation, and gets the calls with and without a stream from here: both go through it in the same way, and
// those with a stream exist only where the resource below has them.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier::detail {

/// Stands for the stream where there are none; nobody has a value of it to give.
class no_stream {
  no_stream() = default;
};

/// Names the stream of a resource; without a member where it has none.
template <class Upstream>
struct stream_names {
  using or_none = no_stream;
};
template <stream_ordered_resource Upstream>
struct stream_names<Upstream> {
  using stream_ref = typename Upstream::stream_ref;
  using or_none = stream_ref;
};

/// The way to the resource below, in the order of the host's calls.
template <class Upstream>
struct host_order {
  const Upstream& upstream;
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    return upstream.allocate(size_bytes, alignment_bytes);
  }
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    upstream.deallocate(pointer, size_bytes, alignment_bytes);
  }
};

/// The way to the resource below, in the order of a stream's work.
template <class Upstream>
struct stream_order {
  const Upstream& upstream;
  const typename stream_names<Upstream>::or_none& stream;
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    return upstream.allocate(stream, size_bytes, alignment_bytes);
  }
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    upstream.deallocate(stream, pointer, size_bytes, alignment_bytes);
  }
};

/// The members that adaptors share; see the concept `resource` for what they mean.
///
/// Needs   a State with a member `upstream`; a Derived with give(size, alignment, order), which asks the order for
///         memory, and take_back(pointer, size, alignment, order), noexcept, which returns it. Neither sees zero bytes,
///         a null pointer or an alignment that is no power of two
/// Threads as give and take_back
template <class Derived, resource Upstream, class State>
class adaptor : public stream_names<Upstream> {
  using stream_or_none = typename stream_names<Upstream>::or_none;

 public:
  static constexpr memory_kind kind = Upstream::kind;

  /// Gives bytes of the resource below, with what the adaptor adds; null for zero bytes.
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    if (is_nothing(size_bytes, alignment_bytes)) return nullptr;
    return self().give(size_bytes, alignment_bytes, in_host_order());
  }

  /// Takes bytes back.
  ///
  /// Needs   the numbers that they were asked with
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    if (pointer != nullptr) self().take_back(pointer, size_bytes, alignment_bytes, in_host_order());
  }

  /// Gives bytes for work enqueued on `stream` from now on.
  [[nodiscard]] void* allocate(stream_or_none stream, std::size_t size_bytes,
                               std::size_t alignment_bytes) const requires stream_ordered_resource<Upstream> {
    if (is_nothing(size_bytes, alignment_bytes)) return nullptr;
    return self().give(size_bytes, alignment_bytes, in_stream_order(stream));
  }

  /// Takes bytes back once `stream` has passed this point; the bookkeeping of the adaptor takes them back at once.
  void deallocate(stream_or_none stream, void* pointer, std::size_t size_bytes,
                  std::size_t alignment_bytes) const noexcept requires stream_ordered_resource<Upstream> {
    if (pointer != nullptr) self().take_back(pointer, size_bytes, alignment_bytes, in_stream_order(stream));
  }

  /// Gives the rest of the budget of the resource below as one range.
  [[nodiscard]] slab make_slab() const { return upstream().make_slab(); }

  [[nodiscard]] decltype(auto) name() const { return upstream().name(); }
  [[nodiscard]] std::size_t free_bytes() const { return upstream().free_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return upstream().notes(); }

  /// The resource below.
  [[nodiscard]] const Upstream& upstream() const noexcept { return state_->upstream; }

  friend bool operator==(const adaptor& a, const adaptor& b) noexcept { return a.state_ == b.state_; }

 protected:
  explicit adaptor(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}

  [[nodiscard]] State& state() const noexcept { return *state_; }
  [[nodiscard]] const std::shared_ptr<State>& shared_state() const noexcept { return state_; }
  [[nodiscard]] host_order<Upstream> in_host_order() const noexcept { return {upstream()}; }
  [[nodiscard]] stream_order<Upstream> in_stream_order(const stream_or_none& stream) const noexcept {
    return {upstream(), stream};
  }

  /// Whether there is nothing to give.
  ///
  /// Errors  usage_error for an alignment that is not a power of two, of zero bytes too
  [[nodiscard]] bool is_nothing(std::size_t size_bytes, std::size_t alignment_bytes) const {
    if (!is_power_of_two(alignment_bytes)) check_alignment(self().name(), alignment_bytes);
    return size_bytes == 0;
  }

 private:
  [[nodiscard]] const Derived& self() const noexcept { return static_cast<const Derived&>(*this); }

  std::shared_ptr<State> state_;
};

}  // namespace vtier::detail
