// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one training step of a published model allocates and frees, in order: a pure function of the model's shape.
//
// Benches of allocators replay it and benches of scheduling read lifetimes off it, so it is made once, here. It is a
// step of a plain mixed-precision trainer on one device: forward that keeps only the input of each layer, backward that
// computes each layer again, then Adam tensor by tensor. Nothing is read or written; sizes and order are all there is.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/residency/role.hpp>

#include "support/memory_trace.hpp"
#include "support/model_shape.hpp"

namespace vtier::bench {

namespace detail {

inline constexpr std::size_t no_block = (std::numeric_limits<std::size_t>::max)();

/// Writes events down.
class step_recorder {
 public:
  std::size_t take(std::size_t size_bytes, role use, std::size_t layer) {
    const std::size_t id = trace.block_count++;
    trace.events.push_back({memory_event::kind::allocate, use, static_cast<std::uint32_t>(layer), id, size_bytes});
    allocation_.push_back(trace.events.size() - 1);
    return id;
  }
  void give(std::size_t id) {
    memory_event e = trace.events[allocation_[id]];
    e.what = memory_event::kind::free;
    trace.events.push_back(e);
  }
  memory_trace trace;

 private:
  std::vector<std::size_t> allocation_;  // of each id
};

/// A parameter tensor and where its gradient is.
struct parameter {
  std::size_t count = 0;
  std::size_t layer = 0;
  std::size_t gradient = no_block;
};

/// One operation: what it writes, what it keeps, from what. Operation 0 of a graph stands for the graph's input.
///
/// Units   bytes
struct operation {
  std::size_t output_bytes = 0;
  std::vector<std::size_t> inputs{};      // operations before it
  std::vector<std::size_t> parameters{};  // places in the list of all
  std::size_t statistics_bytes = 0;       // kept for its backward: means, log-sum-exps, indices
  std::size_t backward_workspace_bytes = 0;
  bool saves_inputs = true;  // its backward reads them
};

/// A piece of a model whose forward and backward run as a whole.
class graph {
 public:
  /// `learns_input`: whether the input has a gradient; token numbers have none.
  graph(std::size_t layer, std::size_t input_bytes, bool learns_input = true)
      : layer_{layer}, learns_input_{learns_input} {
    operations_.push_back({.output_bytes = input_bytes});
  }

  std::size_t add(operation made) {
    operations_.push_back(std::move(made));
    return operations_.size() - 1;
  }

  /// Allocates as the forward pass does.
  ///
  /// Needs   the block of the input, which stays the caller's
  /// Gives   the block of the last output, the caller's; with `keep`, what backward needs stays as well
  std::size_t forward(step_recorder& to, std::size_t input, bool keep) {
    const std::size_t last = operations_.size() - 1;
    outputs_.assign(operations_.size(), no_block);
    statistics_.assign(operations_.size(), no_block);
    references_.assign(operations_.size(), 0);
    outputs_[0] = input;
    references_[0] = references_[last] = 1;  // the caller's
    for (const auto& o : operations_) {
      for (const std::size_t i : o.inputs) ++references_[i];
    }
    for (std::size_t at = 1; at <= last; ++at) {
      const operation& o = operations_[at];
      outputs_[at] = to.take(o.output_bytes, role::activation, layer_);
      if (o.statistics_bytes > 0) statistics_[at] = to.take(o.statistics_bytes, role::activation, layer_);
      if (!keep || !o.saves_inputs) drop_inputs(to, at);
      if (!keep) drop_statistics(to, at);
    }
    return outputs_[last];
  }

  /// Allocates as the backward pass does, after a forward that kept.
  ///
  /// Needs   the gradient of the last output, which is freed; the last output freed or dropped by the caller
  /// Gives   the gradient of the input, the caller's, or no_block where it has none; parameters have gradients
  std::size_t backward(step_recorder& to, std::size_t output_gradient, std::vector<parameter>& all,
                       std::size_t element_bytes) {
    std::vector<std::size_t> gradients(operations_.size(), no_block);
    gradients.back() = output_gradient;
    for (std::size_t at = operations_.size() - 1; at > 0; --at) {
      const operation& o = operations_[at];
      const std::size_t workspace =
          o.backward_workspace_bytes > 0 ? to.take(o.backward_workspace_bytes, role::workspace, layer_) : no_block;
      for (const std::size_t i : o.inputs) {
        if (i == 0 && !learns_input_) continue;
        const std::size_t made = to.take(operations_[i].output_bytes, role::activation, layer_);
        if (gradients[i] == no_block) {
          gradients[i] = made;
        } else {
          to.give(made);  // it was added to the one that is there
        }
      }
      for (const std::size_t p : o.parameters) {
        const bool first = all[p].gradient == no_block;
        const std::size_t made =
            to.take(all[p].count * element_bytes, first ? role::gradient : role::workspace, all[p].layer);
        if (first) {
          all[p].gradient = made;
        } else {
          to.give(made);
        }
      }
      if (workspace != no_block) to.give(workspace);
      to.give(gradients[at]);
      if (o.saves_inputs) drop_inputs(to, at);
      drop_statistics(to, at);
    }
    return gradients[0];
  }

  /// Frees the last output, where the caller has no use for it.
  void drop_output(step_recorder& to) { drop(to, operations_.size() - 1); }

 private:
  void drop(step_recorder& to, std::size_t at) {
    if (--references_[at] == 0) to.give(outputs_[at]);
  }
  void drop_inputs(step_recorder& to, std::size_t at) {
    for (const std::size_t i : operations_[at].inputs) drop(to, i);
  }
  void drop_statistics(step_recorder& to, std::size_t at) {
    if (statistics_[at] != no_block) to.give(std::exchange(statistics_[at], no_block));
  }

  std::size_t layer_;
  bool learns_input_;
  std::vector<operation> operations_;
  std::vector<std::size_t> outputs_;
  std::vector<std::size_t> statistics_;
  std::vector<std::size_t> references_;
};

/// The graphs of a model: embedding, layers, head.
class model {
 public:
  model(const model_shape& shape, std::uint64_t seed) : shape_{shape}, random_{seed} {
    const std::size_t h = shape.hidden;
    const std::size_t table = own(shape.vocabulary * h, shape.layers);
    graph first{shape.layers, tokens() * index_bytes, false};
    std::size_t x = first.add({.output_bytes = wide(h), .inputs = {0}, .parameters = {table}});
    if (shape.gpt2) {
      const std::size_t positions = own(shape.sequence * h, shape.layers);
      first.add({.output_bytes = wide(h), .inputs = {x}, .parameters = {positions}, .saves_inputs = false});
    }
    pieces.push_back(std::move(first));
    for (std::size_t layer = 0; layer < shape.layers; ++layer) add_layer(layer);

    graph head{shape.layers, wide(h)};
    x = head.add(norm(0, shape.layers));
    const std::size_t matrix = shape.gpt2 ? table : own(shape.vocabulary * h, shape.layers);
    x = head.add({.output_bytes = wide(shape.vocabulary), .inputs = {x}, .parameters = {matrix}});
    x = head.add({.output_bytes = tokens() * shape.vocabulary * 4, .inputs = {x}, .saves_inputs = false});
    head.add({.output_bytes = 4, .inputs = {x}, .statistics_bytes = tokens() * 4});
    pieces.push_back(std::move(head));
  }

  [[nodiscard]] std::size_t tokens() const noexcept { return shape_.sequence * shape_.micro_batch; }
  [[nodiscard]] std::size_t wide(std::size_t width) const noexcept { return tokens() * width * shape_.element_bytes; }

  static constexpr std::size_t index_bytes = 8;
  std::vector<parameter> parameters;
  std::vector<graph> pieces;

 private:
  std::size_t own(std::size_t count, std::size_t layer) {
    parameters.push_back({count, layer});
    return parameters.size() - 1;
  }

  operation norm(std::size_t input, std::size_t layer) {
    operation result{.output_bytes = wide(shape_.hidden), .inputs = {input}, .statistics_bytes = tokens() * 4};
    result.parameters.push_back(own(shape_.hidden, layer));
    if (shape_.gpt2) {
      result.parameters.push_back(own(shape_.hidden, layer));
      result.statistics_bytes *= 2;  // mean and deviation
    }
    return result;
  }

  operation linear(std::size_t input, std::size_t rows, std::size_t from, std::size_t to, std::size_t layer) {
    operation result{.output_bytes = rows * to * shape_.element_bytes, .inputs = {input}};
    result.parameters.push_back(own(from * to, layer));
    if (shape_.gpt2) result.parameters.push_back(own(to, layer));
    return result;
  }

  operation sum(std::size_t a, std::size_t b) const {
    return {.output_bytes = wide(shape_.hidden), .inputs = {a, b}, .saves_inputs = false};
  }

  // The feed-forward part of one expert, or of a dense layer.
  std::size_t feed_forward(graph& g, std::size_t input, std::size_t rows, std::size_t layer) {
    const std::size_t h = shape_.hidden;
    const std::size_t f = shape_.ffn;
    const std::size_t between = rows * f * shape_.element_bytes;
    std::size_t x = g.add(linear(input, rows, h, f, layer));
    if (shape_.gpt2) {
      x = g.add({.output_bytes = between, .inputs = {x}});
    } else {
      const std::size_t up = g.add(linear(input, rows, h, f, layer));
      x = g.add({.output_bytes = between, .inputs = {x}});  // silu of the gate
      x = g.add({.output_bytes = between, .inputs = {x, up}});
    }
    return g.add(linear(x, rows, f, h, layer));
  }

  std::size_t attention(graph& g, std::size_t input, std::size_t layer) {
    const std::size_t h = shape_.hidden;
    const std::size_t kv = h / shape_.heads * shape_.kv_heads;
    operation core{.output_bytes = wide(h),
                   .statistics_bytes = tokens() * shape_.heads * 4,  // one log-sum-exp for each row and head
                   .backward_workspace_bytes = tokens() * h * 4};    // the gradient of q is summed up in fp32
    if (shape_.gpt2) {
      core.inputs = {g.add(linear(input, tokens(), h, 3 * h, layer))};
    } else {
      const std::size_t q = g.add(linear(input, tokens(), h, h, layer));
      const std::size_t k = g.add(linear(input, tokens(), h, kv, layer));
      const std::size_t v = g.add(linear(input, tokens(), h, kv, layer));
      const std::size_t turned_q = g.add({.output_bytes = wide(h), .inputs = {q}, .saves_inputs = false});
      const std::size_t turned_k = g.add({.output_bytes = wide(kv), .inputs = {k}, .saves_inputs = false});
      core.inputs = {turned_q, turned_k, v};
    }
    const std::size_t x = g.add(std::move(core));
    return g.add(linear(x, tokens(), h, h, layer));
  }

  // Each token goes to `experts_active` experts; how many an expert gets differs from layer to layer.
  std::size_t mixture(graph& g, std::size_t input, std::size_t layer) {
    const std::size_t choices = tokens() * shape_.experts_active;
    operation routing = linear(input, tokens(), shape_.hidden, shape_.experts, layer);
    routing.output_bytes = tokens() * shape_.experts * 4;
    std::size_t x = g.add(std::move(routing));
    x = g.add({.output_bytes = choices * 4, .inputs = {x}, .statistics_bytes = choices * index_bytes});
    operation combined{.output_bytes = wide(shape_.hidden), .inputs = {x}};
    std::size_t left = choices;
    for (std::size_t e = 0; e < shape_.experts; ++e) {
      const std::size_t even = left / (shape_.experts - e);
      const std::size_t rows = e + 1 == shape_.experts ? left : even / 2 + random_.below(even + 1);
      left -= rows;
      const std::size_t gathered = g.add(
          {.output_bytes = rows * shape_.hidden * shape_.element_bytes, .inputs = {input}, .saves_inputs = false});
      combined.inputs.push_back(feed_forward(g, gathered, rows, layer));
    }
    return g.add(std::move(combined));
  }

  void add_layer(std::size_t layer) {
    graph g{layer, wide(shape_.hidden)};
    std::size_t x = g.add(norm(0, layer));
    const std::size_t middle = g.add(sum(0, attention(g, x, layer)));
    x = g.add(norm(middle, layer));
    x = shape_.experts > 1 ? mixture(g, x, layer) : feed_forward(g, x, tokens(), layer);
    g.add(sum(middle, x));
    pieces.push_back(std::move(g));
  }

  model_shape shape_;
  random_source random_;
};

}  // namespace detail

/// How many parameters a model has.
[[nodiscard]] inline std::size_t parameter_count(const model_shape& shape) {
  std::size_t result = 0;
  for (const auto& p : detail::model{shape, 0}.parameters) result += p.count;
  return result;
}

/// Records parameters, optimizer state, and one step.
///
/// Shape   parameters and gradients in element_bytes; master copy and two moments of Adam in fp32; logits in
///         element_bytes and again in fp32
/// Needs   hidden a multiple of heads; counts of at least one
/// Gives   the same trace for the same arguments; the seed decides how tokens fall on experts
/// Threads any
[[nodiscard]] inline memory_trace record_step(const model_shape& shape, std::uint64_t seed = 1) {
  VTIER_ASSERT(shape.heads > 0 && shape.hidden % shape.heads == 0, "hidden must be a multiple of heads");
  detail::model m{shape, seed};
  detail::step_recorder to;
  for (const auto& p : m.parameters) to.take(p.count * shape.element_bytes, role::parameter, p.layer);
  for (const auto& p : m.parameters) {
    for (int state = 0; state < 3; ++state) to.take(p.count * 4, role::optimizer, p.layer);
  }
  to.trace.step_begin = to.trace.events.size();

  // Forward. The embedding and the head are kept whole, of a layer its input.
  const std::size_t tokens = to.take(m.tokens() * m.index_bytes, role::activation, shape.layers);
  const std::size_t targets = to.take(m.tokens() * m.index_bytes, role::activation, shape.layers);
  std::vector<std::size_t> inputs{m.pieces[0].forward(to, tokens, true)};
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    inputs.push_back(m.pieces[layer + 1].forward(to, inputs.back(), false));
  }
  detail::graph& head = m.pieces.back();
  const std::size_t loss = head.forward(to, inputs.back(), true);

  // Backward. Gradients of parameters stay for the optimizer.
  std::size_t gradient = to.take(4, role::activation, shape.layers);
  gradient = head.backward(to, gradient, m.parameters, shape.element_bytes);
  to.give(inputs.back());
  for (std::size_t layer = shape.layers; layer-- > 0;) {
    detail::graph& g = m.pieces[layer + 1];
    g.forward(to, inputs[layer], true);
    g.drop_output(to);
    gradient = g.backward(to, gradient, m.parameters, shape.element_bytes);
    to.give(inputs[layer]);
  }
  m.pieces[0].backward(to, gradient, m.parameters, shape.element_bytes);
  to.give(tokens);
  to.give(targets);
  to.give(loss);

  // Adam in fp32: the gradient widened, and the update.
  for (const auto& p : m.parameters) {
    const std::size_t widened = to.take(p.count * 4, role::workspace, p.layer);
    const std::size_t update = to.take(p.count * 4, role::workspace, p.layer);
    to.give(update);
    to.give(widened);
    to.give(p.gradient);
  }
  return std::move(to.trace);
}

}  // namespace vtier::bench
