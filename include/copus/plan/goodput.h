// Useful tokens a second: speed times the progress a token makes at a batch.
// With phi the critical batch (the noise scale, in sequences) and B the batch, after McCandlish et
// al. 2018 (arXiv 1812.06162) and Pollux (OSDI 2021):
//   plain       phi / (B + phi)             progress per token at the best learning rate of SGD
//   sqrt_lr     phi / (B + phi) sqrt(B)     the same with a learning rate grown by sqrt(B)
//   normalized  sqrt(phi / (B + phi))       Adam's normalised step, to first order
#pragma once
#include <cstdint>
#include <optional>

#include "copus/core/config.h"

namespace copus {

// Relative to the smallest batches, but for sqrt_lr's sqrt(B). An infinite phi is legal: every
// batch is far below it.
double progress_per_token(Objective objective, double batch, double phi);

// Both batches are compared by the same objective; values of different objectives are not
// comparable.
double goodput(Objective objective, double tokens_per_second, double batch, double phi);

// The batch of greatest goodput when tokens_per_second is proportional to B / (t0 + t1 B), with
// x = t0 / t1.
double best_batch(Objective objective, double x, double phi);

// Speed and batch of a configuration.
struct Rate {
  double tokens_per_second = 0.0, batch = 0.0;
};

// The phi at which two configurations are worth the same; none when one is better for every phi.
// Above it the one with the greater batch wins.
std::optional<double> crossing(Objective objective, const Rate& a, const Rate& b);

}  // namespace copus
