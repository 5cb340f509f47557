#include "state/model_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "copus/core/error.h"
#include "copus/state/hf.h"
#include "state/checkpoint_names.h"
#include "state/checkpoint_state.h"
#include "state/model_writer.h"
#include "state/non_finite.h"

namespace copus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kModelFile = "model.safetensors";
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

fs::path new_directory(const std::string& out) {
  fs::path target = fs::path(out).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "DIR/"
  if (target.empty()) throw ConfigError("--out: empty; accepted: a directory that does not exist");
  std::error_code error;
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    throw ConfigError(fmt::format("--out {}: exists already; name a directory that does not", out));
  }
  return target;
}

// Whoever reads `source` next would find the copy among its files.
void refuse_inside(const fs::path& target, const std::string& out, const std::string& source) {
  std::error_code error;
  fs::path const from = fs::canonical(source, error);
  if (error) return;  // said where it is read
  fs::path const to = fs::weakly_canonical(fs::absolute(target, error), error);
  if (error || std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first != from.end())
    return;
  throw ConfigError(fmt::format(
      "--out {}: lies inside {}, which is read; name a directory that does not", out, source));
}

// The model of `source`. A checkpoint's small files are held against their checksums here, its
// weights where they are opened.
CheckpointSummary summary_of(const std::string& source) {
  CheckpointSummary summary;
  double dropout = 0.0;  // what a run chose; config.json is not read for it
  std::error_code error;
  if (fs::exists(source + "/" + kStateFile, error)) {
    check_small_files(source);
    CheckpointSummary const stored = read_checkpoint_summary(source);
    summary.tokenizer = stored.tokenizer;
    dropout = stored.model.dropout;
  }
  summary.model = read_hf_config(source);
  summary.model.dropout = dropout;
  return summary;
}

json config_of_copy(const ModelConfig& model, const std::string& source, DType dtype) {
  json config = to_hf_config(model);
  config["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : "float32";
  json const given = json::parse(read_json_file(source + "/config.json", kMaxConfigBytes));
  for (const char* key : kTokenIds) {
    if (given.contains(key)) config[key] = given.at(key);
  }
  return config;
}

}  // namespace

CheckpointSummary copy_model(const std::string& source, const std::string& out, DType dtype,
                             const Finish& finish) {
  fs::path const target = new_directory(out);
  refuse_inside(target, out, source);
  CheckpointSummary summary = summary_of(source);
  HfModel const weights(source, summary.model);

  fs::path const parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw IoError(fmt::format("cannot create {}: {}", parent.string(), error.message()));
  TemporaryTree tree(target.string() + kTemporarySuffix, TemporaryTree::Name::unused);
  FileSums sums;
  NonFinite bad;
  sums[kModelFile] = write_model_file(
      tree.file(kModelFile), summary.model, parameter_table(summary.model),
      [&](const Param& param, const Box& box, std::span<float> to) {
        weights.read(param, box, to);
        bad.look(hf_place(summary.model, param).name, to);
      },
      dtype);
  if (auto problems = bad.problems(source); !problems.empty())
    throw ConfigError(std::move(problems));
  sums["config.json"] = write_text_file(
      tree.file("config.json"), config_of_copy(summary.model, source, dtype).dump(2) + "\n");
  for (const char* name : kCompanions) {
    std::string const from = source + "/" + name;
    if (is_there(from)) sums[name] = copy_file(from, tree.file(name));
  }
  for (const auto& [name, sum] : sums) summary.bytes += sum.bytes;
  finish(tree, summary, sums);
  sync_directory(tree.path());
  rename_path(tree.path(), target.string());
  tree.keep();
  sync_directory(parent.string());
  return summary;
}

}  // namespace copus
