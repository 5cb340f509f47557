// Tells a parameter that one of the step's three norms counts twice, or not at all, from noise.
//
// An honest residual (LineFit) has mean 0; a wrong count gives it a mean, small beside its noise in
// one step. Over many steps the sum S of residuals, each divided by the root mean square of those
// before it, is held against the sum V of their squares. For residuals symmetric about 0, whatever
// their distribution and however it changes,
//   exp(lambda S - lambda^2 V / 2)
// is a supermartingale for every lambda; mixed over lambda ~ N(0, 1/rho) it is
//   sqrt(rho / (V + rho)) exp(S^2 / (2 (V + rho)))
// (de la Pena, Klass and Lai 2004), and exceeds 1/alpha at *any* step of an endless run with
// probability at most alpha. So the check may be read after every step.
#pragma once
#include <cstdint>

namespace copus {

struct DoubleCountCheck {
  // Of an honest run: the chance that it is ever flagged (in one layout).
  static constexpr double kFalseAlarmRate = 1e-3;

  std::int64_t seen = 0;
  double mean_square = 0.0;             // of the residuals, recent ones
  double sum = 0.0, sum_squares = 0.0;  // S and V
  double evidence = 0.0;                // the largest log of the mixture so far

  void add(double residual);
  bool flagged() const;
  bool operator==(const DoubleCountCheck&) const = default;
};

}  // namespace copus
