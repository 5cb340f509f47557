#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "copus/core/error.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "state/checkpoint_names.h"
#include "state/checkpoint_state.h"
#include "state/model_writer.h"

namespace copus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What belongs to the tokenizer and to generation goes along unchanged.
constexpr const char* kCompanions[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "generation_config.json"};
constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;

json config_with_token_ids(const ModelConfig& model, const std::string& hf_dir) {
  json config = to_hf_config(model);
  json const source = json::parse(read_text_file(hf_dir + "/config.json", kMaxConfigBytes));
  for (const char* key : kTokenIds) {
    if (source.contains(key)) config[key] = source.at(key);
  }
  return config;
}

std::string tokenizer_of(const std::string& hf_dir) {
  auto const state = read_state(hf_dir);  // present when a checkpoint is imported again
  return state ? state->value("tokenizer", std::string()) : std::string();
}

}  // namespace

CheckpointSummary import_checkpoint(const std::string& hf_dir, const std::string& out) {
  fs::path target = fs::path(out).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "DIR/"
  if (target.empty()) throw ConfigError("--out: empty; accepted: a directory that does not exist");
  std::error_code error;
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    throw ConfigError(fmt::format("--out {}: exists already; name a directory that does not", out));
  }
  CheckpointSummary summary;
  summary.model = read_hf_config(hf_dir);
  summary.tokenizer = tokenizer_of(hf_dir);
  HfModel const source(hf_dir, summary.model);

  fs::path const parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  fs::create_directories(parent, error);
  if (error) throw IoError(fmt::format("cannot create {}: {}", parent.string(), error.message()));
  TemporaryTree tree(target.string() + kTemporarySuffix);
  FileSums sums;
  sums["model.safetensors"] = write_model_file(
      tree.file("model.safetensors"), summary.model, parameter_table(summary.model),
      [&](const Param& param, const Box& box, std::span<float> to) {
        source.read(param, box, to);
      });
  sums["config.json"] = write_text_file(
      tree.file("config.json"), config_with_token_ids(summary.model, hf_dir).dump(2) + "\n");
  for (const char* name : kCompanions) {
    std::string const from = hf_dir + "/" + name;
    if (fs::exists(from)) sums[name] = copy_file(from, tree.file(name));
  }
  write_text_file(tree.file(kStateFile), state_text(make_state(summary, sums)));
  sync_directory(tree.path());
  rename_path(tree.path(), target.string());
  tree.keep();
  sync_directory(parent.string());
  for (const auto& [name, sum] : sums) summary.bytes += sum.bytes;
  return summary;
}

}  // namespace copus
