// SPDX-License-Identifier: Apache-2.0
#pragma once

// The GPT: where its parameters are, and which leases each operation of the forward and backward pass takes.
//
// Nothing here moves bytes. Each operation takes leases on what it needs and nothing more, says ahead which parameters
// come next, and saves activations on a stack that the backward pass walks down. Cheap things (norms, GELU, attention's
// probabilities) are computed again instead of saved; what only passes through dies with its scope.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/core/shape.hpp>
#include <vtier/device/device.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/train/activation_stack.hpp>

#include "gpt_shape.hpp"
#include "ops.hpp"
#include "parameter.hpp"

namespace train_gpt {

/// How far the model looks ahead, and how it begins.
struct gpt_options {
  std::size_t layers_ahead = 1;             // parameters of so many next layers are asked for
  vtier::activation_stack_options saved{};  // what of the saved activations stays near the compute
  double deviation = 0.02;                  // of the first matrices and embeddings
};

/// The model.
///
/// Needs   `mem` and `math` outlive it; `stream` too, and it is the only stream of the computation
/// Threads one at a time
template <class Hierarchy, class Math = ops<typename Hierarchy::device_type>>
class gpt {
 public:
  using device_type = typename Hierarchy::device_type;
  using stream_ref = typename device_type::stream_ref;
  template <class T>
  using tensor_of = typename Hierarchy::template tensor<T>;
  using tensor = tensor_of<float>;

  /// Makes and fills all parameters from a seed; blocks until they are there.
  gpt(Hierarchy& mem, const device_type& on, stream_ref stream, Math& math, const gpt_shape& shape, std::uint64_t seed,
      const gpt_options& options = {})
      : mem_{&mem},
        on_{on},
        stream_{stream},
        math_{&math},
        shape_{shape},
        options_{options},
        saved_{mem, options.saved} {
    const std::size_t c = shape.width;
    const double deviation = options.deviation;
    const double last = deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));  // of what adds to the residual
    const host_buffer<device_type> room{
        on, (std::max)({std::size_t{gpt_shape::vocabulary}, shape.context, 4 * c}) * c * sizeof(float)};
    add(room, "token embedding", {gpt_shape::vocabulary, c}, uniform(seed, deviation), false);
    add(room, "position embedding", {shape.context, c}, uniform(seed, deviation), false);
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      const std::string of = "layer " + std::to_string(layer) + " ";
      add(room, of + "norms and biases", {gpt_shape::small_rows, c}, ones_in_rows({gain1, gain2}), false);
      add(room, of + "query, key, value", {3 * c, c}, uniform(seed, deviation), true);
      add(room, of + "attention output", {c, c}, uniform(seed, last), true);
      add(room, of + "up", {4 * c, c}, uniform(seed, deviation), true);
      add(room, of + "down", {c, 4 * c}, uniform(seed, last), true);
    }
    add(room, "last norm", {2, c}, ones_in_rows({0}), false);
  }

  /// Runs the forward and the backward pass; afterwards every parameter has its gradient.
  ///
  /// Shape   tokens (batch, context + 1); losses (1 + rows): [0] is the mean loss in nats a byte
  /// Cost    enqueues everything; the host blocks only as leases do
  void differentiate(const tensor_of<std::int32_t>& tokens, tensor_of<double>& losses) {
    want_layer(0);
    tensor x = embed(tokens);
    for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
      for (std::size_t i = 1; i <= options_.layers_ahead; ++i) want_layer(layer + i);
      x = attend(layer, std::move(x));
      x = think(layer, std::move(x));
    }
    tensor dx = head(std::move(x), tokens, losses);
    for (std::size_t layer = shape_.layers; layer-- > 0;) {
      for (std::size_t i = 1; i <= options_.layers_ahead; ++i) want_layer(layer - i);  // wraps below 0: no such layer
      const auto dsmall = small_gradient(layer);
      think_back(layer, dx, dsmall);
      attend_back(layer, dx, dsmall);
    }
    auto& table = all_[0];
    auto& positions = all_[1];
    make_gradient(positions);
    auto dtable = table.gradient->read_write(stream_);
    auto dpositions = positions.gradient->write(stream_);
    auto above = dx.read(stream_);
    auto read_tokens = tokens.read(stream_);
    math_->embed_gradient(stream_, dtable.data(), dpositions.data(), above.data(), read_tokens.data(), shape_);
  }

  [[nodiscard]] std::vector<parameter<Hierarchy>>& parameters() noexcept { return all_; }
  [[nodiscard]] Hierarchy& memory() noexcept { return *mem_; }
  [[nodiscard]] Math& math() noexcept { return *math_; }
  [[nodiscard]] stream_ref stream() const { return stream_; }
  [[nodiscard]] const gpt_shape& shape() const noexcept { return shape_; }

 private:
  // Rows of a layer's small parameters.
  enum small_row : std::size_t {
    gain1 = 0,
    bias1 = 1,
    qkv_bias = 2,
    out_bias = 5,
    gain2 = 6,
    bias2 = 7,
    up_bias = 8,
    down_bias = 12
  };
  // A layer's parameters, after the two embeddings.
  enum part : std::size_t { small = 0, qkv = 1, out = 2, up = 3, down = 4, part_count = 5 };

  parameter<Hierarchy>& of(std::size_t layer, part which) { return all_[2 + layer * part_count + which]; }

  [[nodiscard]] static auto ones_in_rows(std::initializer_list<std::size_t> rows) {
    return [list = std::vector<std::size_t>(rows)](float* to, std::size_t count, std::size_t width, std::size_t) {
      std::memset(to, 0, count * sizeof(float));
      for (const std::size_t r : list) {
        for (std::size_t i = 0; i < width; ++i) to[r * width + i] = 1.0F;
      }
    };
  }

  // Uniform rather than normal numbers of the same deviation: they need no logarithm, and come out alike everywhere.
  [[nodiscard]] static auto uniform(std::uint64_t seed, double deviation) {
    return [seed, deviation](float* to, std::size_t count, std::size_t, std::size_t index) {
      vtier::random_source mixed{seed};
      vtier::random_source numbers{mixed() + index * 0x9E3779B97F4A7C15U};
      const double reach = deviation * std::sqrt(3.0);
      for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>((2.0 * numbers.uniform() - 1.0) * reach);
    };
  }

  template <class Fill>
  void add(const host_buffer<device_type>& room, std::string name, const vtier::shape& extents, const Fill& fill,
           bool decays) {
    all_.push_back({std::move(name), mem_->template make_tensor<float>(extents, vtier::role::parameter),
                    mem_->template make_tensor<float>(extents, vtier::role::optimizer),
                    mem_->template make_tensor<float>(extents, vtier::role::optimizer), decays});
    auto& made = all_.back();
    fill(room.template as<float>(), made.value.size(), extents[extents.rank() - 1], all_.size());
    {
      auto p = made.value.write(stream_);
      on_.copy(stream_, p.data(), room.template as<float>(), made.value.bytes(), vtier::copy_direction::host_to_device);
    }
    for (tensor* moment : {&made.first_moment, &made.second_moment}) {
      auto lease = moment->write(stream_);
      on_.fill(stream_, lease.data(), std::byte{0}, moment->bytes());
    }
    on_.synchronize(stream_);  // the buffer is used again
  }

  [[nodiscard]] tensor make(std::size_t columns, vtier::role what) {
    return mem_->template make_tensor<float>({shape_.rows(), columns}, what);
  }
  [[nodiscard]] tensor passing(std::size_t columns) { return make(columns, vtier::role::workspace); }
  [[nodiscard]] tensor activation(std::size_t columns) { return make(columns, vtier::role::activation); }
  [[nodiscard]] tensor scratch() {
    return mem_->template make_tensor<float>({math_->attention_scratch(shape_)}, vtier::role::workspace);
  }

  void make_gradient(parameter<Hierarchy>& p) {
    p.gradient.emplace(mem_->template make_tensor<float>(p.value.shape(), vtier::role::gradient));
  }

  void want_layer(std::size_t layer) {
    if (layer >= shape_.layers) return;
    for (std::size_t i = 0; i < part_count; ++i) mem_->prefetch(of(layer, static_cast<part>(i)).value);
  }

  // out = x w^T + bias + residual
  void linear(tensor& result, const tensor& x, const parameter<Hierarchy>& w, const float* bias,
              const float* residual) {
    auto to = result.write(stream_);
    auto from = x.read(stream_);
    auto weight = w.value.read(stream_);
    const auto& extents = w.value.shape();
    math_->linear(stream_, to.data(), from.data(), weight.data(), bias, residual, shape_.rows(), extents[0],
                  extents[1]);
  }

  // Both gradients of a product; dx is written.
  void linear_back(tensor& dx, const tensor& dout, const tensor& x, parameter<Hierarchy>& w, float* dbias) {
    const auto& extents = w.value.shape();
    auto above = dout.read(stream_);
    make_gradient(w);
    {
      auto dw = w.gradient->write(stream_);
      auto from = x.read(stream_);
      math_->linear_weight_gradient(stream_, dw.data(), dbias, above.data(), from.data(), shape_.rows(), extents[0],
                                    extents[1]);
    }
    auto to = dx.write(stream_);
    auto weight = w.value.read(stream_);
    math_->linear_input_gradient(stream_, to.data(), above.data(), weight.data(), shape_.rows(), extents[0],
                                 extents[1]);
  }

  // The norm of x and its statistics.
  struct normed {
    tensor value;
    tensor stats;
  };
  [[nodiscard]] normed norm(const tensor& x, const float* gain, const float* bias) {
    normed result{passing(shape_.width), passing(2)};
    auto to = result.value.write(stream_);
    auto stats = result.stats.write(stream_);
    auto from = x.read(stream_);
    math_->layer_norm(stream_, to.data(), stats.data(), from.data(), gain, bias, shape_.rows(), shape_.width);
    return result;
  }
  void norm_back(tensor& dx, const tensor& dout, const tensor& x, const tensor& stats, const float* gain, float* dgain,
                 float* dbias, bool first) {
    auto to = first ? dx.write(stream_) : dx.read_write(stream_);
    auto above = dout.read(stream_);
    auto from = x.read(stream_);
    auto known = stats.read(stream_);
    math_->layer_norm_gradient(stream_, to.data(), dgain, dbias, above.data(), from.data(), known.data(), gain,
                               shape_.rows(), shape_.width, first);
  }

  [[nodiscard]] tensor embed(const tensor_of<std::int32_t>& tokens) {
    tensor x = activation(shape_.width);
    auto to = x.write(stream_);
    auto table = all_[0].value.read(stream_);
    auto positions = all_[1].value.read(stream_);
    auto read_tokens = tokens.read(stream_);
    math_->embed(stream_, to.data(), table.data(), positions.data(), read_tokens.data(), shape_);
    to.end();
    return x;
  }

  [[nodiscard]] tensor gelu_of(const tensor& u) {
    tensor result = passing(4 * shape_.width);
    auto to = result.write(stream_);
    auto from = u.read(stream_);
    math_->gelu(stream_, to.data(), from.data(), result.size());
    to.end();
    return result;
  }

  // x + attention(norm(x)); saves x, q k v, and what attention gave.
  [[nodiscard]] tensor attend(std::size_t layer, tensor x) {
    const std::size_t c = shape_.width;
    auto few = of(layer, small).value.read(stream_);
    tensor heads = activation(3 * c);
    {
      const normed n = norm(x, few.data() + gain1 * c, few.data() + bias1 * c);
      linear(heads, n.value, of(layer, qkv), few.data() + qkv_bias * c, nullptr);
    }
    tensor mixed = activation(c);
    {
      tensor room = scratch();
      auto to = mixed.write(stream_);
      auto work = room.write(stream_);
      auto from = heads.read(stream_);
      math_->attention(stream_, to.data(), work.data(), from.data(), shape_);
    }
    tensor result = activation(c);
    {
      auto residual = x.read(stream_);
      linear(result, mixed, of(layer, out), few.data() + out_bias * c, residual.data());
    }
    saved_.push(std::move(x));
    saved_.push(std::move(heads));
    saved_.push(std::move(mixed));
    return result;
  }

  // x + down(gelu(up(norm(x)))); saves x and what goes into GELU.
  [[nodiscard]] tensor think(std::size_t layer, tensor x) {
    const std::size_t c = shape_.width;
    auto few = of(layer, small).value.read(stream_);
    tensor u = activation(4 * c);
    {
      const normed n = norm(x, few.data() + gain2 * c, few.data() + bias2 * c);
      linear(u, n.value, of(layer, up), few.data() + up_bias * c, nullptr);
    }
    tensor result = activation(c);
    {
      const tensor g = gelu_of(u);
      auto residual = x.read(stream_);
      linear(result, g, of(layer, down), few.data() + down_bias * c, residual.data());
    }
    saved_.push(std::move(x));
    saved_.push(std::move(u));
    return result;
  }

  // Last norm, tied head, loss; gives the gradient of the last residual stream.
  [[nodiscard]] tensor head(tensor x, const tensor_of<std::int32_t>& tokens, tensor_of<double>& losses) {
    const std::size_t c = shape_.width;
    auto& last = all_.back();
    auto& table = all_.front();
    auto few = last.value.read(stream_);
    const normed n = norm(x, few.data(), few.data() + c);
    tensor logits = passing(gpt_shape::vocabulary);
    linear(logits, n.value, table, nullptr, nullptr);
    {
      auto to = losses.write(stream_);
      auto change = logits.read_write(stream_);
      auto read_tokens = tokens.read(stream_);
      math_->cross_entropy(stream_, to.data(), change.data(), read_tokens.data(), shape_);
    }
    tensor dn = passing(c);
    linear_back(dn, logits, n.value, table, nullptr);
    tensor dx = passing(c);
    make_gradient(last);
    auto d = last.gradient->write(stream_);
    norm_back(dx, dn, x, n.stats, few.data(), d.data(), d.data() + c, true);
    return dx;
  }

  using write_lease = decltype(std::declval<tensor&>().write(std::declval<stream_ref>()));

  [[nodiscard]] write_lease small_gradient(std::size_t layer) {
    make_gradient(of(layer, small));
    return of(layer, small).gradient->write(stream_);
  }

  void think_back(std::size_t layer, tensor& dx, const write_lease& d) {
    const std::size_t c = shape_.width;
    const tensor u = saved_.template pop<float>();
    const tensor x = saved_.template pop<float>();
    tensor du = passing(4 * c);
    linear_back(du, dx, gelu_of(u), of(layer, down), d.data() + down_bias * c);
    {
      auto change = du.read_write(stream_);
      auto from = u.read(stream_);
      math_->gelu_gradient(stream_, change.data(), from.data(), du.size());
    }
    auto few = of(layer, small).value.read(stream_);
    const normed n = norm(x, few.data() + gain2 * c, few.data() + bias2 * c);
    tensor dn = passing(c);
    linear_back(dn, du, n.value, of(layer, up), d.data() + up_bias * c);
    norm_back(dx, dn, x, n.stats, few.data() + gain2 * c, d.data() + gain2 * c, d.data() + bias2 * c, false);
  }

  void attend_back(std::size_t layer, tensor& dx, const write_lease& d) {
    const std::size_t c = shape_.width;
    tensor dmixed = passing(c);
    linear_back(dmixed, dx, saved_.template pop<float>(), of(layer, out), d.data() + out_bias * c);
    tensor dheads = passing(3 * c);
    {
      const tensor heads = saved_.template pop<float>();
      tensor room = scratch();
      auto to = dheads.write(stream_);
      auto work = room.write(stream_);
      auto above = dmixed.read(stream_);
      auto from = heads.read(stream_);
      math_->attention_gradient(stream_, to.data(), work.data(), above.data(), from.data(), shape_);
    }
    const tensor x = saved_.template pop<float>();
    auto few = of(layer, small).value.read(stream_);
    const normed n = norm(x, few.data() + gain1 * c, few.data() + bias1 * c);
    tensor dn = passing(c);
    linear_back(dn, dheads, n.value, of(layer, qkv), d.data() + qkv_bias * c);
    norm_back(dx, dn, x, n.stats, few.data() + gain1 * c, d.data() + gain1 * c, d.data() + bias1 * c, false);
  }

  Hierarchy* mem_;
  device_type on_;
  stream_ref stream_;
  Math* math_;
  gpt_shape shape_;
  gpt_options options_;
  vtier::activation_stack<Hierarchy> saved_;
  std::vector<parameter<Hierarchy>> all_;
};

}  // namespace train_gpt
