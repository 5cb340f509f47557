#include <limits>

#include "config_keys.h"
#include "copus/core/config_io.h"

namespace copus::detail {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Interval kPositive{0.0, kInfinity, true, false};
constexpr Interval kNotNegative{0.0, kInfinity, false, false};
constexpr Interval kFraction{0.0, 1.0, false, false};
constexpr Interval kBelowOne{0.0, 1.0, false, true};
constexpr Interval kInside{0.0, 1.0, true, true};
constexpr bool kDerived = true;

// One field: of the owner itself, or of one of its sections.
template <class Owner, class T>
auto at(T Owner::*field) {
  return [field](auto& owner) -> auto& {
    return owner.*field;
  };
}
template <class Section, class T>
auto at(Section Config::*section, T Section::*field) {
  return [ section, field ](auto& config) -> auto& {
    return config.*section.*field;
  };
}

template <class Section, class T>
Key<Config> row(const std::string& path, Section Config::*section, T Section::*field,
                Codec<T> codec, bool derived = false) {
  return key_row<Config>(path, at(section, field), codec, derived);
}

void append(Table<Config>& table, const Table<Config>& rows) {
  table.insert(table.end(), rows.begin(), rows.end());
}

// The fields of an optional struct: the first one given makes it exist. Those of llama3 alone are
// not written for another kind.
template <class T>
Key<Config> rope_row(const std::string& name, T RopeScaling::*field, Codec<T> codec,
                     bool llama3_alone = false) {
  auto mutable_field = [field](Config& config) -> T& {
    if (!config.model.rope_scaling) config.model.rope_scaling.emplace();
    return (*config.model.rope_scaling).*field;
  };
  Key<Config> key;
  key.path = "model.rope_scaling." + name;
  key.accepts = codec.accepts;
  key.derived = true;
  key.is_text = codec.is_text;
  key.read = [mutable_field, codec](Config& config, const Json& value, const std::string& path,
                                    Problems& problems) {
    if (!codec.read(value, mutable_field(config), path, problems))
      problems.push_back(
          fmt::format("{}: {} is not accepted; it takes {}", path, shown(value), codec.accepts));
  };
  key.write = [field, codec, llama3_alone](const Config& config) {
    const std::optional<RopeScaling>& scaling = config.model.rope_scaling;
    bool const absent = !scaling || (llama3_alone && scaling->kind != RopeKind::llama3);
    return absent ? Json() : codec.write((*scaling).*field);
  };
  return key;
}

Table<Config> model_rows() {
  auto const sized = [](const std::string& path, std::int64_t ModelConfig::*field,
                        const std::string& what, std::int64_t lowest = 1) {
    return row(path, &Config::model, field, size(lowest, what), kDerived);
  };
  return {
      row("model.preset", &Config::model, &ModelConfig::preset,
          text(fmt::format("one of {}", fmt::join(model_preset_names(), ", "))), kDerived),
      row("model.from", &Config::model, &ModelConfig::from,
          text("a checkpoint or Hugging Face directory"), kDerived),
      row("model.family", &Config::model, &ModelConfig::family, choice<Family>()),
      sized("model.layers", &ModelConfig::layers, "a count of layers"),
      sized("model.hidden", &ModelConfig::hidden, "a width"),
      sized("model.heads", &ModelConfig::heads, "a count of heads"),
      sized("model.kv_heads", &ModelConfig::kv_heads, "a count of heads"),
      sized("model.ffn", &ModelConfig::ffn, "a width"),
      sized("model.vocab", &ModelConfig::vocab, "a count of token ids", 2),
      sized("model.seq_len", &ModelConfig::seq_len, "a count of tokens"),
      sized("model.max_positions", &ModelConfig::max_positions, "a count of positions"),
      row("model.tie_embeddings", &Config::model, &ModelConfig::tie_embeddings, flag(), kDerived),
      row("model.rope_theta", &Config::model, &ModelConfig::rope_theta, real(kPositive)),
      rope_row("type", &RopeScaling::kind, choice<RopeKind>()),
      rope_row("factor", &RopeScaling::factor, real({1.0, kInfinity, false, false})),
      rope_row("low_freq_factor", &RopeScaling::low_freq_factor, real(kPositive), true),
      rope_row("high_freq_factor", &RopeScaling::high_freq_factor, real(kPositive), true),
      rope_row("original_max_positions", &RopeScaling::original_max_positions,
               size(1, "a count of positions"), true),
      row("model.norm_eps", &Config::model, &ModelConfig::norm_eps, real(kPositive)),
      row("model.dropout", &Config::model, &ModelConfig::dropout, real(kBelowOne)),
  };
}

Table<Config> data_and_batch_rows() {
  return {
      row("data.train", &Config::data, &DataConfig::train, data_sources(), kDerived),
      row("data.val", &Config::data, &DataConfig::val, data_sources()),
      row("data.epochs", &Config::data, &DataConfig::epochs,
          or_word(count(1, "a count of passes"), "unlimited")),
      row("data.shuffle", &Config::data, &DataConfig::shuffle, flag()),
      row("batch.sequences", &Config::batch, &BatchConfig::sequences,
          size(1, "a count of sequences"), kDerived),
      row("batch.micro", &Config::batch, &BatchConfig::micro,
          or_word(size(1, "a count of sequences"), "auto")),
      row("batch.min", &Config::batch, &BatchConfig::min, size(0, "a count of sequences")),
      row("batch.max", &Config::batch, &BatchConfig::max, size(0, "a count of sequences")),
      row("batch.schedule", &Config::batch, &BatchConfig::schedule, batch_schedule()),
  };
}

Table<Config> learning_rows() {
  auto const adam = [](const std::string& path, double OptimizerConfig::*field,
                       const Interval& range) {
    return row(path, &Config::optimizer, field, real(range));
  };
  return {
      row("optimizer.name", &Config::optimizer, &OptimizerConfig::name, word({"adamw"})),
      adam("optimizer.lr", &OptimizerConfig::lr, kNotNegative),
      adam("optimizer.beta1", &OptimizerConfig::beta1, kBelowOne),
      adam("optimizer.beta2", &OptimizerConfig::beta2, kBelowOne),
      adam("optimizer.eps", &OptimizerConfig::eps, kPositive),
      adam("optimizer.weight_decay", &OptimizerConfig::weight_decay, kNotNegative),
      adam("optimizer.clip", &OptimizerConfig::clip, kNotNegative),
      row("schedule.kind", &Config::schedule, &ScheduleConfig::kind, choice<ScheduleKind>()),
      row("schedule.warmup_tokens", &Config::schedule, &ScheduleConfig::warmup_tokens,
          count(0, "a count of tokens")),
      row("schedule.decay_tokens", &Config::schedule, &ScheduleConfig::decay_tokens,
          count(0, "a count of tokens")),
      row("schedule.min_lr_ratio", &Config::schedule, &ScheduleConfig::min_lr_ratio,
          real(kFraction)),
      row("batch_rule.lr", &Config::batch_rule, &BatchRuleConfig::lr, choice<LrRule>()),
      row("batch_rule.beta", &Config::batch_rule, &BatchRuleConfig::beta, choice<BetaRule>()),
      row("batch_rule.weight_decay", &Config::batch_rule, &BatchRuleConfig::weight_decay,
          choice<DecayRule>()),
      row("batch_rule.reference_batch", &Config::batch_rule, &BatchRuleConfig::reference_batch,
          size(0, "a count of sequences")),
  };
}

Table<Config> train_rows() {
  auto const tokens = [](const std::string& path, std::int64_t TrainConfig::*field) {
    return row(path, &Config::train, field, count(0, "a count of tokens"));
  };
  Key<Config> budget = tokens("train.tokens", &TrainConfig::tokens);
  budget.derived = true;
  return {
      budget,
      row("train.seed", &Config::train, &TrainConfig::seed, seed_number()),
      row("train.precision", &Config::train, &TrainConfig::precision, choice<Precision>()),
      row("train.emulate_bf16", &Config::train, &TrainConfig::emulate_bf16, flag()),
      tokens("train.eval_every_tokens", &TrainConfig::eval_every_tokens),
      tokens("train.eval_tokens", &TrainConfig::eval_tokens),
      row("train.deterministic", &Config::train, &TrainConfig::deterministic, flag()),
      row("train.max_skipped_steps", &Config::train, &TrainConfig::max_skipped_steps,
          count(1, "a count of steps")),
  };
}

Table<Config> parallel_rows() {
  auto const ranks = [](const std::string& path, std::optional<int> ParallelConfig::*field,
                        const std::string& what, int lowest, int highest) {
    return row(path, &Config::parallel, field, or_word(small_whole(lowest, highest, what), "auto"));
  };
  return {
      ranks("parallel.dp", &ParallelConfig::dp, "a count of ranks", 1, kMostRanks),
      ranks("parallel.tp", &ParallelConfig::tp, "a count of ranks", 1, kMostRanks),
      ranks("parallel.pp", &ParallelConfig::pp, "a count of ranks", 1, kMostRanks),
      ranks("parallel.virtual_stages", &ParallelConfig::virtual_stages,
            "a count of chunks a pipeline rank", 1, kMostRanks),
      ranks("parallel.zero", &ParallelConfig::zero, "a ZeRO stage", 0, 1),
      row("parallel.sequence_parallel", &Config::parallel, &ParallelConfig::sequence_parallel,
          or_word(flag(), "auto")),
      row("parallel.recompute", &Config::parallel, &ParallelConfig::recompute,
          or_word(choice<Recompute>(), "auto")),
  };
}

Table<Config> adaptation_rows() {
  auto const steps = [](const std::string& path, std::int64_t AdaptConfig::*field,
                        std::int64_t lowest, const std::string& what) {
    return row(path, &Config::adapt, field, count(lowest, what));
  };
  return {
      row("gns.every_steps", &Config::gns, &GnsConfig::every_steps, count(1, "a count of steps")),
      row("gns.half_life_tokens", &Config::gns, &GnsConfig::half_life_tokens,
          count(0, "a count of tokens")),
      row("gns.confidence", &Config::gns, &GnsConfig::confidence, real(kInside)),
      row("adapt.mode", &Config::adapt, &AdaptConfig::mode, choice<AdaptMode>()),
      steps("adapt.interval_steps", &AdaptConfig::interval_steps, 1, "a count of steps"),
      row("adapt.objective", &Config::adapt, &AdaptConfig::objective, choice<Objective>()),
      row("adapt.calibration", &Config::adapt, &AdaptConfig::calibration, real(kPositive)),
      row("adapt.margin", &Config::adapt, &AdaptConfig::margin, real(kNotNegative)),
      steps("adapt.horizon_tokens", &AdaptConfig::horizon_tokens, 0, "a count of tokens"),
      steps("adapt.min_dwell_steps", &AdaptConfig::min_dwell_steps, 0, "a count of steps"),
      steps("adapt.check_every_tokens", &AdaptConfig::check_every_tokens, 0, "a count of tokens"),
      steps("adapt.check_tokens", &AdaptConfig::check_tokens, 0, "a count of tokens"),
      row("adapt.script", &Config::adapt, &AdaptConfig::script, script()),
  };
}

Table<Config> cluster_rows() {
  return {
      row("cluster.kernels.attention", &Config::cluster, &ClusterConfig::attention_kernel,
          word({"flash", "flash1", "fused", "unfused"})),
      row("cluster.kernels.norm", &Config::cluster, &ClusterConfig::norm_kernel,
          word({"fused", "plain"})),
      row("cluster.hardware", &Config::cluster, &ClusterConfig::hardware,
          text("a hardware preset (h100-sxm, ...), a profile file, or \"measure\"")),
      row("cluster.nodes", &Config::cluster, &ClusterConfig::nodes, size(1, "a count of nodes")),
      row("cluster.gpus_per_node", &Config::cluster, &ClusterConfig::gpus_per_node,
          size(1, "a count of GPUs")),
      row("cluster.internode_gbps_per_gpu", &Config::cluster,
          &ClusterConfig::internode_gbps_per_gpu, real(kPositive)),
  };
}

Table<Config> output_rows() {
  return {
      row("checkpoint.every_tokens", &Config::checkpoint, &CheckpointConfig::every_tokens,
          count(0, "a count of tokens")),
      row("checkpoint.keep", &Config::checkpoint, &CheckpointConfig::keep,
          count(1, "a count of checkpoints")),
      row("checkpoint.async", &Config::checkpoint, &CheckpointConfig::async, flag()),
      row("log.every_steps", &Config::log, &LogConfig::every_steps, count(1, "a count of steps")),
      row("log.tensorboard", &Config::log, &LogConfig::tensorboard, flag()),
      row("log.profile_steps", &Config::log, &LogConfig::profile_steps, step_window()),
      key_row<Config>("device", at(&Config::device), choice<DeviceChoice>()),
      key_row<Config>("transport", at(&Config::transport), choice<TransportChoice>()),
      key_row<Config>("run_dir", at(&Config::run_dir), text("a directory"), kDerived),
  };
}

}  // namespace

const Table<Config>& config_table() {
  static const Table<Config> kTable = [] {
    Table<Config> table;
    for (auto rows : {model_rows, data_and_batch_rows, learning_rows, train_rows, parallel_rows,
                      adaptation_rows, cluster_rows, output_rows})
      append(table, rows());
    return table;
  }();
  return kTable;
}

const Table<ScriptedSwitch>& script_table() {
  using S = ScriptedSwitch;
  auto const ranks = absent_or(small_whole(1, kMostRanks, "a count of ranks"));
  auto const sequences = absent_or(size(1, "a count of sequences"));
  static const Table<S> kTable = {
      key_row<S>("tokens", at(&S::tokens), absent_or(count(0, "a count of tokens"))),
      key_row<S>("step", at(&S::step), absent_or(count(1, "a step"))),
      key_row<S>("batch", at(&S::batch), sequences),
      key_row<S>("micro", at(&S::micro), sequences),
      key_row<S>("dp", at(&S::dp), ranks),
      key_row<S>("tp", at(&S::tp), ranks),
      key_row<S>("pp", at(&S::pp), ranks),
      key_row<S>("virtual_stages", at(&S::virtual_stages),
                 absent_or(small_whole(1, kMostRanks, "a count of chunks a pipeline rank"))),
      key_row<S>("zero", at(&S::zero), absent_or(small_whole(0, 1, "a ZeRO stage"))),
  };
  return kTable;
}

const Table<DataSource>& source_table() {
  static const Table<DataSource> kTable = {
      key_row<DataSource>("path", at(&DataSource::path), text("a directory, a glob or a shard")),
      key_row<DataSource>("weight", at(&DataSource::weight), real(kPositive)),
  };
  return kTable;
}

}  // namespace copus::detail
