// From a path to the document that describes it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/inspect.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/data/tokens.h"
#include "copus/parallel/params.h"
#include "copus/state/inspect.h"

namespace copus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json tensors_json(const std::vector<StoredTensor>& tensors) {
  json list = json::array();
  for (const StoredTensor& t : tensors) {
    list.push_back({{"name", t.name},
                    {"dtype", t.dtype},
                    {"shape", t.shape},
                    {"bytes", t.bytes},
                    {"file", t.file}});
  }
  return list;
}

// The model under the configuration file's own keys.
json model_json(const ModelConfig& model) {
  Config config;
  config.model = model;
  return to_json(config).at("model");
}

json counters_json(const Counters& c) {
  return {{"samples", c.samples},
          {"seed", c.seed},
          {"updates", c.updates},
          {"beta1_product", c.beta1_product},
          {"beta2_product", c.beta2_product},
          {"skipped_in_a_row", c.skipped_in_a_row},
          {"reference_batch", c.reference_batch}};
}

json model_document(const std::string& path) {
  ModelReport const report = inspect_model(path);
  json document = {{"kind", report.checkpoint ? "checkpoint" : "model"},
                   {"path", path},
                   {"complete", report.problems.empty()},
                   {"problems", report.problems},
                   {"model", nullptr},
                   {"parameters", nullptr},
                   {"tensor_bytes", report.bytes},
                   {"tensors", tensors_json(report.tensors)}};
  if (report.model) {
    document["model"] = model_json(*report.model);
    document["parameters"] = parameter_count(*report.model);
  }
  if (!report.checkpoint) return document;
  for (const char* key :
       {"format", "step", "tokens", "counters", "optimizer", "tokenizer", "bytes"}) {
    document[key] = nullptr;
  }
  if (report.summary) {
    const CheckpointSummary& s = *report.summary;
    document.update({{"format", report.format},
                     {"step", s.counters.step},
                     {"tokens", s.counters.tokens},
                     {"counters", counters_json(s.counters)},
                     {"optimizer", s.has_optimizer},
                     {"tokenizer", s.tokenizer},
                     {"bytes", s.bytes}});
  }
  return document;
}

json tensors_document(const std::string& path) {
  auto const tensors = stored_tensors(path);
  std::int64_t bytes = 0;
  for (const StoredTensor& t : tensors) bytes += t.bytes;
  return {{"kind", "tensors"},
          {"path", path},
          {"tensor_bytes", bytes},
          {"tensors", tensors_json(tensors)}};
}

json shard_document(const std::string& path) {
  json document = {{"kind", "shard"}, {"path", path}};
  json problems = json::array();
  try {
    ShardHeader const h = TokenShard::read_header(path);
    document.update({{"version", h.version},
                     {"token_bytes", h.token_bytes},
                     {"tokens", h.tokens},
                     {"documents", h.documents},
                     {"vocab", h.vocab},
                     {"tokenizer", h.tokenizer},
                     {"checksum", fmt::format("{:016x}", h.checksum)}});
    TokenShard::open(path, true);
  } catch (const ConfigError& error) {
    problems = error.problems();
  }
  document["bytes"] = fs::file_size(path);
  document["valid"] = problems.empty();
  document["problems"] = std::move(problems);
  return document;
}

json data_document(const std::string& path, const std::vector<std::string>& shards) {
  json list = json::array();
  std::int64_t tokens = 0, documents = 0;
  bool valid = true;
  for (const std::string& shard : shards) {
    json document = shard_document(shard);
    valid = valid && document.at("valid").get<bool>();
    tokens += document.value("tokens", std::int64_t{0});
    documents += document.value("documents", std::int64_t{0});
    list.push_back(std::move(document));
  }
  return {{"kind", "data"},   {"path", path},           {"valid", valid},
          {"tokens", tokens}, {"documents", documents}, {"shards", std::move(list)}};
}

std::vector<std::string> shards_in(const std::string& path) {
  std::vector<std::string> shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".bin" && entry.is_regular_file())
      shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

bool begins_with_magic(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string magic(8, '\0');
  in.read(magic.data(), 8);
  return in.gcount() == 8 && magic == "COPUSTOK";
}

json directory_document(const std::string& path) {
  std::error_code ignored;
  auto const has = [&](const char* name) { return fs::exists(path + "/" + name, ignored); };
  if (has("metrics.jsonl")) return inspect_run(path);
  if (has("state.json") || has("config.json") || has("model.safetensors") ||
      has("model.safetensors.index.json")) {
    return model_document(path);
  }
  std::vector<std::string> const shards = shards_in(path);
  if (!shards.empty()) return data_document(path, shards);
  throw ConfigError(fmt::format(
      "{}: holds nothing that is known here; accepted: a checkpoint or Hugging Face directory "
      "(config.json), a run directory (metrics.jsonl), a directory of token shards (*.bin)",
      path));
}

}  // namespace

json inspect_path(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw ConfigError(fmt::format("{}: does not exist", path));
  if (fs::is_directory(path, error)) return directory_document(path);
  if (fs::is_regular_file(path, error)) {
    if (fs::path(path).extension() == ".safetensors") return tensors_document(path);
    if (fs::path(path).extension() == ".bin" || begins_with_magic(path))
      return shard_document(path);
  }
  throw ConfigError(fmt::format(
      "{}: neither a token shard nor a .safetensors file; accepted: these, or a directory", path));
}

}  // namespace copus
