#include "copus/parallel/flops.h"

#include <catch2/catch.hpp>

using namespace copus;

TEST_CASE(
    "E26: the FLOPs of a token agree with a count by hand for GPT-2 124M and a grouped-query "
    "SwiGLU model") {
  ModelConfig gpt2;
  gpt2.family = Family::gpt2;
  gpt2.layers = 12;
  gpt2.hidden = 768;
  gpt2.heads = gpt2.kv_heads = 12;
  gpt2.ffn = 3072;
  gpt2.vocab = 50257;
  gpt2.seq_len = 256;
  gpt2.max_positions = 1024;
  gpt2.tie_embeddings = true;
  // A layer: q, k, v, out 4 * 768^2, fc and proj 2 * 768 * 3072; the tied head once; positions and
  // the lookup are no products.
  double const matrices = 12.0 * (4.0 * 768 * 768 + 2.0 * 768 * 3072) + 50257.0 * 768;
  CHECK(flops_per_token(gpt2) == 6.0 * matrices + 12.0 * 12 * 768 * 256);

  ModelConfig llama;
  llama.layers = 2;
  llama.hidden = 64;
  llama.heads = 8;
  llama.kv_heads = 2;
  llama.ffn = 100;
  llama.vocab = 300;
  llama.seq_len = llama.max_positions = 32;
  // k and v have 2 of 8 heads; gate, up and down; an untied head.
  double const grouped = 2.0 * (2.0 * 64 * 64 + 2.0 * 64 * 16 + 3.0 * 64 * 100) + 300.0 * 64;
  CHECK(flops_per_token(llama) == 6.0 * grouped + 12.0 * 2 * 64 * 32);
}
