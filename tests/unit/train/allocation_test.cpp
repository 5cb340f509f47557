// A step's tensors lie in the arena: nothing of a tensor's size is allocated while it runs.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "copus/train/trainer.h"
#include "train/made_up_tokens.h"

namespace {

// Smaller ones are lists of instructions and the like.
constexpr std::size_t kLarge = 16384;
thread_local int large_allocations = 0;

void* counted(std::size_t bytes) {
  if (bytes >= kLarge) ++large_allocations;
  if (void* const data = std::malloc(bytes > 0 ? bytes : 1)) return data;
  throw std::bad_alloc();
}

}  // namespace

// Of this whole test program: forms with an alignment go on to the library's.
void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
// std::stable_sort asks like this; the address sanitizer would find it freed by another's delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* data) noexcept {
  std::free(data);
}
void operator delete[](void* data) noexcept {
  std::free(data);
}
void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}
void operator delete[](void* data, std::size_t) noexcept {
  std::free(data);
}

namespace copus {

TEST_CASE("a step allocates nothing of a tensor's size, in fp32 and in bf16") {
  Config config;
  ModelConfig& model = config.model;
  model.family = Family::llama;
  model.layers = 2, model.hidden = 64, model.heads = 4, model.kv_heads = 2, model.ffn = 128;
  model.vocab = 101, model.seq_len = 64, model.max_positions = 64;
  config.batch.sequences = 8;
  config.train.tokens = 1 << 20;
  for (Precision const precision : {Precision::fp32, Precision::bf16}) {
    config.train.precision = precision;
    auto const world = make_single_communicator();
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, *world, Layout{}, 4, *backend);  // activations of 32 KiB and more
    trainer.draw_weights(1);
    SampleSource const tokens = made_up_tokens(model.vocab);
    trainer.step(tokens, 8);
    large_allocations = 0;
    std::vector<float> const counts(kLarge);  // the count counts
    CHECK(large_allocations == 1);
    for (int s = 0; s < 3; ++s) trainer.step(tokens, 8);
    CHECK(large_allocations == 1);
  }
}

}  // namespace copus
