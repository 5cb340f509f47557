// What a run directory says of its run: configuration, the last step of metrics.jsonl, checkpoints.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/inspect.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/json_text.h"
#include "copus/parallel/params.h"
#include "copus/state/inspect.h"

namespace copus {
namespace {

using nlohmann::json;

// The last records of each kind.
struct Progress {
  json step, eval, stop;  // null: none
  std::int64_t steps = 0, unreadable = 0;
};

Progress read_metrics(const std::string& path) {
  Progress progress;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    json record = nests_deeper(line) ? json() : json::parse(line, nullptr, false);
    if (!record.is_object()) {
      ++progress.unreadable;
    } else if (!record.contains("event")) {
      progress.step = std::move(record);
      ++progress.steps;
    } else if (record["event"] == "eval") {
      progress.eval = std::move(record);
    } else {
      // Whatever follows a stop is a run that went on.
      progress.stop = record["event"] == "stop" ? record.value("reason", json()) : json();
    }
  }
  return progress;
}

void add_config(json& document, const std::string& path, std::vector<std::string>& problems) {
  std::ifstream in(path + "/config.json");
  std::stringstream text;
  text << in.rdbuf();
  try {
    std::vector<std::string> warnings;
    Config const config =
        parse_config(text.str(), path + "/config.json", {}, ConfigUse::train, warnings);
    json const keys = to_json(config);
    document["model"] = keys.at("model");
    document["batch"] = keys.at("batch");
    document["train_tokens"] = config.train.tokens;
    document["precision"] = std::string(name_of(config.train.precision));
    // A model given by `from` has its sizes elsewhere.
    if (config.model.from.empty()) document["parameters"] = parameter_count(config.model);
  } catch (const ConfigError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

void add_progress(json& document, const Progress& progress, const std::string& path,
                  std::vector<std::string>& problems) {
  for (const char* key : {"step", "tokens", "samples", "loss", "grad_norm", "lr", "dp", "tp", "pp",
                          "tokens_per_second"}) {
    document[key] = progress.step.is_object() ? progress.step.value(key, json()) : json();
  }
  document["steps_recorded"] = progress.steps;
  document["eval"] = nullptr;
  if (progress.eval.is_object()) {
    document["eval"] = {{"step", progress.eval.value("step", json())},
                        {"loss", progress.eval.value("loss", json())}};
  }
  document["stop"] = progress.stop;
  if (progress.unreadable > 0) {
    problems.push_back(
        fmt::format("{}/metrics.jsonl: {} lines are not JSON objects", path, progress.unreadable));
  }
}

}  // namespace

json inspect_run(const std::string& path) {
  json document = {
      {"kind", "run"},           {"path", path},         {"model", nullptr},     {"batch", nullptr},
      {"train_tokens", nullptr}, {"precision", nullptr}, {"parameters", nullptr}};
  std::vector<std::string> problems;
  add_config(document, path, problems);
  add_progress(document, read_metrics(path + "/metrics.jsonl"), path, problems);
  json checkpoints = json::array();
  for (const RunCheckpoint& c : inspect_run_checkpoints(path)) {
    checkpoints.push_back({{"step", c.step},
                           {"path", c.path},
                           {"bytes", c.bytes},
                           {"complete", c.problems.empty()},
                           {"problems", c.problems}});
  }
  document["checkpoints"] = std::move(checkpoints);
  document["problems"] = problems;
  return document;
}

}  // namespace copus
