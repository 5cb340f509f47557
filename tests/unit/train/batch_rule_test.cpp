#include "copus/train/batch_rule.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "copus/train/trainer.h"
#include "support/reference.h"
#include "support/single_rank.h"

using namespace copus;

TEST_CASE("the batch rules are functions of batch over reference batch alone") {
  OptimizerConfig optimizer;
  optimizer.lr = 1e-3, optimizer.beta1 = 0.9, optimizer.beta2 = 0.999, optimizer.weight_decay = 0.1;
  BatchRuleConfig rule;
  double const lr = 4e-4;  // the schedule's
  for (double kappa : {0.25, 1.0, 2.0, 16.0}) {
    StepScalars const none = scalars_for_batch(rule, optimizer, lr, kappa);
    CHECK((none.lr == lr && none.beta1 == 0.9 && none.beta2 == 0.999 && none.weight_decay == 0.1));
  }
  rule.lr = LrRule::sqrt;
  CHECK(scalars_for_batch(rule, optimizer, lr, 4.0).lr == Approx(8e-4));
  CHECK(scalars_for_batch(rule, optimizer, lr, 0.25).lr == Approx(2e-4));
  rule.lr = LrRule::linear;
  CHECK(scalars_for_batch(rule, optimizer, lr, 4.0).lr == Approx(1.6e-3));
  rule.beta = BetaRule::half_life;
  // The half-life in tokens: batch x ln 2 / -ln beta2.
  for (double kappa : {0.5, 2.0, 8.0}) {
    StepScalars const s = scalars_for_batch(rule, optimizer, lr, kappa);
    CHECK(kappa / -std::log(s.beta2) == Approx(1.0 / -std::log(0.999)));
    CHECK(s.beta1 == 0.9);
  }
  rule.weight_decay = DecayRule::timescale;
  for (LrRule of_lr : {LrRule::none, LrRule::sqrt, LrRule::linear}) {
    rule.lr = of_lr;
    for (double kappa : {0.5, 2.0, 8.0}) {
      // AdamW's timescale in tokens: batch / (lr decay).
      StepScalars const s = scalars_for_batch(rule, optimizer, lr, kappa);
      CHECK(kappa / (s.lr * s.weight_decay) == Approx(1.0 / (lr * 0.1)));
    }
  }
}

TEST_CASE("G5: a batch that changes keeps moments and counts, and corrects the bias exactly") {
  // By hand, for one weight: m and v with running products of the betas, whatever the batch does.
  test::Reference const reference("llama-tied");
  Config config = reference.config(1);
  config.optimizer.beta2 = 0.99, config.optimizer.clip = 0.0;
  config.batch.max = 16;
  config.batch_rule.lr = LrRule::sqrt;
  config.batch_rule.beta = BetaRule::half_life;
  auto const backend = make_cpu_backend(1);
  test::SingleRank rank;
  Trainer trainer(config, *rank.world, Layout{}, 1, *backend);
  trainer.read_weights(HfModel(reference.directory, config.model));
  SampleSource const samples = [&](std::int64_t index, std::span<std::int32_t> inputs,
                                   std::span<std::int32_t> targets) {
    reference.sample(index, inputs, targets);
  };
  double beta1_product = 1.0, beta2_product = 1.0;
  for (std::int64_t batch : {8, 8, 16, 4, 8}) {
    float const v_before = trainer.state().v.ptr<float>()[7];
    StepRecord const record = trainer.step(samples, batch);
    double const kappa = static_cast<double>(batch) / 8.0;
    beta1_product *= config.optimizer.beta1;
    beta2_product *= std::pow(0.99, kappa);
    CHECK(record.lr == Approx(config.optimizer.lr * std::sqrt(kappa)));
    CHECK(trainer.state().counters.reference_batch == 8);
    CHECK(trainer.state().counters.beta1_product == Approx(beta1_product));
    CHECK(trainer.state().counters.beta2_product == Approx(beta2_product));
    // Moments decay by this step's beta and are never reset: v keeps at least beta2 of itself.
    CHECK(trainer.state().v.ptr<float>()[7] >=
          static_cast<float>(std::pow(0.99, kappa)) * v_before * (1.0f - 1e-6f));
  }
}
