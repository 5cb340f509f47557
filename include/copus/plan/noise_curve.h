// The noise scale that a simulated run meets, as a function of the progress it has made.
//
// Progress is counted in useful tokens: tokens times what each is worth at its batch. Where a run
// stands on its way down the loss, and so how noisy its gradients are, follows from its progress,
// not from the tokens spent on it: policies of different batches are on the same curve.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "copus/plan/planner.h"

namespace copus {

// Useful tokens that one token of a step of `batch` sequences is worth at this noise scale (in
// sequences, uncalibrated): the objective's progress per token at adapt.calibration times it. It is
// at most 1 under plain and normalized; under sqrt_lr 1 is a token at batch_rule.reference_batch
// (0: batch.sequences) without noise.
double useful_per_token(const Config& config, std::int64_t batch, double critical_batch);

// `critical_batch` in sequences, uncalibrated, with the interval that the run's estimator gives it.
struct NoisePoint {
  double useful_tokens = 0.0;
  double critical_batch = 0.0, low = 0.0, high = 0.0;
  bool operator==(const NoisePoint&) const = default;
};

// start x (1 + useful tokens / tokens) ^ exponent
struct PowerLaw {
  double start = 0.0, tokens = 0.0, exponent = 0.0;
};

class NoiseCurve {
 public:
  // `error`: the estimator's interval reaches from the value / (1 + error) to (1 + error) x it.
  NoiseCurve(const PowerLaw& law, double error);
  // Ascending, at least one. Straight lines between them; before the first and after the last the
  // value stays.
  explicit NoiseCurve(std::vector<NoisePoint> points);

  NoisePoint at(double useful_tokens) const;
  // Where points end; none: a formula has no end.
  std::optional<double> end() const;

 private:
  std::optional<PowerLaw> law_;
  double error_ = 0.0;
  std::vector<NoisePoint> points_;
};

// "power:B0,TOKENS0,EXPONENT" or "points:TOKENS:B,TOKENS:B,...", B in sequences, tokens as counts
// ("10B"). Throws ConfigError with every mistake, `key` first.
NoiseCurve parse_noise_curve(const std::string& text, double error, const std::string& key);

// The warm readings of a run's metrics.jsonl, each at the useful tokens that its steps come to
// under `config`. Throws ConfigError, `name` and the line first, for what is no such file, or has
// no warm reading.
NoiseCurve recorded_noise_curve(const Config& config, const std::string& metrics,
                                const std::string& name);

}  // namespace copus
