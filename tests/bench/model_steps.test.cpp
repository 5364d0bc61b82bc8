// SPDX-License-Identifier: Apache-2.0
#include "support/model_steps.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <vtier/residency/role.hpp>

#include "support/catch.hpp"

namespace {

using vtier::role;
using vtier::bench::lifetimes;
using vtier::bench::memory_event;
using vtier::bench::memory_trace;
using vtier::bench::model_shape;
using vtier::bench::parameter_count;
using vtier::bench::public_models;
using vtier::bench::record_step;

model_shape small() {
  return {.name = "small",
          .layers = 3,
          .hidden = 8,
          .heads = 2,
          .kv_heads = 1,
          .ffn = 16,
          .vocabulary = 32,
          .sequence = 4,
          .micro_batch = 2};
}

std::size_t bytes_of(const memory_trace& trace, role use) {
  std::size_t result = 0;
  for (const auto& l : lifetimes(trace)) result += l.use == use ? l.size_bytes : 0;
  return result;
}

}  // namespace

TEST_CASE("the models have as many parameters as their authors say", "[bench][model_steps]") {
  const std::map<std::string, std::size_t> known{{"gpt2_124M", 124'439'808},     {"gpt2_1.5B", 1'557'611'200},
                                                 {"llama2_7B", 6'738'415'616},   {"llama2_13B", 13'015'864'320},
                                                 {"llama2_70B", 68'976'648'192}, {"moe_8x7B", 46'702'792'704}};
  REQUIRE(public_models().size() == known.size());
  for (const auto& shape : public_models()) {
    INFO(shape.name);
    CHECK(parameter_count(shape) == known.at(shape.name));
  }
}

TEST_CASE("a recorded step frees what it allocates, and nothing else", "[bench][model_steps]") {
  auto models = public_models();
  models.push_back(small());
  for (const auto& shape : models) {
    INFO(shape.name);
    const memory_trace trace = record_step(shape);
    std::vector<bool> live(trace.block_count, false);
    std::vector<std::size_t> size(trace.block_count, 0);
    bool sound = true;
    std::size_t live_count = 0;
    for (std::size_t at = 0; at < trace.events.size(); ++at) {
      const memory_event& e = trace.events[at];
      const bool allocates = e.what == memory_event::kind::allocate;
      sound = sound && e.id < trace.block_count && live[e.id] != allocates && e.size_bytes > 0;
      sound =
          sound && (allocates || (size[e.id] == e.size_bytes && e.use != role::parameter && e.use != role::optimizer));
      if (at < trace.step_begin) sound = sound && allocates && (e.use == role::parameter || e.use == role::optimizer);
      if (!sound) break;
      live[e.id] = allocates;
      size[e.id] = e.size_bytes;
      live_count += allocates ? std::size_t{1} : ~std::size_t{0};
    }
    CHECK(sound);
    CHECK(live_count == trace.step_begin);
  }
}

TEST_CASE("the bytes of a step are those of the parameters, by role", "[bench][model_steps]") {
  auto models = public_models();
  models.push_back(small());
  for (const auto& shape : models) {
    INFO(shape.name);
    const std::size_t count = parameter_count(shape);
    const memory_trace trace = record_step(shape);
    CHECK(bytes_of(trace, role::parameter) == count * shape.element_bytes);
    CHECK(bytes_of(trace, role::gradient) == count * shape.element_bytes);
    CHECK(bytes_of(trace, role::optimizer) == count * 12);
    const std::size_t peak = peak_live_bytes(trace);
    CHECK(peak > count * (2 * shape.element_bytes + 12));
  }
}

TEST_CASE("checkpointing keeps one input of each layer and computes the layer again", "[bench][model_steps]") {
  const model_shape shape = small();
  const std::size_t width = shape.sequence * shape.micro_batch * shape.hidden * shape.element_bytes;
  const memory_trace trace = record_step(shape);
  // Activations alive when the head is reached, the logits being the first block of their size.
  const std::size_t logits = shape.sequence * shape.micro_batch * shape.vocabulary * shape.element_bytes;
  std::size_t at = trace.step_begin;
  while (trace.events[at].size_bytes != logits || trace.events[at].use != role::activation) ++at;
  std::map<std::size_t, std::size_t> kept;  // of each layer, blocks as large as an input
  for (const auto& l : lifetimes(trace)) {
    if (l.use == role::activation && l.begin < at && l.end > at && l.size_bytes == width) ++kept[l.layer];
  }
  CHECK(kept == std::map<std::size_t, std::size_t>{{0, 1}, {1, 1}, {2, 1}, {3, 2}});  // 3: embedding, norm of the head
}

TEST_CASE("how tokens fall on experts follows from the seed", "[bench][model_steps]") {
  model_shape shape = small();
  shape.experts = 4;
  shape.experts_active = 2;
  const auto sizes = [&](std::uint64_t seed) {
    std::vector<std::size_t> result;
    for (const auto& e : record_step(shape, seed).events) result.push_back(e.size_bytes);
    return result;
  };
  CHECK(sizes(1) == sizes(1));
  CHECK(sizes(1) != sizes(2));
}
