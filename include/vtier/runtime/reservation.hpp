// SPDX-License-Identifier: Apache-2.0
#pragma once

// A share of a tier's budget that belongs to whoever asked for it: workspace for a library, buffers for communication.
//
// It is one range of addresses that the hierarchy leaves alone, and a small allocator for whoever cuts it up.

#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/ranges.hpp>

namespace vtier {

/// A reservation; it may outlive the hierarchy object.
///
///     auto workspace = mem.reserve(0, 32_MiB, 1'000'000'000);      // one second at most
///     cublasSetWorkspace(handle, workspace.data(), workspace.size_bytes());
///     ...                                                          // kernels on `stream` use it
///     workspace.release(stream);                                   // others get it behind them
///
/// Units   bytes
/// Needs   work that uses the bytes has been enqueued when the reservation is released on its streams; it is over where
///         the reservation is released on none, which its destructor does
/// Gives   a device address in a tier of a device, a host address otherwise
/// Errors  none from its end: what goes wrong there reaches the hierarchy's report and handler
/// Threads allocate, deallocate and queries any; moving and releasing one at a time
template <class Core>
class reservation {
 public:
  using stream_ref = typename Core::stream_ref;

  /// Made by hierarchy::reserve, try_reserve, reserve_up_to.
  ///
  /// Errors  std::bad_alloc; then the share has been given back
  reservation(std::shared_ptr<Core> core, typename Core::share had) : core_{std::move(core)}, had_{std::move(had)} {
    try {
      cuts_ = std::make_unique<cuts>(had_.size_bytes);
    } catch (...) {
      release();
      throw;
    }
  }

  reservation(reservation&& other) noexcept
      : core_{std::exchange(other.core_, nullptr)}, had_{std::move(other.had_)}, cuts_{std::move(other.cuts_)} {}
  reservation& operator=(reservation&& other) noexcept {
    if (this != &other) {
      release();
      core_ = std::exchange(other.core_, nullptr);
      had_ = std::move(other.had_);
      cuts_ = std::move(other.cuts_);
    }
    return *this;
  }
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;
  ~reservation() { release(); }

  /// The first byte; null once released or moved from.
  [[nodiscard]] void* data() const noexcept { return valid() ? had_.pointer : nullptr; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return valid() ? had_.size_bytes : 0; }
  [[nodiscard]] std::size_t tier() const noexcept { return had_.tier; }
  [[nodiscard]] bool valid() const noexcept { return core_ != nullptr; }

  /// Gives bytes of the reservation; it never takes others. Whoever uses data() as well keeps the two apart.
  ///
  /// Gives   null for no bytes
  /// Errors  out_of_memory; usage_error for an alignment that is no power of two, or after the release
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes = granule_bytes) {
    if (!valid()) throw usage_error("bytes were asked of a reservation that was released or moved from");
    if (!is_power_of_two(alignment_bytes)) {
      throw usage_error(had_.name + ": an alignment of " + std::to_string(alignment_bytes) +
                        " bytes is not a power of two");
    }
    if (size_bytes == 0) return nullptr;
    const std::scoped_lock hold{cuts_->lock};
    const std::size_t slack = alignment_bytes > granule_bytes ? alignment_bytes - granule_bytes : 0;
    const auto wanted = checked_add(size_bytes, slack);
    const auto taken = wanted ? cuts_->map.take(*wanted, [](const no_event&) { return true; }) : std::nullopt;
    if (!taken) {
      const std::size_t free = cuts_->map.free_bytes();
      throw out_of_memory{had_.name, size_bytes, free,
                          had_.name + ": asked " + format_bytes(size_bytes) + " of a reservation of " +
                              format_bytes(had_.size_bytes) + ", free " + format_bytes(free) + ", of these " +
                              format_bytes(cuts_->map.largest_free_bytes()) +
                              " in one piece: free something or reserve more"};
    }
    const auto base = reinterpret_cast<std::size_t>(had_.pointer);
    const std::size_t start = align_up(base + taken->offset_bytes, alignment_bytes) - base;
    try {
      cuts_->live.emplace(start, std::pair{taken->offset_bytes, taken->size_bytes});
    } catch (...) {
      cuts_->map.give_back(taken->offset_bytes, taken->size_bytes, {});
      throw;
    }
    return had_.pointer + start;
  }

  /// Takes bytes back that allocate() gave; a foreign pointer is asserted against.
  void deallocate(void* pointer, std::size_t /*size_bytes*/ = 0, std::size_t /*alignment_bytes*/ = 0) noexcept {
    if (pointer == nullptr) return;
    VTIER_ASSERT(valid(), "bytes were given back to a reservation that was released or moved from");
    const std::scoped_lock hold{cuts_->lock};
    const auto at = cuts_->live.find(static_cast<std::size_t>(static_cast<std::byte*>(pointer) - had_.pointer));
    VTIER_ASSERT(at != cuts_->live.end(), "a pointer was given to a reservation that does not own it, or twice");
    cuts_->map.give_back(at->second.first, at->second.second, {});
    cuts_->live.erase(at);
  }

  /// What allocate() could still give, in pieces.
  [[nodiscard]] std::size_t free_bytes() const {
    if (!valid()) return 0;
    const std::scoped_lock hold{cuts_->lock};
    return cuts_->map.free_bytes();
  }

  /// Gives the share back, everything allocated inside included; a second release does nothing. Nobody else touches the
  /// bytes before these streams have passed this point; without a stream, all uses are over.
  template <std::convertible_to<stream_ref>... Streams>
  void release(const Streams&... streams) noexcept {
    if (core_ == nullptr) return;
    if constexpr (sizeof...(Streams) == 0) {
      core_->release(had_, {});
    } else {
      const stream_ref all[] = {static_cast<stream_ref>(streams)...};
      core_->release(had_, all);
    }
    core_ = nullptr;
    cuts_ = nullptr;
  }

 private:
  static constexpr std::size_t granule_bytes = 256;
  struct no_event {};
  struct cuts {
    explicit cuts(std::size_t size_bytes) : map{size_bytes, granule_bytes} {}
    std::mutex lock;
    ranges<no_event> map;
    std::map<std::size_t, std::pair<std::size_t, std::size_t>> live;  // start: the range behind it
  };

  std::shared_ptr<Core> core_;
  typename Core::share had_;
  std::unique_ptr<cuts> cuts_;
};

}  // namespace vtier
