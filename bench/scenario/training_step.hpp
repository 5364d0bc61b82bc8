// SPDX-License-Identifier: Apache-2.0
#pragma once

// The leases of one training step of a published model: what a trainer asks a hierarchy for, in order, and how long the
// device computes in between.
//
// Mixed precision and Adam: 16 bytes of state for each parameter. Forward keeps the input of each layer, backward
// computes the layer again; with several micro-batches the gradients add up; then the optimizer goes through all
// pieces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/role.hpp>

#include "support/model_shape.hpp"

namespace vtier::bench {

/// A device as a training step feels it.
///
/// Units   operations and bytes per ns, as far as training reaches them
struct device_speed {
  double operations_per_ns = 150'000.0;
  double memory_bytes_per_ns = 1'400.0;
};

/// How a model is trained.
///
/// Units   bytes; counts
struct training_setup {
  model_shape shape;
  device_speed device;
  std::size_t accumulation = 1;     // micro-batches to one step of the optimizer
  std::size_t sharded_over = 1;     // devices that share the state; each computes micro-batches of its own
  std::size_t piece_bytes_max = 1;  // the largest tensor that the trainer makes of parameters or their state
};

namespace detail {

/// Writes leases down in the order in which they begin and end.
class lease_recorder {
 public:
  std::uint32_t tensor(std::size_t size_bytes, role what, bool born = false) {
    trace.tensors.push_back({size_bytes, what, born});
    return static_cast<std::uint32_t>(trace.tensors.size() - 1);
  }
  std::size_t begin(std::uint32_t tensor, access mode) {
    trace.leases.push_back({tensor, mode, moment(), 0});
    return trace.leases.size() - 1;
  }
  void end(std::size_t lease) { trace.leases[lease].end = moment(); }
  void compute(double ns) { now_ns_ += ns; }
  [[nodiscard]] double now_ns() const { return now_ns_; }

  step_trace trace;

 private:
  std::uint32_t moment() {
    trace.moment_ns.push_back(static_cast<std::int64_t>(now_ns_));
    return static_cast<std::uint32_t>(trace.moment_ns.size() - 1);
  }
  double now_ns_ = 0.0;
};

/// A part of a layer's parameters with its state.
struct piece {
  std::size_t count = 0;
  std::uint32_t weight = 0;
  std::uint32_t gradient = 0;
  std::uint32_t master = 0;
  std::uint32_t momentum = 0;
  std::uint32_t variance = 0;
};

/// A layer: its pieces, what it computes for a token, what backward needs beside.
struct layer {
  std::vector<piece> pieces;
  double operations = 0.0;  // forward, for one micro-batch
  std::size_t workspace_bytes = 0;
};

class step_maker {
 public:
  explicit step_maker(const training_setup& setup) : setup_{setup} {}

  step_trace make() {
    make_layers();
    for (std::size_t batch = 0; batch < setup_.accumulation; ++batch) micro_batch(batch == 0);
    optimizer();
    to_.trace.duration_ns = static_cast<std::int64_t>(to_.now_ns());
    return std::move(to_.trace);
  }

 private:
  [[nodiscard]] std::size_t tokens() const { return setup_.shape.sequence * setup_.shape.micro_batch; }

  void add_layer(std::size_t count, double operations, std::size_t workspace_bytes) {
    layer made;
    made.operations = operations;
    made.workspace_bytes = workspace_bytes;
    std::size_t left = (count + setup_.sharded_over - 1) / setup_.sharded_over;
    const std::size_t count_max = (std::max)(setup_.piece_bytes_max / 4, std::size_t{1});
    const std::size_t pieces = (left + count_max - 1) / count_max;
    for (std::size_t i = 0; i < pieces; ++i) {
      piece p;
      p.count = left / (pieces - i);
      left -= p.count;
      p.weight = to_.tensor(p.count * setup_.shape.element_bytes, role::parameter);
      p.gradient = to_.tensor(p.count * setup_.shape.element_bytes, role::gradient);
      p.master = to_.tensor(p.count * 4, role::optimizer);
      p.momentum = to_.tensor(p.count * 4, role::optimizer);
      p.variance = to_.tensor(p.count * 4, role::optimizer);
      made.pieces.push_back(p);
    }
    layers_.push_back(std::move(made));
  }

  void make_layers() {
    const model_shape& s = setup_.shape;
    const std::size_t h = s.hidden;
    const std::size_t kv = h / s.heads * s.kv_heads;
    const std::size_t attention = 2 * h * h + 2 * h * kv;
    const std::size_t matrices = s.gpt2 ? 2 : 3;
    const auto t = static_cast<double>(tokens());
    const auto dense = [&](std::size_t count) { return 2.0 * static_cast<double>(count) * t; };
    const std::size_t inner = (6 * h + matrices * s.ffn * s.experts_active) * s.element_bytes * tokens();
    add_layer(s.vocabulary * h, 0.0, 0);
    for (std::size_t i = 0; i < s.layers; ++i) {
      const std::size_t count = attention + matrices * h * s.ffn * s.experts + 2 * h;
      const std::size_t active = attention + matrices * h * s.ffn * s.experts_active;
      const double scores = 4.0 * t * static_cast<double>(s.sequence) * static_cast<double>(h) / 2.0;  // causal
      add_layer(count, dense(active) + scores, inner);
    }
    add_layer(s.gpt2 ? h : s.vocabulary * h, dense(s.vocabulary * h), s.vocabulary * tokens() * 2);
  }

  void run(double operations) { to_.compute(operations / setup_.device.operations_per_ns); }

  // The tensors of a layer's inner values, in pieces.
  std::vector<std::size_t> take_workspace(std::size_t size_bytes) {
    std::vector<std::size_t> leases;
    while (size_bytes > 0) {
      const std::size_t part = (std::min)(size_bytes, setup_.piece_bytes_max);
      leases.push_back(to_.begin(to_.tensor(part, role::workspace, true), access::write));
      size_bytes -= part;
    }
    return leases;
  }

  void micro_batch(bool first) {
    const std::size_t width = tokens() * setup_.shape.hidden * setup_.shape.element_bytes;
    std::vector<std::uint32_t> inputs(layers_.size());
    for (std::size_t i = 1; i < layers_.size(); ++i) inputs[i] = to_.tensor(width, role::activation, true);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      std::vector<std::size_t> open;
      if (i > 0) open.push_back(to_.begin(inputs[i], access::read));
      open.push_back(to_.begin(inputs[i + 1], access::write));
      for (const piece& p : layers_[i].pieces) {
        const std::size_t w = to_.begin(p.weight, access::read);
        run(layers_[i].operations / static_cast<double>(layers_[i].pieces.size()));
        to_.end(w);
      }
      for (const std::size_t l : open) to_.end(l);
    }
    // The head computes forward and backward at once, the others forward again and backward: three times forward.
    for (std::size_t i = layers_.size(); i-- > 0;) {
      std::vector<std::size_t> open = take_workspace(layers_[i].workspace_bytes);
      if (i > 0) open.push_back(to_.begin(inputs[i], access::read));
      for (auto p = layers_[i].pieces.rbegin(); p != layers_[i].pieces.rend(); ++p) {
        const std::size_t w = to_.begin(p->weight, access::read);
        const std::size_t g = to_.begin(p->gradient, first ? access::write : access::read_write);
        run(3.0 * layers_[i].operations / static_cast<double>(layers_[i].pieces.size()));
        to_.end(w);
        to_.end(g);
      }
      for (const std::size_t l : open) to_.end(l);
    }
  }

  void optimizer() {
    for (const layer& l : layers_) {
      for (const piece& p : l.pieces) {
        const std::size_t open[] = {to_.begin(p.gradient, access::read), to_.begin(p.master, access::read_write),
                                    to_.begin(p.momentum, access::read_write),
                                    to_.begin(p.variance, access::read_write), to_.begin(p.weight, access::write)};
        to_.compute(static_cast<double>(p.count * 28) / setup_.device.memory_bytes_per_ns);
        for (const std::size_t lease : open) to_.end(lease);
      }
    }
  }

  training_setup setup_;
  lease_recorder to_;
  std::vector<layer> layers_;
};

}  // namespace detail

/// The bytes of training state: parameters, gradients, master copies and two moments.
///
/// Threads any
[[nodiscard]] inline std::size_t state_bytes(const step_trace& trace) {
  std::size_t sum = 0;
  for (const step_tensor& t : trace.tensors) sum += t.born ? 0 : t.size_bytes;
  return sum;
}

/// Records one step.
///
/// Gives   the same trace for the same setup
/// Threads any
[[nodiscard]] inline step_trace record_leases(const training_setup& setup) { return detail::step_maker{setup}.make(); }

}  // namespace vtier::bench
