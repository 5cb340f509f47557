// What a run is told: one struct a section of the JSON file (docs/configuration.md explains every
// key).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace copus {

enum class Family { llama, qwen2, gpt2 };

// How RoPE's frequencies are lowered for a context longer than the model was first trained on,
// under Hugging Face's names. linear: all by `factor`; llama3: the low ones, as the three others
// say.
enum class RopeKind { llama3, linear };
struct RopeScaling {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_positions = 8192;
  RopeKind kind = RopeKind::llama3;
  bool operator==(const RopeScaling&) const = default;
};

// Everything that shapes a model. `preset` and `from` are resolved into the plain keys before
// anything reads them.
struct ModelConfig {
  Family family = Family::llama;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;         // C
  std::int64_t heads = 0;          // H
  std::int64_t kv_heads = 0;       // K
  std::int64_t ffn = 0;            // F
  std::int64_t vocab = 0;          // V, unpadded
  std::int64_t seq_len = 0;        // T a run trains on
  std::int64_t max_positions = 0;  // the model's maximum; GPT-2: rows of its position table
  bool tie_embeddings = false;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  double norm_eps = 1e-5;
  double dropout = 0.0;
  std::string preset;  // only while a file is being read; empty once its sizes are filled in
  std::string from;    // checkpoint or Hugging Face directory to start from, or empty

  std::int64_t head_dim() const { return hidden / heads; }  // D
  bool has_qkv_bias() const { return family != Family::llama; }
  bool is_gpt2() const {
    return family == Family::gpt2;
  }  // LayerNorm, learned positions, GELU, biases everywhere
  bool operator==(const ModelConfig&) const = default;
};

struct DataSource {
  std::string path;  // a directory, a glob or a shard
  double weight = 1.0;
  bool operator==(const DataSource&) const = default;
};
struct DataConfig {
  std::vector<DataSource> train, val;
  std::optional<std::int64_t> epochs;  // none: unlimited
  bool shuffle = true;
  bool operator==(const DataConfig&) const = default;
};

struct BatchStep {
  std::int64_t tokens = 0;     // from this token count on
  std::int64_t sequences = 0;  // global batch
  bool operator==(const BatchStep&) const = default;
};
struct BatchConfig {
  std::int64_t sequences = 0;
  std::optional<std::int64_t> micro;  // none: "auto"
  std::int64_t min = 0, max = 0;      // 0: the same as sequences
  std::vector<BatchStep> schedule;    // empty: constant
  bool operator==(const BatchConfig&) const = default;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip = 1.0;  // 0: none
  bool operator==(const OptimizerConfig&) const = default;
};

enum class ScheduleKind { constant, cosine, wsd };
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;
  std::int64_t warmup_tokens = 0;
  std::int64_t decay_tokens =
      0;  // cosine: 0 means up to train.tokens; wsd: length of the final decay
  double min_lr_ratio = 0.1;
  bool operator==(const ScheduleConfig&) const = default;
};

enum class LrRule { none, sqrt, linear };
enum class BetaRule { fixed, half_life };
enum class DecayRule { fixed, timescale };
struct BatchRuleConfig {
  LrRule lr = LrRule::none;
  BetaRule beta = BetaRule::fixed;
  DecayRule weight_decay = DecayRule::fixed;
  std::int64_t reference_batch = 0;  // 0: the first step's
  bool operator==(const BatchRuleConfig&) const = default;
};

enum class Precision { fp32, bf16 };
struct TrainConfig {
  std::int64_t tokens = 0;
  std::uint64_t seed = 1;
  Precision precision = Precision::fp32;
  bool emulate_bf16 = false;           // on a CPU: products of bf16 from fp32 ones
  std::int64_t eval_every_tokens = 0;  // 0: only at the end
  std::int64_t eval_tokens = 0;        // 0: all of data.val
  bool deterministic = true;
  std::int64_t max_skipped_steps = 10;  // stop after this many not-finite steps in a row
  bool operator==(const TrainConfig&) const = default;
};

enum class Recompute { none, selective, full };
struct ParallelConfig {  // none: "auto"
  std::optional<int> dp, tp, pp;
  std::optional<int> virtual_stages;
  std::optional<int> zero = 0;
  std::optional<bool> sequence_parallel;
  std::optional<Recompute> recompute;
  bool operator==(const ParallelConfig&) const = default;
};

struct GnsConfig {
  std::int64_t every_steps = 8;
  std::int64_t half_life_tokens = 0;  // 0: 1/50 of train.tokens, at least eight estimates
  double confidence = 0.9;
  bool operator==(const GnsConfig&) const = default;
};

enum class AdaptMode { off, log, suggest, act };
enum class Objective { plain, sqrt_lr, normalized };
struct ScriptedSwitch {
  std::optional<std::int64_t> tokens, step;  // exactly one
  std::optional<std::int64_t> batch, micro;
  std::optional<int> dp, tp, pp, virtual_stages, zero;
  bool operator==(const ScriptedSwitch&) const = default;
};
struct AdaptConfig {
  AdaptMode mode = AdaptMode::off;
  std::int64_t interval_steps = 100;
  Objective objective = Objective::plain;
  double calibration = 1.0;
  double margin = 0.05;
  std::int64_t horizon_tokens = 0;  // 0: to the end of the run
  std::int64_t min_dwell_steps = 50;
  std::int64_t check_every_tokens = 0;  // 0: only when asked to
  std::int64_t check_tokens = 0;        // of each branch; 0: 16 steps of the largest batch tried
  std::vector<ScriptedSwitch> script;
  bool operator==(const AdaptConfig&) const = default;
};

struct ClusterConfig {
  std::string attention_kernel = "flash";  // flash | flash1 | fused | unfused
  std::string norm_kernel = "fused";       // fused | plain
  std::string hardware = "measure";        // preset, profile file or "measure"
  std::int64_t nodes = 1, gpus_per_node = 1;
  double internode_gbps_per_gpu = 400.0;  // Gbit/s
  bool operator==(const ClusterConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every_tokens = 0;  // 0: only at the end
  std::int64_t keep = 3;
  bool async = false;
  bool operator==(const CheckpointConfig&) const = default;
};
// Steps `first` to `last`, both included; they count from 1.
struct StepWindow {
  std::int64_t first = 1, last = 1;
  bool operator==(const StepWindow&) const = default;
};
struct LogConfig {
  std::int64_t every_steps = 1;
  bool tensorboard = false;
  std::optional<StepWindow> profile_steps;  // that a profiler records; none: no window
  bool operator==(const LogConfig&) const = default;
};

enum class DeviceChoice { automatic, cpu, cuda };
enum class TransportChoice { automatic, thread, mpi, nccl };

struct Config {
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  BatchRuleConfig batch_rule;
  TrainConfig train;
  ParallelConfig parallel;
  GnsConfig gns;
  AdaptConfig adapt;
  ClusterConfig cluster;
  CheckpointConfig checkpoint;
  LogConfig log;
  DeviceChoice device = DeviceChoice::automatic;
  TransportChoice transport = TransportChoice::automatic;
  std::string run_dir;
  bool operator==(const Config&) const = default;
};

}  // namespace copus
