#include "copus/train/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/comm/mesh.h"
#include "copus/core/error.h"
#include "copus/model/stage.h"
#include "copus/parallel/params.h"
#include "copus/state/hf.h"
#include "copus/state/initialize.h"

namespace copus {
namespace {

StageSetup setup_for(ModelConfig model, std::int64_t context) {
  StageSetup setup;
  setup.model = std::move(model);
  setup.model.seq_len = context;
  setup.use = StageUse::evaluate;
  return setup;
}

// The ids drawn among, ascending.
std::vector<std::size_t> candidates(std::span<const float> logits, std::int64_t top_k) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  auto const count = static_cast<std::size_t>(top_k);
  if (top_k == 0 || count >= ids.size()) return ids;
  std::nth_element(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count) - 1, ids.end(),
                   [&](std::size_t a, std::size_t b) {
                     return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                   });
  ids.resize(count);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::int32_t pick_token(std::span<const float> logits, const SampleOptions& options, double u) {
  COPUS_CHECK(!logits.empty() && options.temperature >= 0 && options.top_k >= 0,
              "a token is drawn from something");
  auto const likeliest = std::max_element(logits.begin(), logits.end());  // the first of equals
  if (options.temperature == 0.0) return static_cast<std::int32_t>(likeliest - logits.begin());
  std::vector<std::size_t> const ids = candidates(logits, options.top_k);
  std::vector<double> ends;  // of each id's stretch, not yet divided by the sum
  double sum = 0.0;
  for (std::size_t const id : ids) {
    double const above = static_cast<double>(logits[id]) - static_cast<double>(*likeliest);
    ends.push_back(sum += std::exp(above / options.temperature));
  }
  auto const found = std::upper_bound(ends.begin(), ends.end() - 1, u * sum);
  return static_cast<std::int32_t>(ids[static_cast<std::size_t>(found - ends.begin())]);
}

struct Generator::State {
  StageSetup setup;
  std::unique_ptr<Communicator> world = make_single_communicator();
  Mesh mesh;
  FlatLayout flat;
  Arena arena;
  TensorView weights;
  Stage stage;
  std::vector<std::int32_t> ids, targets;  // (T)
  std::vector<float> logits;               // (V)

  State(const ModelConfig& model, std::int64_t context, Backend& backend)
      : setup(setup_for(model, context)),
        mesh(*world, setup.layout, model.kv_heads),
        flat(flat_layout(setup.model, setup.layout, 0, 0)),
        arena(backend,
              Arena::aligned(flat.numel * size_of(DType::f32)) + Stage::arena_bytes(setup, 0)),
        weights(arena.take(DType::f32, {flat.numel})),
        stage(setup, flat, mesh, backend, arena, weights, {}),
        ids(static_cast<std::size_t>(context)),
        targets(ids.size(), -1),
        logits(static_cast<std::size_t>(model.vocab)) {
    stage.prepare();
  }
};

Generator::Generator(const std::string& directory, const ModelConfig& model, std::int64_t context,
                     Backend& backend)
    : state_(std::make_unique<State>(model, context, backend)) {
  read_weights(parameter_table(model), state_->flat, HfModel(directory, model), backend,
               state_->weights);
}

Generator::~Generator() = default;

std::span<const float> Generator::logits_after(std::span<const std::int32_t> text) {
  COPUS_CHECK(!text.empty(), "something precedes the next token");
  State& s = *state_;
  std::span<const std::int32_t> const seen = text.last(std::min(text.size(), s.ids.size()));
  // Nothing looks ahead: what fills the rest of the context changes no row before it.
  std::fill(s.ids.begin(), s.ids.end(), 0);
  std::copy(seen.begin(), seen.end(), s.ids.begin());
  s.stage.evaluate(0, 0, MicroBatch{s.ids, s.targets, 0, 0});
  s.stage.logits(static_cast<std::int64_t>(seen.size()) - 1, s.logits);
  for (float const logit : s.logits) {
    if (!std::isfinite(logit)) throw IoError("the model's logits are not finite: no text follows");
  }
  return s.logits;
}

}  // namespace copus
