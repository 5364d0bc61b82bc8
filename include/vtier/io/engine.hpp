// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file engine whose kind is chosen while the program runs.
//
// The type is erased here, once, at the edge: what the machine allows is known only at run time, and everything above
// takes one type. The only header that includes the io_uring engine, where liburing is there.

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/io/file_engine.hpp>
#include <vtier/io/threads.hpp>

#if VTIER_HAS_URING
#include <vtier/io/uring.hpp>
#endif

namespace vtier::io {

/// Any file engine.
///
/// Needs   a movable file engine to be made from; a moved-from engine can only be destroyed or assigned to
/// Threads as the engine inside: one at a time
/// Cost    one allocation when made; one virtual call for each call
class engine {
 public:
  template <class Engine>
  requires(!std::same_as<Engine, engine> && file_engine<Engine> && std::movable<Engine>) explicit engine(Engine inside)
      : inside_{std::make_unique<holder<Engine>>(std::move(inside))} {}

  /// Takes a request; false where it was not accepted.
  bool try_submit(const file_request& request) { return inside_->try_submit(request); }
  /// Takes completions, as many as are there and fit; never blocks.
  std::size_t reap(std::span<file_completion> completions) { return inside_->reap(completions); }
  /// Blocks until a completion can be reaped or the time (in ns) has passed.
  void wait(std::int64_t timeout_ns) { inside_->wait(timeout_ns); }
  /// Tells which memory requests will use; false where the engine cannot use that.
  bool register_buffers(std::span<const std::span<std::byte>> buffers) { return inside_->register_buffers(buffers); }

  [[nodiscard]] std::size_t in_flight() const { return inside_->in_flight(); }
  [[nodiscard]] std::size_t depth_max() const { return inside_->depth_max(); }
  [[nodiscard]] std::string_view name() const { return inside_->name(); }

 private:
  struct base {
    base() = default;
    base(const base&) = delete;
    base& operator=(const base&) = delete;
    virtual ~base() = default;
    virtual bool try_submit(const file_request& request) = 0;
    virtual std::size_t reap(std::span<file_completion> completions) = 0;
    virtual void wait(std::int64_t timeout_ns) = 0;
    virtual bool register_buffers(std::span<const std::span<std::byte>> buffers) = 0;
    [[nodiscard]] virtual std::size_t in_flight() const = 0;
    [[nodiscard]] virtual std::size_t depth_max() const = 0;
    [[nodiscard]] virtual std::string_view name() const = 0;
  };

  template <class Engine>
  struct holder final : base {
    explicit holder(Engine&& given) : held{std::move(given)} {}
    bool try_submit(const file_request& request) override { return held.try_submit(request); }
    std::size_t reap(std::span<file_completion> completions) override { return held.reap(completions); }
    void wait(std::int64_t timeout_ns) override { held.wait(timeout_ns); }
    bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
      return held.register_buffers(buffers);
    }
    [[nodiscard]] std::size_t in_flight() const override { return held.in_flight(); }
    [[nodiscard]] std::size_t depth_max() const override { return held.depth_max(); }
    [[nodiscard]] std::string_view name() const override { return held.name(); }
    Engine held;
  };

  std::unique_ptr<base> inside_;
};

static_assert(file_engine<engine>);

/// Makes the io_uring engine, or says why there is none.
///
/// Errors  io_error: ENOSYS where vtier was built without liburing, else the errno of the set-up
struct make_uring {
  [[nodiscard]] engine operator()([[maybe_unused]] const engine_options& options,
                                  [[maybe_unused]] const notes& remarks) const {
#if VTIER_HAS_URING
    return engine{uring{options, remarks}};
#else
    throw io_error(ENOSYS, "io_uring is not there (ENOSYS): vtier was built without liburing (VTIER_HAS_URING)");
#endif
  }
};

/// Makes a file engine; `automatic` is io_uring where it works, else threads and one note that says why.
///
/// Needs   ring_maker: makes the io_uring engine from (options, notes); a test gives one that fails
/// Errors  usage_error for limits out of range; io_error where the wanted kind cannot be had: code() is the errno of
///         the ring's set-up, ENOSYS where vtier was built without liburing
/// Threads any
template <class RingMaker = make_uring>
[[nodiscard]] engine make_engine(engine_kind kind, const engine_options& options, notes& remarks,
                                 const RingMaker& ring_maker = {}) {
  if (kind == engine_kind::uring) return ring_maker(options, remarks);
  if (kind == engine_kind::automatic) {
    try {
      return ring_maker(options, remarks);
    } catch (const io_error& refused) {
      remarks.say("file I/O goes through " + std::to_string(options.thread_count) + " threads: " + refused.what());
    }
  }
  return engine{threads{options}};
}

}  // namespace vtier::io
