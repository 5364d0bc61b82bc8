// SPDX-License-Identifier: Apache-2.0
#pragma once

// One training run over a hierarchy: a stream, the model on it, and steps that the host enqueues ahead.
//
// The host is at most one step ahead of the stream: a step returns when the step before it has run, and its loss is
// known then. Nothing else waits for the computation.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <vtier/core/clock.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/residency/role.hpp>

#include "gpt_shape.hpp"
#include "model.hpp"
#include "ops.hpp"
#include "optimizer.hpp"
#include "parameter.hpp"

namespace train_gpt {

/// A model in training.
///
/// Needs   `mem` outlives it
/// Threads one at a time
template <class Hierarchy>
class trainer {
 public:
  using device_type = typename Hierarchy::device_type;
  using model_type = gpt<Hierarchy>;

  trainer(Hierarchy& mem, const device_type& on, const gpt_shape& shape, std::uint64_t seed, std::size_t steps_max,
          const adamw_settings& settings = {}, const gpt_options& options = {})
      : mem_{&mem},
        on_{on},
        settings_{settings},
        steps_max_{steps_max},
        tokens_count_{shape.batch * (shape.context + 1)},
        host_tokens_{on, 2 * tokens_count_ * sizeof(std::int32_t)},
        host_losses_{on, (steps_max + 1) * sizeof(double)},
        math_{on},
        stream_{on.make_stream()},
        model_{mem, on, stream_, math_, shape, seed, options} {
    marks_.reserve(steps_max + 1);  // the stream writes there: it must not move
    mark();
  }
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;
  ~trainer() {
    try {
      on_.synchronize(stream_);      // buffers die before the stream does what is left
    } catch (const vtier::error&) {  // it was thrown to finish(), or nobody asked
    }
  }

  /// Enqueues one step; returns when the step before it has run.
  ///
  /// Shape   tokens (batch, context + 1), each below 256
  /// Errors  usage_error beyond steps_max; as leases
  void step(std::span<const std::int32_t> tokens) {
    if (done_.size() == steps_max_) throw vtier::usage_error("more training steps than were announced");
    if (tokens.size() != tokens_count_) throw vtier::usage_error("a batch has another size than the model");
    const std::size_t index = done_.size();
    {
      auto scope = mem_->step();
      std::int32_t* const slot = host_tokens_.template as<std::int32_t>() + index % 2 * tokens_count_;
      std::memcpy(slot, tokens.data(), tokens.size_bytes());
      auto batch = mem_->template make_tensor<std::int32_t>({tokens_count_}, vtier::role::workspace);
      {
        auto to = batch.write(stream_);
        on_.copy(stream_, to.data(), slot, batch.bytes(), vtier::copy_direction::host_to_device);
      }
      auto losses = mem_->template make_tensor<double>({1 + model_.shape().rows()}, vtier::role::workspace);
      model_.differentiate(batch, losses);
      {
        auto from = losses.read(stream_);
        on_.copy(stream_, host_losses_.template as<double>() + index, from.data(), sizeof(double),
                 vtier::copy_direction::device_to_host);
      }
      update(model_, settings_, index + 1);
    }
    mark();
    done_.push_back(on_.record(stream_));
    if (index > 0) on_.synchronize(done_[index - 1]);
  }

  /// Waits for all steps.
  void finish() { on_.synchronize(stream_); }

  /// The loss of a step, counted from 0.
  ///
  /// Needs   a step after it was taken, or finish()
  [[nodiscard]] double loss(std::size_t index) const { return host_losses_.template as<double>()[index]; }

  /// How long a step took on the stream, from the end of the one before it.
  ///
  /// Units   s
  /// Needs   as loss()
  [[nodiscard]] double seconds(std::size_t index) const {
    return static_cast<double>(marks_[index + 1].time_ns - marks_[index].time_ns) * 1e-9;
  }

  /// How much of a step nothing was computed; empty where the operations do not tell.
  ///
  /// Units   0 to 1
  /// Needs   as loss()
  [[nodiscard]] std::optional<double> idle_share(std::size_t index) const {
    const std::int64_t whole = marks_[index + 1].time_ns - marks_[index].time_ns;
    if (!counts_time || whole <= 0) return std::nullopt;
    return 1.0 - static_cast<double>(marks_[index + 1].busy_ns - marks_[index].busy_ns) / static_cast<double>(whole);
  }

  /// How many steps were taken.
  [[nodiscard]] std::size_t steps() const noexcept { return done_.size(); }

  /// All parameters on the host, one after another; blocks.
  [[nodiscard]] std::vector<float> parameters() {
    std::vector<float> result;
    for (auto& p : model_.parameters()) {
      const std::size_t at = result.size();
      const host_buffer<device_type> room{on_, p.value.bytes()};
      {
        auto from = p.value.read(stream_);
        on_.copy(stream_, room.template as<float>(), from.data(), p.value.bytes(),
                 vtier::copy_direction::device_to_host);
      }
      on_.synchronize(stream_);
      result.resize(at + p.value.size());
      std::memcpy(result.data() + at, room.template as<float>(), p.value.bytes());
    }
    return result;
  }

  [[nodiscard]] model_type& model() noexcept { return model_; }

 private:
  // When the stream came somewhere, and how long it had computed by then.
  struct moment {
    std::int64_t time_ns = 0;
    std::int64_t busy_ns = 0;
  };
  static constexpr bool counts_time = requires(const ops<device_type>& math) { math.busy_ns(); };

  void mark() {
    marks_.emplace_back();
    moment* const at = &marks_.back();
    if constexpr (counts_time) {
      on_.launch(stream_, [at, math = &math_] { *at = {vtier::steady_clock{}.now_ns(), math->busy_ns()}; });
    } else {
      on_.launch(stream_, [at] { at->time_ns = vtier::steady_clock{}.now_ns(); });
    }
  }

  Hierarchy* mem_;
  device_type on_;
  adamw_settings settings_;
  std::size_t steps_max_;
  std::size_t tokens_count_;
  host_buffer<device_type> host_tokens_;
  host_buffer<device_type> host_losses_;
  std::vector<moment> marks_;
  ops<device_type> math_;
  typename device_type::stream stream_;
  model_type model_;
  std::vector<typename device_type::event> done_;
};

}  // namespace train_gpt
