#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "config_rules.h"
#include "copus/core/error.h"

namespace copus::detail {
namespace {

// What stands beside a preset or a checkpoint: nothing else has a say in its sizes.
bool may_accompany(const std::string& path, const std::string& origin) {
  return path == origin || path == "model.seq_len" || path == "model.dropout";
}

void refuse_sizes_beside(Draft& draft, const std::string& origin) {
  for (const std::string& path : draft.given)
    if (path.starts_with("model.") && !may_accompany(path, origin))
      draft.problems.push_back(
          fmt::format("{}: not together with {}; only model.seq_len and model.dropout may "
                      "accompany it",
                      path, origin));
}

void apply_preset(Draft& draft) {
  ModelConfig& model = draft.config.model;
  try {
    ModelConfig preset = model_preset(model.preset);
    if (model.seq_len > 0) preset.seq_len = model.seq_len;
    preset.dropout = model.dropout;
    model = preset;
  } catch (const ConfigError& error) {
    draft.problems.push_back(std::string("model.preset: ") + error.what());
  }
  model.preset.clear();
}

void require(Draft& draft, bool missing, const std::string& path, const std::string& takes) {
  if (missing && !draft.blamed(path))
    draft.problems.push_back(fmt::format("{}: missing; it takes {}", path, takes));
}

void fill_gpt2(Draft& draft) {
  ModelConfig& model = draft.config.model;
  if (!draft.has("model.ffn")) model.ffn = 4 * model.hidden;
  if (!draft.has("model.tie_embeddings")) model.tie_embeddings = true;
  if (draft.has("model.kv_heads") && model.kv_heads != model.heads && model.kv_heads > 0 &&
      model.heads > 0)
    draft.problems.push_back(fmt::format(
        "model.kv_heads: {} is not accepted for family gpt2, whose heads all have their own keys "
        "and values; it takes {} (model.heads), or leave it out",
        model.kv_heads, model.heads));
  for (const std::string& path : draft.given)
    if (path.starts_with("model.rope_"))
      draft.problems.push_back(path +
                               ": not accepted for family gpt2, which learns its positions; "
                               "leave it out");
}

void check_rope_scaling(Draft& draft) {
  if (!draft.has("model.rope_scaling.factor"))
    require(draft, true, "model.rope_scaling.factor", "a number from 1");
  if (draft.config.model.rope_scaling->kind != RopeKind::linear) return;
  for (const char* name : {"low_freq_factor", "high_freq_factor", "original_max_positions"}) {
    std::string const path = std::string("model.rope_scaling.") + name;
    if (draft.has(path))
      draft.problems.push_back(path +
                               ": not accepted for type linear, which takes a factor alone; leave "
                               "it out");
  }
}

void fill_sizes(Draft& draft) {
  ModelConfig& model = draft.config.model;
  bool const any = std::any_of(draft.given.begin(), draft.given.end(),
                               [](const std::string& path) { return path.starts_with("model."); });
  if (!any) {
    require(draft, true, "model", "a preset, a checkpoint (from), or its sizes");
    return;
  }
  if (model.is_gpt2()) fill_gpt2(draft);
  if (!draft.has("model.kv_heads")) model.kv_heads = model.heads;
  if (!draft.has("model.seq_len")) model.seq_len = model.max_positions;
  if (!draft.has("model.max_positions")) model.max_positions = model.seq_len;
  std::string const size = "a size from 1 up, or give model.preset or model.from";
  require(draft, model.layers == 0, "model.layers", size);
  require(draft, model.hidden == 0, "model.hidden", size);
  require(draft, model.heads == 0, "model.heads", size);
  require(draft, model.ffn == 0 && !model.is_gpt2(), "model.ffn", size);
  require(draft, model.vocab == 0, "model.vocab", size);
  require(draft, model.seq_len == 0, "model.seq_len", size);
  if (model.rope_scaling) check_rope_scaling(draft);
}

void fill_model(Draft& draft) {
  ModelConfig& model = draft.config.model;
  bool const from = draft.has("model.from"), preset = draft.has("model.preset");
  if (from && preset) {
    draft.problems.push_back("model.preset: not together with model.from; keep one of them");
  } else if (preset) {
    refuse_sizes_beside(draft, "model.preset");
    if (!model.preset.empty()) apply_preset(draft);
  } else if (from) {
    refuse_sizes_beside(draft, "model.from");
  } else {
    fill_sizes(draft);
  }
}

void fill_batch(Draft& draft, std::vector<std::string>& warnings) {
  BatchConfig& batch = draft.config.batch;
  if (batch.schedule.empty()) {
    require(draft, batch.sequences == 0, "batch.sequences",
            "a count of sequences from 1 up, or give batch.schedule");
    return;
  }
  std::int64_t const first = batch.schedule.front().sequences;
  if (draft.has("batch.sequences") && batch.sequences != first)
    warnings.push_back(
        fmt::format("batch.sequences: {} is not used, because batch.schedule \"{}\" starts with {}",
                    batch.sequences, to_string(batch.schedule), first));
  batch.sequences = first;
}

// A warm-up (and a final decay) that the run has no room for is cut, and said to be.
void fit_warmup(Config& config, std::vector<std::string>& warnings) {
  ScheduleConfig& schedule = config.schedule;
  std::int64_t const decay = schedule.kind == ScheduleKind::wsd ? schedule.decay_tokens : 0;
  std::int64_t const room = config.train.tokens - decay;
  if (config.train.tokens == 0 || room < 0 || schedule.warmup_tokens <= room) return;
  warnings.push_back(fmt::format(
      "schedule.warmup_tokens: {} is longer than the {} tokens there are (train.tokens {}{}); "
      "shortened to {}",
      schedule.warmup_tokens, room, config.train.tokens,
      decay > 0 ? fmt::format(" less schedule.decay_tokens {}", decay) : "", room));
  schedule.warmup_tokens = room;
}

}  // namespace

void resolve(Draft& draft, const std::string& name, ConfigUse use,
             std::vector<std::string>& warnings) {
  Config& config = draft.config;
  fill_model(draft);
  fill_batch(draft, warnings);
  if (use == ConfigUse::train) {
    require(draft, config.train.tokens == 0, "train.tokens", "a count of tokens from 1 up");
    require(draft, config.data.train.empty(), "data.train",
            "a directory, glob or shard, or a list of them");
  }
  fit_warmup(config, warnings);
  if (config.schedule.kind == ScheduleKind::constant && config.schedule.decay_tokens > 0)
    warnings.push_back(
        fmt::format("schedule.decay_tokens: {} is not used, because schedule.kind is constant",
                    config.schedule.decay_tokens));
  if (config.run_dir.empty()) {
    std::string const stem = std::filesystem::path(name).stem().string();
    config.run_dir = "runs/" + (stem.empty() ? "run" : stem);
  }
}

}  // namespace copus::detail
