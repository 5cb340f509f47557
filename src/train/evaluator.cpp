#include "copus/train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "copus/core/units.h"
#include "copus/parallel/params.h"
#include "copus/state/initialize.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

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

EvalRecord evaluate(Stage& stage, const EvalSet& data, std::int64_t micro, std::int64_t seq_len,
                    Log* log) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(micro * seq_len)), targets(ids.size());
  auto const row = [&](std::vector<std::int32_t>& rows, std::int64_t i) {
    return std::span(rows).subspan(static_cast<std::size_t>(i * seq_len),
                                   static_cast<std::size_t>(seq_len));
  };
  EvalProgress progress(log);
  double loss_sum = 0.0;
  for (std::int64_t first = 0; first < data.windows(); first += micro) {
    std::int64_t const count = std::min(micro, data.windows() - first);
    // The last micro-batch is filled up with rows that bear no loss.
    std::fill(ids.begin(), ids.end(), 0);
    std::fill(targets.begin(), targets.end(), -1);
    for (std::int64_t i = 0; i < count; ++i) data.window(first + i, row(ids, i), row(targets, i));
    loss_sum += stage.evaluate({ids, targets, 0, 0});
    progress.show(first + count, data.windows(), seq_len);
  }
  return {loss_sum / static_cast<double>(std::max<std::int64_t>(1, data.tokens())), data.tokens()};
}

EvalRecord evaluate_checkpoint(const std::string& directory, const ModelConfig& model,
                               const EvalSet& data, Backend& backend, Log& log) {
  Layout const layout;
  std::vector<Param> const table = parameter_table(model);
  FlatLayout const flat = flat_layout(model, layout, 0, 0);
  std::int64_t const micro = std::clamp<std::int64_t>(2048 / model.seq_len, 1, data.windows());
  Arena arena(backend, Arena::aligned(flat.numel * size_of(DType::f32)) +
                           Stage::arena_bytes(model, layout, micro, StageUse::evaluate));
  TensorView const weights = arena.take(DType::f32, {flat.numel});
  Stage stage(model, layout, flat, micro, 0, backend, arena, weights, {});
  read_weights(table, flat, HfModel(directory, model), backend, weights);
  return evaluate(stage, data, micro, model.seq_len, &log);
}

}  // namespace copus
