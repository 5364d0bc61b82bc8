// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a simulated device hands out: events and streams.

#include <memory>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/detail/sim_state.hpp>

namespace vtier::sim {

class device;

/// A mark in a stream; copies are the same mark.
class event {
 public:
  event() = default;

 private:
  friend class device;
  explicit event(std::shared_ptr<mark> state) : state_{std::move(state)} {}
  std::shared_ptr<mark> state_;
};

/// A name for a stream that somebody else owns.
class stream_ref {
 public:
  friend bool operator==(const stream_ref& a, const stream_ref& b) noexcept { return a.state_ == b.state_; }

 private:
  friend class device;
  friend class stream;
  explicit stream_ref(std::shared_ptr<detail::stream_state> state) : state_{std::move(state)} {}
  std::shared_ptr<detail::stream_state> state_;
};

/// A queue of work; destroying it loses none.
class stream {
 public:
  stream(stream&&) noexcept = default;
  stream& operator=(stream&& other) noexcept {
    if (this == &other) return *this;
    close();
    state_ = std::move(other.state_);
    machine_ = std::move(other.machine_);
    return *this;
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { close(); }

  // NOLINTNEXTLINE(google-explicit-constructor): as std::string to std::string_view
  operator stream_ref() const { return stream_ref{state_}; }

 private:
  friend class device;
  stream(std::shared_ptr<detail::stream_state> state, std::shared_ptr<world> machine)
      : state_{std::move(state)}, machine_{std::move(machine)} {}
  void close() noexcept {
    if (state_ == nullptr) return;
    state_->gone = true;
    machine_->stream_gone();
    state_ = nullptr;
  }
  std::shared_ptr<detail::stream_state> state_;
  std::shared_ptr<world> machine_;
};

}  // namespace vtier::sim
