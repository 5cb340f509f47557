#include "copus/train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "copus/comm/vote.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/parallel/params.h"
#include "copus/state/initialize.h"
#include "copus/train/pipeline.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

// Micro-batches between two looks at `stop`; fewer where the windows would not make kParts parts.
constexpr std::int64_t kRound = 8, kParts = 16;

// Says how far it is: a live line on a terminal, a plain line every ten seconds elsewhere.
class EvalProgress {
 public:
  explicit EvalProgress(Log* log) : log_(log) {}
  void show(std::int64_t done, std::int64_t windows, std::int64_t seq_len) {
    if (log_ == nullptr) return;
    double const now = std::chrono::duration<double>(Clock::now() - start_).count();
    double const pause = log_->console_is_terminal() ? 0.2 : 10.0;
    if (now - shown_ < pause) return;
    shown_ = now;
    double const rate = static_cast<double>(done) / now;
    std::string const line =
        fmt::format("evaluating: {} of {} windows, {} tok/s, left {}", done, windows,
                    human_count(rate * static_cast<double>(seq_len)),
                    human_duration(static_cast<double>(windows - done) / rate));
    if (log_->console_is_terminal()) {
      log_->live(line);
    } else {
      log_->info(line);
    }
  }

 private:
  Log* log_;
  Clock::time_point start_ = Clock::now();
  double shown_ = 0.0;
};

}  // namespace

EvalRecord evaluate(Stage& stage, const Mesh& mesh, const EvalSet& data, std::int64_t micro,
                    std::int64_t seq_len, Log* log, const std::function<bool()>& stop) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(micro * seq_len)), targets(ids.size());
  auto const row = [&](std::vector<std::int32_t>& rows, std::int64_t i) {
    return std::span(rows).subspan(static_cast<std::size_t>(i * seq_len),
                                   static_cast<std::size_t>(seq_len));
  };
  EvalProgress progress(log);
  // Micro-batches are dealt to the data-parallel ranks in turn.
  std::int64_t const dp = mesh.layout().dp, here = mesh.coord().dp;
  std::int64_t const all = (data.windows() + micro - 1) / micro;
  std::int64_t done = 0;  // micro-batches of this rank
  auto const batch_of = [&](std::int64_t next) {
    std::int64_t const first = ((done + next) * dp + here) * micro;
    std::int64_t const count = std::min(micro, data.windows() - first);
    // The last micro-batch is filled up with rows that bear no loss.
    std::fill(ids.begin(), ids.end(), 0);
    std::fill(targets.begin(), targets.end(), -1);
    for (std::int64_t i = 0; i < count; ++i) data.window(first + i, row(ids, i), row(targets, i));
    if (first > 0) progress.show(first, data.windows(), seq_len);
    return MicroBatch{ids, targets, 0, 0};
  };
  EvalRecord record;
  std::int64_t const turns = (all + dp - 1) / dp;
  std::int64_t const round = std::clamp<std::int64_t>(turns / kParts, 1, kRound);
  for (; done < turns; done += round) {
    std::int64_t const mine = std::clamp<std::int64_t>((all - here + dp - 1) / dp - done, 0, round);
    double sums[2] = {run_forward_only(stage, mesh, mine, batch_of), stop && stop() ? 1.0 : 0.0};
    if (mesh.coord().tp != 0) sums[0] = 0.0;
    // all: the last stages' first tp ranks have the losses of their own windows; and all leave
    // together.
    mesh.all().all_reduce(std::span<double>(sums), ReduceOp::sum);
    if (sums[1] > 0.0) return {.stopped = true};
    record.parts.push_back(sums[0]);
  }
  double const loss_sum = std::accumulate(record.parts.begin(), record.parts.end(), 0.0);
  record.tokens = data.tokens();
  record.loss = loss_sum / static_cast<double>(std::max<std::int64_t>(1, record.tokens));
  return record;
}

EvalRecord evaluate_checkpoint(const std::string& directory, const ModelConfig& model,
                               const EvalSet& data, Communicator& world, Backend& backend,
                               Log* log) {
  StageSetup setup;
  setup.model = model;
  setup.layout.dp = world.size();
  setup.micro = std::clamp<std::int64_t>(2048 / model.seq_len, 1, data.windows());
  setup.use = StageUse::evaluate;
  Mesh const mesh(world, setup.layout, model.kv_heads);
  std::vector<Param> const table = parameter_table(model);
  FlatLayout const flat = flat_layout(model, setup.layout, 0, 0);
  Arena arena(backend,
              Arena::aligned(flat.numel * size_of(DType::f32)) + Stage::arena_bytes(setup, 0));
  TensorView const weights = arena.take(DType::f32, {flat.numel});
  Stage stage(setup, flat, mesh, backend, arena, weights, {});
  stage.prepare();
  std::vector<std::string> mistakes;
  try {
    HfModel const stored(directory, model, world.rank() == 0 ? Depth::contents : Depth::sizes);
    read_weights(table, flat, stored, backend, weights);
  } catch (const ConfigError& e) {
    mistakes = e.problems();
  }
  if (!agreed(world, mistakes)) throw ConfigError(std::vector<std::string>{});
  return evaluate(stage, mesh, data, setup.micro, model.seq_len, log, {});
}

}  // namespace copus
