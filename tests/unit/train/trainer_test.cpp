#include "copus/train/trainer.h"
#include "copus/train/resolve.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "support/single_rank.h"

using namespace copus;

namespace {

ModelConfig small(Family family) {
  ModelConfig m;
  m.family = family;
  m.layers = 2;
  m.hidden = 32;
  m.heads = 4;
  m.kv_heads = family == Family::gpt2 ? 4 : 2;
  m.ffn = family == Family::gpt2 ? 128 : 64;
  m.vocab = 61;
  m.seq_len = m.max_positions = 16;
  m.tie_embeddings = family != Family::llama;
  return m;
}

Config config_of(Family family) {
  Config c;
  c.model = small(family);
  c.batch.sequences = 8;
  c.optimizer.lr = 1e-2;
  c.train.tokens = 100000;
  return c;
}

void tokens(std::int64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
  RngStream const stream = stream_of({3, RngPurpose::test, 0, 0});
  auto const token = [&](std::size_t t) {
    return static_cast<std::int32_t>(
        random_bits(stream, static_cast<std::uint64_t>(index) * 100 + t) % 61);
  };
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    inputs[t] = token(t);
    targets[t] = token(t + 1);
  }
}

std::vector<float> bits_of(Trainer& trainer) {
  std::vector<float> all;
  for (const TensorView& view : {trainer.state().master, trainer.state().m, trainer.state().v}) {
    auto const part = view.span<float>();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const Family kFamilies[] = {Family::llama, Family::qwen2, Family::gpt2};

}  // namespace

TEST_CASE(
    "a step that is not finite leaves every weight and moment bit untouched, and the data moves "
    "on") {
  for (Family family : kFamilies) {
    for (float poison :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto const backend = make_cpu_backend(1);
      test::SingleRank trainer_rank;
      Trainer trainer(config_of(family), *trainer_rank.world, Layout{}, 4, *backend);
      trainer.draw_weights(1);
      REQUIRE(trainer.step(tokens, 8).skip_reason.empty());
      trainer.state().master.ptr<float>()[5] = poison;  // in the embedding row of token 0
      trainer.state().master.ptr<float>()[20 * 32 + 5] = poison;
      std::vector<float> const before = bits_of(trainer);
      Counters const counters = trainer.state().counters;
      StepRecord record = trainer.step(tokens, 8);
      CHECK(record.skip_reason.find("not finite") != std::string::npos);
      CHECK(same_bits(bits_of(trainer), before));
      CHECK(trainer.state().counters.updates == counters.updates);
      CHECK(trainer.state().counters.beta1_product == counters.beta1_product);
      CHECK(trainer.state().counters.samples == counters.samples + 8);
      CHECK(trainer.state().counters.skipped_in_a_row == 1);
      trainer.step(tokens, 8);
      CHECK(trainer.state().counters.skipped_in_a_row == 2);
    }
  }
}

TEST_CASE(
    "a run is the same again, bit for bit, with the same seed and another with another seed") {
  auto const run = [](std::uint64_t seed) {
    auto const backend = make_cpu_backend(2);
    Config config = config_of(Family::llama);
    config.train.seed = seed;
    config.model.dropout = 0.1;
    test::SingleRank trainer_rank;
    Trainer trainer(config, *trainer_rank.world, Layout{}, 4, *backend);
    trainer.draw_weights(seed);
    for (int i = 0; i < 3; ++i) trainer.step(tokens, 8);
    return bits_of(trainer);
  };
  std::vector<float> const first = run(1);
  CHECK(same_bits(first, run(1)));
  CHECK_FALSE(same_bits(first, run(2)));
}

TEST_CASE(
    "E21: with dropout the micro-batch changes neither loss nor gradient norm beyond rounding") {
  for (Family family : kFamilies) {
    std::vector<StepRecord> records;
    for (std::int64_t micro : {1, 2, 8}) {
      auto const backend = make_cpu_backend(2);
      Config config = config_of(family);
      config.model.dropout = 0.2;
      test::SingleRank trainer_rank;
      Trainer trainer(config, *trainer_rank.world, Layout{}, micro, *backend);
      trainer.draw_weights(1);
      records.push_back(trainer.step(tokens, 8));
    }
    // Each sum has at most 8 * 16 tokens of fp32 losses; gradients accumulate in fp32 in another
    // order.
    CHECK(records[1].loss == Approx(records[0].loss).epsilon(1e-6));
    CHECK(records[2].loss == Approx(records[0].loss).epsilon(1e-6));
    CHECK(records[1].grad_norm == Approx(records[0].grad_norm).epsilon(1e-5));
    CHECK(records[2].grad_norm == Approx(records[0].grad_norm).epsilon(1e-5));
  }
}

TEST_CASE(
    "dropout changes the training loss, differs by step, and is off when evaluating is asked for") {
  auto const backend = make_cpu_backend(1);
  Config config = config_of(Family::gpt2);
  config.optimizer.lr = 0.0;
  auto const same_sample = [](std::int64_t, std::span<std::int32_t> inputs,
                              std::span<std::int32_t> targets) { tokens(0, inputs, targets); };
  test::SingleRank plain_rank;
  Trainer plain(config, *plain_rank.world, Layout{}, 1, *backend);
  config.model.dropout = 0.3;
  test::SingleRank dropping_rank;
  Trainer dropping(config, *dropping_rank.world, Layout{}, 1, *backend);
  plain.draw_weights(1);
  dropping.draw_weights(1);
  double const without = plain.step(same_sample, 1).loss;
  double const first = dropping.step(same_sample, 1).loss,
               second = dropping.step(same_sample, 1).loss;
  CHECK(first != without);
  CHECK(second != first);
}

TEST_CASE(
    "E7: the gradient norm is that of the mean gradient before clipping, and clipping does not "
    "change it") {
  double norms[2];
  int i = 0;
  for (double clip : {0.0, 1e-3}) {
    auto const backend = make_cpu_backend(1);
    Config config = config_of(Family::qwen2);
    config.optimizer.clip = clip;
    test::SingleRank trainer_rank;
    Trainer trainer(config, *trainer_rank.world, Layout{}, 8, *backend);
    trainer.draw_weights(1);
    norms[i++] = trainer.step(tokens, 8).grad_norm;
  }
  CHECK(norms[0] == norms[1]);
  CHECK(norms[0] > 1e-3);
}

TEST_CASE("E19: a norm gain of exactly one moves in the first step at a small learning rate") {
  auto const backend = make_cpu_backend(1);
  Config config = config_of(Family::llama);
  config.optimizer.lr = 6e-4;
  test::SingleRank trainer_rank;
  Trainer trainer(config, *trainer_rank.world, Layout{}, 8, *backend);
  trainer.draw_weights(1);
  const LocalParam* gain = trainer.flat().find(trainer.table(), Role::norm1, 0);
  REQUIRE(gain != nullptr);
  auto const gains = trainer.state().master.slice(0, gain->offset, gain->numel()).span<float>();
  for (float g : gains) REQUIRE(g == 1.0f);
  trainer.step(tokens, 8);
  for (float g : gains)
    CHECK(std::abs(g - 1.0f) == Approx(6e-4).epsilon(1e-2));  // Adam's first step is lr
}

TEST_CASE("weight decay shrinks matrices and embeddings and leaves gains and biases alone") {
  auto const backend = make_cpu_backend(1);
  Config config = config_of(Family::gpt2);
  config.optimizer.weight_decay = 0.5;
  config.optimizer.lr = 1e-3;
  test::SingleRank decayed_rank;
  Trainer decayed(config, *decayed_rank.world, Layout{}, 8, *backend);
  config.optimizer.weight_decay = 0.0;
  test::SingleRank plain_rank;
  Trainer plain(config, *plain_rank.world, Layout{}, 8, *backend);
  decayed.draw_weights(1);
  plain.draw_weights(1);
  std::vector<float> const initial(decayed.state().master.span<float>().begin(),
                                   decayed.state().master.span<float>().end());
  decayed.step(tokens, 8);
  plain.step(tokens, 8);
  for (const LocalParam& local : decayed.flat().params) {
    const Param& param = decayed.table()[static_cast<std::size_t>(local.param)];
    CAPTURE(param.name);
    for (std::int64_t i = local.offset; i < local.offset + local.numel(); ++i) {
      float const difference =
          decayed.state().master.ptr<float>()[i] - plain.state().master.ptr<float>()[i];
      float const expected =
          param.dims >= 2 ? -1e-3f * 0.5f * initial[static_cast<std::size_t>(i)] : 0.0f;
      // Two roundings of a weight of size w: w * eps.
      REQUIRE(std::abs(difference - expected) <=
              2.0f * std::numeric_limits<float>::epsilon() *
                      std::abs(initial[static_cast<std::size_t>(i)]) +
                  1e-9f);
    }
  }
}

TEST_CASE("E3: initial weights are a function of the seed and the global element alone") {
  auto const backend = make_cpu_backend(2);
  Config const config = config_of(Family::llama);
  test::SingleRank a_rank, b_rank;
  Trainer a(config, *a_rank.world, Layout{}, 1, *backend),
      b(config, *b_rank.world, Layout{}, 8, *backend);
  a.draw_weights(7);
  b.draw_weights(7);
  CHECK(a.weight_hash() == b.weight_hash());
  b.draw_weights(8);
  CHECK(a.weight_hash() != b.weight_hash());
  b.draw_weights(7);
  b.state().master.ptr<float>()[100] = std::nextafter(b.state().master.ptr<float>()[100], 1.0f);
  CHECK(a.weight_hash() != b.weight_hash());
}

TEST_CASE("the automatic micro-batch divides every batch of the schedule") {
  Config config = config_of(Family::llama);
  config.batch.micro.reset();
  config.batch.sequences = 12;
  CHECK(choose_micro(config, Layout{}) == 12);
  config.batch.schedule = {{0, 12}, {1000, 18}};
  CHECK(choose_micro(config, Layout{}) == 6);
  config.model.seq_len = 2048;
  CHECK(choose_micro(config, Layout{}) == 2);
  config.model.seq_len = 8192;
  CHECK(choose_micro(config, Layout{}) == 1);
}
