#include "copus/plan/live_costs.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

constexpr double kForget = 1.0 / 256;    // a step's share; long enough to remember another batch
constexpr double kLevelGain = 1.0 / 12;  // a step's share in the level: a change of pace is
                                         // followed within some thirty steps
constexpr double kSettled = 32.0;        // steps after which a shape's line is its own, and what it
                                         // is off by is the machine's pace
constexpr double kPull = 0.1;            // as far off as a single step is believed to be
constexpr double kShareForget = 1.0 / 64;  // the shared factors follow the present
constexpr double kPriorError = 0.15;       // of a prediction for a shape that has never run
constexpr double kPriorShapes = 2.0;       // measured shapes that the prior counts as
constexpr double kLeastError = 0.01;
constexpr double kLongest = 1.5;  // a step longer than this many times its line counts as that:
                                  // pauses of the machine are not its speed

// Numbers of micro-batches that differ by a tenth of their mean tell alpha from beta.
bool sees_slope(const LiveShape& s) {
  double const mean = s.m / s.weight, variance = s.mm / s.weight - mean * mean;
  return variance > 0.01 * mean * mean;
}

struct Line {
  StepLine line;
  bool split_known = false;
};

Line line_of(const LiveShape& s) {
  double const mean_t = s.t / s.weight, mean_m = s.m / s.weight;
  double beta = 0.0;
  if (s.beta_weight > 0.0) {
    beta = s.beta / s.beta_weight;
  } else if (sees_slope(s)) {
    beta = (s.mt / s.weight - mean_m * mean_t) / (s.mm / s.weight - mean_m * mean_m);
  }
  double const alpha = mean_t - beta * mean_m;
  // A slope that noise has made impossible is no slope.
  if (beta > 0.0 && alpha >= 0.0) return {{alpha, beta}, true};
  double const scale = mean_t / (s.predicted.alpha + s.predicted.beta * mean_m);
  return {{scale * s.predicted.alpha, scale * s.predicted.beta}, false};
}

// Measured over predicted, at the numbers of micro-batches that were run.
double scale_of(const LiveShape& s) {
  return s.t / (s.predicted.alpha * s.weight + s.predicted.beta * s.m);
}

LiveShape* find(std::vector<LiveShape>& shapes, const StepShape& shape) {
  for (LiveShape& s : shapes) {
    if (s.shape == shape) return &s;
  }
  return nullptr;
}

// Factors of alpha and beta that the measured shapes had over their predictions: those of the same
// layout where there are any, for what a layout costs beyond its prediction it costs with every
// micro-batch.
StepLine shared_factors(const LiveCosts& live, const Layout& layout) {
  bool const has_run = std::any_of(live.shapes.begin(), live.shapes.end(),
                                   [&](const LiveShape& s) { return s.shape.layout == layout; });
  double alpha = 0.0, beta = 0.0, alpha_weight = 0.0, beta_weight = 0.0;
  for (const LiveShape& s : live.shapes) {
    if (has_run && !(s.shape.layout == layout)) continue;
    StepLine const line = line_of(s).line;
    if (s.predicted.alpha > 0.0) {
      // A small alpha says little; a tenth or ten times is as far as one is believed.
      alpha += s.share * std::log(std::clamp(line.alpha / s.predicted.alpha, 0.1, 10.0));
      alpha_weight += s.share;
    }
    beta += s.share * std::log(line.beta / s.predicted.beta);
    beta_weight += s.share;
  }
  return {alpha_weight > 0.0 ? std::exp(alpha / alpha_weight) : 1.0,
          beta_weight > 0.0 ? std::exp(beta / beta_weight) : 1.0};
}

// Whether what a step of m micro-batches is off by is the machine's pace, not the line's error.
bool tells_pace(const LiveShape& s, double m) {
  double const mean = s.m / s.weight;
  return s.weight > kSettled && (std::abs(m - mean) <= 0.1 * mean || sees_slope(s));
}

void forget(LiveShape& s) {
  for (double* sum : {&s.weight, &s.m, &s.mm, &s.t, &s.mt, &s.beta_weight, &s.beta}) {
    *sum *= 1.0 - kForget;
  }
}

}  // namespace

void observe(LiveCosts& live, const StepShape& shape, const StepLine& predicted,
             std::int64_t micro_batches, double seconds, std::optional<double> beta) {
  for (LiveShape& s : live.shapes) s.share *= 1.0 - kShareForget;
  LiveShape* s = find(live.shapes, shape);
  if (s == nullptr) {
    live.shapes.push_back({.shape = shape, .predicted = predicted});
    s = &live.shapes.back();
  }
  s->predicted = predicted;
  double const m = static_cast<double>(micro_batches), pace = std::exp(live.level);
  double t = seconds / pace;
  if (s->weight > 0.0) {
    double const expected = line_of(*s).line.seconds(micro_batches);
    t = std::min(t, kLongest * expected);
    double const off = t / expected - 1.0;
    s->residual += std::max(1.0 / (s->weight + 1.0), 1.0 / 64) * (off * off - s->residual);
    if (tells_pace(*s, m)) {
      // Level and line move by the same number: were they to rest at different averages of skewed
      // steps, they would move against each other for ever.
      double const pull = std::clamp(off, -kPull, kPull);
      live.level += kLevelGain * pull;
      t = expected * (1.0 + pull);
    }
  }
  forget(*s);
  s->weight += 1.0;
  s->m += m;
  s->mm += m * m;
  s->t += t;
  s->mt += m * t;
  s->share += 1.0;
  if (beta) {
    s->beta_weight += 1.0;
    s->beta += std::min(*beta / pace, t / m);  // m of them fit into the step
  }
}

LiveCosts aged(LiveCosts live) {
  constexpr double kSteps = 8.0;
  // The pace was that hour's: from here on it is in the lines.
  double const pace = std::exp(live.level);
  live.level = 0.0;
  for (LiveShape& s : live.shapes) {
    for (double* sum : {&s.t, &s.mt, &s.beta}) *sum *= pace;
    double const keep = std::min(1.0, kSteps / std::max(s.weight, s.share));
    for (double* sum : {&s.weight, &s.m, &s.mm, &s.t, &s.mt, &s.beta_weight, &s.beta, &s.share}) {
      *sum *= keep;
    }
  }
  return live;
}

double unseen_error(const LiveCosts& live) {
  double mean = 0.0, count = 0.0, squares = 0.0;
  for (const LiveShape& s : live.shapes) {
    mean += std::log(scale_of(s));
    count += 1.0;
  }
  if (count > 0.0) mean /= count;
  for (const LiveShape& s : live.shapes) {
    double const off = std::log(scale_of(s)) - mean;
    squares += off * off;
  }
  return std::sqrt((kPriorShapes * kPriorError * kPriorError + squares) / (kPriorShapes + count));
}

LivePrice price(const LiveCosts& live, const StepShape& shape, const StepLine& predicted,
                std::int64_t micro_batches) {
  double const unseen = unseen_error(live), pace = std::exp(live.level);
  for (const LiveShape& s : live.shapes) {
    if (!(s.shape == shape)) continue;
    auto const [line, split_known] = line_of(s);
    LivePrice out{{pace * line.alpha, pace * line.beta}, 0.0, 0.0, true};
    double const steps = std::min(s.weight, 64.0);
    out.scale_error = std::max(kLeastError, std::sqrt(s.residual / steps));
    if (!split_known) {
      // alpha's part of the time, here and where it was measured, is off by what a prediction is.
      auto const part = [&line](double m) { return line.alpha / (line.alpha + line.beta * m); };
      out.split_error =
          unseen * std::abs(part(static_cast<double>(micro_batches)) - part(s.m / s.weight));
    }
    return out;
  }
  StepLine const factor = shared_factors(live, shape.layout);
  return {{pace * factor.alpha * predicted.alpha, pace * factor.beta * predicted.beta},
          unseen,
          0.0,
          false};
}

}  // namespace copus
