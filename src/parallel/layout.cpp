#include "copus/parallel/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "copus/core/error.h"

namespace copus {
namespace {

// "2 or 4": the nearest values around `value`, within [1, limit], that `accepts`.
template <class Accepts>
std::string nearest(std::int64_t value, std::int64_t limit, Accepts accepts) {
  std::int64_t below = std::min(value - 1, limit), above = std::max<std::int64_t>(value + 1, 1);
  while (below >= 1 && !accepts(below)) --below;
  while (above <= limit && !accepts(above)) ++above;
  if (below < 1 && above > limit) return "none";
  if (below < 1) return fmt::format("{}", above);
  if (above > limit) return fmt::format("{}", below);
  return fmt::format("{} or {}", below, above);
}

// The nearest positive multiples of `step` around `value`.
std::string nearest_multiple(std::int64_t value, std::int64_t step) {
  std::int64_t const below = value / step * step, above = below + step;
  return below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
}

bool kv_heads_fit(const ModelConfig& model, std::int64_t tp) {
  return model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
}

void check_positive(const Layout& layout, std::vector<std::string>& reasons) {
  auto const at_least_one = [&](const char* key, int value) {
    if (value < 1) reasons.push_back(fmt::format("parallel.{} {} must be at least 1", key, value));
  };
  at_least_one("dp", layout.dp);
  at_least_one("tp", layout.tp);
  at_least_one("pp", layout.pp);
  at_least_one("virtual_stages", layout.virtual_stages);
  if (layout.zero != 0 && layout.zero != 1) {
    reasons.push_back(fmt::format("parallel.zero {} must be 0 or 1", layout.zero));
  }
}

void check_tensor(const ModelConfig& model, const Layout& layout,
                  std::vector<std::string>& reasons) {
  std::int64_t const tp = layout.tp;
  std::string const accepted =
      nearest(tp, std::min(model.heads, model.ffn), [&](std::int64_t candidate) {
        return model.heads % candidate == 0 && model.ffn % candidate == 0 &&
               kv_heads_fit(model, candidate);
      });
  auto const refuse = [&](const std::string& why) {
    reasons.push_back(fmt::format("parallel.tp {} {}; nearest that fits: {}", tp, why, accepted));
  };
  if (model.heads % tp != 0) refuse(fmt::format("does not divide model.heads {}", model.heads));
  if (model.ffn % tp != 0) refuse(fmt::format("does not divide model.ffn {}", model.ffn));
  if (!kv_heads_fit(model, tp)) {
    refuse(
        fmt::format("neither divides model.kv_heads {} nor is a multiple of it", model.kv_heads));
  }
  if (layout.sequence_parallel && model.seq_len % tp != 0) {
    reasons.push_back(
        fmt::format("model.seq_len {} is not a multiple of parallel.tp {}, which "
                    "parallel.sequence_parallel needs; nearest that fits: {}",
                    model.seq_len, tp, nearest_multiple(model.seq_len, tp)));
  }
}

void check_pipeline(const ModelConfig& model, const Layout& layout,
                    std::vector<std::string>& reasons) {
  if (layout.pp > model.layers) {
    reasons.push_back(fmt::format("parallel.pp {} exceeds model.layers {}; at most {} fits",
                                  layout.pp, model.layers, model.layers));
  } else if (layout.virtual_stages > 1) {
    auto const fits = [&](std::int64_t v) { return v == 1 || model.layers % (layout.pp * v) == 0; };
    if (fits(layout.virtual_stages)) return;
    reasons.push_back(fmt::format(
        "parallel.virtual_stages {} does not cut model.layers {} into equal chunks for parallel.pp "
        "{}; nearest that fits: {}",
        layout.virtual_stages, model.layers, layout.pp,
        nearest(layout.virtual_stages, model.layers, fits)));
  }
}

void check_batch(const Layout& layout, std::int64_t batch, std::int64_t micro,
                 std::vector<std::string>& reasons) {
  if (batch < 0) reasons.push_back(fmt::format("batch.sequences {} must be at least 1", batch));
  if (micro < 0) reasons.push_back(fmt::format("batch.micro {} must be at least 1", micro));
  if (batch <= 0 || micro < 0) return;
  // micro 0 (not known yet): some micro-batch must still fit, and 1 is the smallest.
  std::int64_t const share = layout.dp * std::max<std::int64_t>(micro, 1);
  bool const interleaved = layout.virtual_stages > 1;
  std::int64_t const step = interleaved ? share * layout.pp : share;
  if (batch % share != 0) {
    reasons.push_back(fmt::format(
        "batch.sequences {} is not a multiple of parallel.dp {} x batch.micro {}{}; nearest that "
        "fits: {}",
        batch, layout.dp, std::max<std::int64_t>(micro, 1),
        interleaved ? fmt::format(" x parallel.pp {}, which virtual stages need", layout.pp) : "",
        nearest_multiple(batch, step)));
  } else if (batch % step != 0) {
    reasons.push_back(fmt::format(
        "batch.sequences {} gives {} micro-batches, and parallel.virtual_stages {} needs a "
        "multiple of parallel.pp {}; nearest batch that fits: {}",
        batch, batch / share, layout.virtual_stages, layout.pp, nearest_multiple(batch, step)));
  }
}

}  // namespace

int rank_of(const Layout& layout, const Coord& coord) {
  return (coord.pp * layout.dp + coord.dp) * layout.tp + coord.tp;
}

Coord coord_of(const Layout& layout, int rank) {
  COPUS_CHECK(rank >= 0 && rank < layout.world(),
              fmt::format("rank {} has no place in {}", rank, to_string(layout)));
  int const outer = rank / layout.tp;
  return {outer % layout.dp, rank % layout.tp, outer / layout.dp};
}

LayerRange layers_of(std::int64_t layers, const Layout& layout, int pp, int chunk) {
  std::int64_t const stages = layout.pp;
  if (layout.virtual_stages > 1) {
    COPUS_CHECK(layers % (stages * layout.virtual_stages) == 0,
                "interleaved chunks are of equal size");
    std::int64_t const size = layers / (stages * layout.virtual_stages);
    std::int64_t const begin = (chunk * stages + pp) * size;
    return {begin, begin + size};
  }
  // `extra` stages get one layer more: the ones in the middle first, then stage 0, never the last,
  // whose head costs most.
  std::int64_t const base = layers / stages, extra = layers % stages;
  auto const has_extra = [&](std::int64_t stage) {
    if (stage == 0) return extra > std::max<std::int64_t>(stages - 2, 0);
    return stage < stages - 1 && stage <= extra;
  };
  LayerRange range;
  for (std::int64_t stage = 0; stage <= pp; ++stage) {
    range.begin = range.end;
    range.end = range.begin + base + (has_extra(stage) ? 1 : 0);
  }
  return range;
}

std::vector<std::string> illegal_reasons(const ModelConfig& model, const Layout& layout,
                                         std::int64_t batch, std::int64_t micro) {
  std::vector<std::string> reasons;
  check_positive(layout, reasons);
  if (!reasons.empty()) return reasons;  // the rest divides by these
  check_tensor(model, layout, reasons);
  check_pipeline(model, layout, reasons);
  check_batch(layout, batch, micro, reasons);
  return reasons;
}

std::string to_string(const Layout& layout) {
  std::string text = fmt::format("dp {} x tp {} x pp {}", layout.dp, layout.tp, layout.pp);
  if (layout.virtual_stages > 1) text += fmt::format(", virtual stages {}", layout.virtual_stages);
  if (layout.zero > 0) text += fmt::format(", zero {}", layout.zero);
  if (layout.sequence_parallel) text += ", sequence parallel";
  return text;
}

}  // namespace copus
