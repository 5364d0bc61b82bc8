// SPDX-License-Identifier: Apache-2.0
#pragma once

// Models that benches imitate: their published shapes, as numbers.

#include <cstddef>
#include <string>
#include <vector>

namespace vtier::bench {

/// A decoder-only transformer and how it is trained.
///
/// Units   counts; element_bytes: bytes of a parameter, a gradient and an activation
struct model_shape {
  std::string name;
  std::size_t layers = 1;
  std::size_t hidden = 1;
  std::size_t heads = 1;
  std::size_t kv_heads = 1;
  std::size_t ffn = 1;
  std::size_t vocabulary = 1;
  std::size_t sequence = 1;
  std::size_t micro_batch = 1;
  std::size_t experts = 1;         // 1: a dense layer
  std::size_t experts_active = 1;  // of these for each token
  std::size_t element_bytes = 2;
  // The family. GPT-2 has biases, learned positions, one matrix for embedding and logits, a GELU and a fused
  // projection; Llama and its like have none of these, but rotary positions and a gated feed-forward part.
  bool gpt2 = false;
};

/// The models of the benches.
///
/// Source  GPT-2: Radford et al. 2019, table 2, and the released configurations; Llama 2: Touvron et al. 2023, table 1,
///         and the released configurations; mixture of experts: Jiang et al. 2024, Mixtral of Experts, table 1
[[nodiscard]] inline std::vector<model_shape> public_models() {
  return {{.name = "gpt2_124M",
           .layers = 12,
           .hidden = 768,
           .heads = 12,
           .kv_heads = 12,
           .ffn = 3072,
           .vocabulary = 50257,
           .sequence = 1024,
           .micro_batch = 8,
           .gpt2 = true},
          {.name = "gpt2_1.5B",
           .layers = 48,
           .hidden = 1600,
           .heads = 25,
           .kv_heads = 25,
           .ffn = 6400,
           .vocabulary = 50257,
           .sequence = 1024,
           .micro_batch = 4,
           .gpt2 = true},
          {.name = "llama2_7B",
           .layers = 32,
           .hidden = 4096,
           .heads = 32,
           .kv_heads = 32,
           .ffn = 11008,
           .vocabulary = 32000,
           .sequence = 4096},
          {.name = "llama2_13B",
           .layers = 40,
           .hidden = 5120,
           .heads = 40,
           .kv_heads = 40,
           .ffn = 13824,
           .vocabulary = 32000,
           .sequence = 4096},
          {.name = "llama2_70B",
           .layers = 80,
           .hidden = 8192,
           .heads = 64,
           .kv_heads = 8,
           .ffn = 28672,
           .vocabulary = 32000,
           .sequence = 4096},
          {.name = "moe_8x7B",
           .layers = 32,
           .hidden = 4096,
           .heads = 32,
           .kv_heads = 8,
           .ffn = 14336,
           .vocabulary = 32000,
           .sequence = 4096,
           .experts = 8,
           .experts_active = 2}};
}

}  // namespace vtier::bench
