// The JSON configuration file: read whole, checked whole, written back resolved.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "copus/core/config.h"

namespace copus {

// `--set a.b.c=value` as typed: key path and value text. The value is JSON if it parses as JSON,
// else a string; `null` takes a key out of the file again.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// What the configuration is for: training needs data, tokens and a batch; planning only model and
// batch.
enum class ConfigUse { train, plan };

// Reads `path`, applies the overrides, checks types, names and ranges. Throws one ConfigError with
// every mistake found: line and column for syntax, the nearest known key for an unknown one,
// nearest valid values for sizes that do not fit. Whatever is adjusted instead of refused adds a
// line with both values to `warnings`; show them. A model given by `from` keeps zero sizes until
// state/hf.h's resolve_model fills them in.
Config read_config(const std::string& path, const Overrides& overrides, ConfigUse use,
                   std::vector<std::string>& warnings);
// `name` stands for the file in messages, and its stem in the default run_dir ("runs/<stem>").
Config parse_config(const std::string& json_text, const std::string& name,
                    const Overrides& overrides, ConfigUse use, std::vector<std::string>& warnings);

// Whatever can only be checked once the model's sizes are known (heads against hidden, vocab,
// seq_len, every batch of the schedule against micro x dp). read_config calls it unless model.from
// is set; the caller does after resolving.
std::vector<std::string> check_sizes(const Config& config);

// What is asked for and legal but not in this version yet: key, value, and what this version takes.
std::vector<std::string> not_yet(const Config& config);

// All keys with all defaults filled in; parsing it again gives the same Config. A model given by
// `from` stays so (with seq_len and dropout).
nlohmann::json to_json(const Config& config);

// Every key of the file: its dotted path, what it accepts, and its default as JSON ("null" when the
// default follows from other keys).
struct ConfigKey {
  std::string path, accepts, default_json;
};
std::vector<ConfigKey> config_keys();

// "250M" -> 250000000; K, M, B, T. Throws ConfigError naming `key`.
std::int64_t parse_count(const std::string& text, const std::string& key);
// "0:16 2M:64" -> steps, ascending, the first at 0.
std::vector<BatchStep> parse_batch_schedule(const std::string& text, const std::string& key);
// The inverse: "0:16 2000000:64".
std::string to_string(const std::vector<BatchStep>& schedule);
// The global batch at `tokens` consumed.
std::int64_t batch_at(const BatchConfig& batch, std::int64_t tokens);

// gpt2-124m, llama-3.2-3b, llama-2-7b, llama-2-13b, qwen2.5-32b, ...; throws ConfigError naming the
// nearest one.
ModelConfig model_preset(const std::string& name);
std::vector<std::string> model_preset_names();

// The words of the file.
std::string_view name_of(Family family);
std::string_view name_of(RopeKind kind);
std::string_view name_of(ScheduleKind kind);
std::string_view name_of(LrRule rule);
std::string_view name_of(BetaRule rule);
std::string_view name_of(DecayRule rule);
std::string_view name_of(Precision precision);
std::string_view name_of(Recompute recompute);
std::string_view name_of(AdaptMode mode);
std::string_view name_of(Objective objective);
std::string_view name_of(DeviceChoice device);
std::string_view name_of(TransportChoice transport);

// The candidate closest to `word` by edit distance (swapped neighbours count once); empty when none
// is close.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace copus
