// The JSON configuration file: read whole, checked whole, written back resolved.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "copus/core/config.h"

namespace copus {

// `--set a.b.c=value` as typed: key path and value text.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// Reads `path`, applies the overrides, checks types, names and ranges. Throws one ConfigError with
// every mistake found: line and column for syntax, the nearest known key for an unknown one,
// nearest valid values for sizes that do not fit. A model given by `from` keeps zero sizes until
// state/hf.h's resolve_model fills them in.
Config read_config(const std::string& path, const Overrides& overrides);
Config parse_config(const std::string& json_text, const std::string& name,
                    const Overrides& overrides);

// Whatever can only be checked once the model's sizes are known (heads against hidden, vocab,
// seq_len, every batch of the schedule against micro x dp). read_config calls it unless model.from
// is set; the caller does after resolving.
std::vector<std::string> check_sizes(const Config& config);

// All keys with all defaults filled in; parsing it again gives the same Config.
nlohmann::json to_json(const Config& config);

// "250M" -> 250000000; K, M, B, T. Throws ConfigError naming `key`.
std::int64_t parse_count(const std::string& text, const std::string& key);
// "0:16 2M:64" -> steps, ascending, the first at 0.
std::vector<BatchStep> parse_batch_schedule(const std::string& text, const std::string& key);
// The global batch at `tokens` consumed.
std::int64_t batch_at(const BatchConfig& batch, std::int64_t tokens);

// gpt2-124m, llama-3.2-3b, llama-2-7b, llama-2-13b, qwen2.5-32b, ...; throws ConfigError naming the
// nearest one.
ModelConfig model_preset(const std::string& name);
std::vector<std::string> model_preset_names();

std::string_view name_of(Family family);
// The candidate closest to `word` by edit distance; empty when none is close.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace copus
