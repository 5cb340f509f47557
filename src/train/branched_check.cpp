#include "copus/train/branched_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "copus/comm/vote.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "train/stopwatch.h"

namespace copus {
namespace {

// What survives a step, in host memory, as this rank holds it.
class Snapshot {
 public:
  explicit Snapshot(Trainer& trainer) : trainer_(trainer), counters_(trainer.state().counters) {
    const TensorView* const live[] = {&trainer.state().master, &trainer.state().m,
                                      &trainer.state().v};
    for (std::size_t i = 0; i < 3; ++i) {
      if (!trainer.active()) continue;
      auto const numel = static_cast<std::size_t>(live[i]->numel());
      kept_[i] = std::make_unique_for_overwrite<float[]>(numel);
      trainer.backend().download(kept_[i].get(), *live[i]);
    }
  }
  static std::int64_t bytes_of(Trainer& trainer) {
    const TrainState& state = trainer.state();
    return trainer.active() ? state.master.bytes() + state.m.bytes() + state.v.bytes() : 0;
  }
  // The compute weights come back with the master: all ranks together.
  void restore() const {
    TrainState& state = trainer_.state();
    state.counters = counters_;
    const TensorView live[] = {state.master, state.m, state.v};
    for (std::size_t i = 0; i < 3; ++i) {
      if (trainer_.active()) trainer_.backend().upload(live[i], kept_[i].get());
    }
    trainer_.take_master();
    trainer_.backend().synchronize();
  }

 private:
  Trainer& trainer_;
  Counters counters_;
  std::unique_ptr<float[]> kept_[3];
};

// One check on its way.
class Branching {
 public:
  Branching(Trainer& trainer, const SampleSource& samples, const EvalSet& data,
            const CheckRequest& request)
      : trainer_(trainer), samples_(samples), data_(data), request_(request) {}

  bool stopped() const { return stopped_; }

  PartedLoss evaluate(const std::string& after) {
    show("evaluating " + after);
    EvalRecord const record = trainer_.evaluate(data_, nullptr, request_.stop);
    stopped_ = stopped_ || record.stopped;
    PartedLoss loss{record.loss, record.parts};
    auto const tokens = static_cast<double>(std::max<std::int64_t>(1, record.tokens));
    for (double& part : loss.parts) part /= tokens;
    return loss;
  }

  // Trains on the samples that come next.
  Branch train(std::int64_t batch) {
    Branch branch{.batch = batch};
    std::int64_t const steps = request_.samples / batch;
    while (branch.steps < steps && !stopped_ && !diverged_) {
      show(fmt::format("batch {}, step {} of {}", batch, branch.steps + 1, steps));
      StepFlags flags;
      flags.stop = request_.stop && request_.stop();
      StepRecord const record = trainer_.step(samples_, batch, flags);
      ++branch.steps;
      branch.lr = record.lr;
      stopped_ = record.stop_requested;
      diverged_ = !record.skip_reason.empty();
    }
    return branch;
  }

  Branch run(std::int64_t batch, const PartedLoss& from, PartedLoss& own) {
    diverged_ = false;
    Branch branch = train(batch);
    PartedLoss after = from;
    if (diverged_) {
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      after.mean = kNone;
      std::fill(after.parts.begin(), after.parts.end(), kNone);
    } else if (!stopped_) {
      after = evaluate(fmt::format("batch {}", batch));
    }
    bool const first = batch == request_.batches.front();
    if (first) own = after;
    if (stopped_ || !trainer_.active()) return branch;
    if (first) {
      measure_own(branch, from, after);
    } else {
      measure_other(branch, from, own, after);
    }
    return branch;
  }

 private:
  void show(const std::string& words) const {
    if (request_.show) request_.show(words);
  }

  Trainer& trainer_;
  const SampleSource& samples_;
  const EvalSet& data_;
  const CheckRequest& request_;
  bool stopped_ = false, diverged_ = false;
};

std::string room_problem(std::int64_t bytes, std::int64_t free) {
  if (free < 0 || bytes <= free) return "";
  return fmt::format("the state's copy takes {}, and {} are free",
                     human_bytes(static_cast<double>(bytes)),
                     human_bytes(static_cast<double>(free)));
}

}  // namespace

CheckRequest check_request(const Config& config, const Layout& layout, std::int64_t micro,
                           std::int64_t batch, std::int64_t samples_left) {
  constexpr std::int64_t kSteps = 16;  // of the largest batch, unless adapt.check_tokens says else
  CheckRequest request;
  request.batches = {batch};
  for (std::int64_t const larger : {2 * batch, 4 * batch}) {
    if (larger <= config.batch.max &&
        illegal_reasons(config.model, layout, larger, micro).empty()) {
      request.batches.push_back(larger);
    }
  }
  std::int64_t const length = config.model.seq_len, most = request.batches.back();
  std::int64_t const tokens = config.adapt.check_tokens;
  std::int64_t const steps = tokens > 0 ? (tokens + most * length - 1) / (most * length) : kSteps;
  request.samples = steps * most;
  if (request.batches.size() == 1) {
    request.refused =
        fmt::format("no larger batch than {} is to be tried: twice that is not within batch.max {}",
                    batch, config.batch.max);
  } else if (samples_left >= 0 && request.samples > samples_left) {
    request.refused = fmt::format("a branch takes {} samples, and data.epochs leaves {}",
                                  request.samples, samples_left);
  }
  return request;
}

CheckRun branched_check(Trainer& trainer, const SampleSource& samples, const EvalSet& data,
                        const CheckRequest& request) {
  for (std::int64_t const batch : request.batches) {
    COPUS_CHECK(request.samples % batch == 0, "a branch is whole steps");
  }
  CheckRun out;
  double seconds = 0.0;
  Stopwatch const watch(seconds);
  std::unique_ptr<Snapshot> snapshot;
  out.refused = first_problem(trainer.world(), problem_of([&] {
                                std::string const problem =
                                    room_problem(Snapshot::bytes_of(trainer), request.free_bytes);
                                if (problem.empty()) snapshot = std::make_unique<Snapshot>(trainer);
                                return problem;
                              }));
  if (!out.refused.empty()) return out;
  Branching branching(trainer, samples, data, request);
  PartedLoss const from = branching.evaluate("the present state");
  PartedLoss own;
  out.check.from_loss = from.mean;
  for (std::int64_t const batch : request.batches) {
    if (branching.stopped()) break;
    out.check.branches.push_back(branching.run(batch, from, own));
    snapshot->restore();
  }
  out.stopped = branching.stopped();
  out.seconds = watch.elapsed();
  return out;
}

}  // namespace copus
