// The documents of `copus inspect` as tables for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/inspect.h"
#include "copus/core/printable.h"
#include "copus/core/units.h"

namespace copus {
namespace {

using nlohmann::json;

// Text without quotes and on its line, null as a dash, the rest as JSON.
std::string shown(const json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return printable_line(value.get_ref<const std::string&>());
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}
std::string bytes_shown(const json& value) {
  return value.is_number() ? human_bytes(value.get<double>()) : "-";
}

class Text {
 public:
  void line(std::string_view text) { text_ += fmt::format("{}\n", text); }
  void row(std::string_view name, const std::string& value) {
    text_ += fmt::format("  {:<14} {}\n", name, value);
  }
  void problems(const json& list) {
    for (const json& problem : list) row("problem", shown(problem));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void model_rows(Text& text, const json& model, const json& parameters) {
  if (!model.is_object()) return;
  if (model.contains("from")) {
    text.row("model", "from " + shown(model["from"]));
    return;
  }
  text.row("model",
           fmt::format("{}, {} layers, hidden {}, {} heads ({} kv), ffn {}, vocab {}",
                       shown(model["family"]), shown(model["layers"]), shown(model["hidden"]),
                       shown(model["heads"]), shown(model["kv_heads"]), shown(model["ffn"]),
                       shown(model["vocab"])));
  text.row("positions", shown(model["max_positions"]));
  text.row("parameters", parameters.is_number() ? fmt::format("{} ({})", shown(parameters),
                                                              human_count(parameters.get<double>()))
                                                : "-");
}

void tensor_rows(Text& text, const json& tensors) {
  std::size_t widest = 6;
  for (const json& t : tensors) widest = std::max(widest, shown(t["name"]).size());
  widest = std::min<std::size_t>(widest, 64);
  text.line("");
  text.line(fmt::format("  {:<{}}  {:<5} {:>16} {:>14}  {}", "tensor", widest, "dtype", "shape",
                        "bytes", "file"));
  for (const json& t : tensors) {
    text.line(fmt::format("  {:<{}}  {:<5} {:>16} {:>14}  {}", shown(t["name"]), widest,
                          shown(t["dtype"]), shown(t["shape"]), shown(t["bytes"]),
                          shown(t["file"])));
  }
}

void model_table(Text& text, const json& d) {
  text.row("complete", d["complete"].get<bool>() ? "yes" : "NO");
  text.problems(d["problems"]);
  if (d["kind"] == "checkpoint") {
    text.row("format", shown(d["format"]));
    text.row("step", shown(d["step"]));
    text.row("tokens", shown(d["tokens"]));
    if (d["counters"].is_object()) {
      for (const auto& [name, value] : d["counters"].items()) text.row(name, shown(value));
    }
    text.row("optimizer", d["optimizer"].is_null() ? "-" : d["optimizer"] == true ? "yes" : "no");
    text.row("tokenizer", d["tokenizer"] == "" ? "unknown" : shown(d["tokenizer"]));
    text.row("size", bytes_shown(d["bytes"]));
  }
  model_rows(text, d["model"], d["parameters"]);
  text.row("tensors", fmt::format("{}, {}", d["tensors"].size(), bytes_shown(d["tensor_bytes"])));
  tensor_rows(text, d["tensors"]);
}

void shard_table(Text& text, const json& d) {
  text.row("valid", d["valid"].get<bool>() ? "yes, checksum and every id" : "NO");
  text.problems(d["problems"]);
  for (const char* key :
       {"version", "tokens", "documents", "vocab", "tokenizer", "token_bytes", "checksum"}) {
    text.row(key, shown(d.value(key, json())));
  }
  text.row("size", bytes_shown(d["bytes"]));
}

void data_table(Text& text, const json& d) {
  text.row("valid", d["valid"].get<bool>() ? "yes, every checksum and id" : "NO");
  text.row("tokens", shown(d["tokens"]));
  text.row("documents", shown(d["documents"]));
  for (const json& shard : d["shards"]) {
    text.line(
        fmt::format("  {}: {} tokens, {} documents, vocab {}, tokenizer {}{}", shown(shard["path"]),
                    shown(shard.value("tokens", json())), shown(shard.value("documents", json())),
                    shown(shard.value("vocab", json())), shown(shard.value("tokenizer", json())),
                    shard["valid"].get<bool>() ? "" : ", NOT VALID"));
    text.problems(shard["problems"]);
  }
}

void run_table_rows(Text& text, const json& d) {
  text.problems(d["problems"]);
  model_rows(text, d["model"], d["parameters"]);
  if (d["batch"].is_object()) text.row("batch", shown(d["batch"].value("sequences", json())));
  text.row("step", shown(d["step"]));
  text.row("tokens", fmt::format("{} of {}", shown(d["tokens"]), shown(d["train_tokens"])));
  text.row("loss", shown(d["loss"]));
  text.row("layout",
           fmt::format("dp {} x tp {} x pp {}", shown(d["dp"]), shown(d["tp"]), shown(d["pp"])));
  if (d["eval"].is_object()) {
    text.row("last eval",
             fmt::format("loss {} at step {}", shown(d["eval"]["loss"]), shown(d["eval"]["step"])));
  }
  text.row("ended", d["stop"].is_null() ? "no (running, or cut short)" : shown(d["stop"]));
  if (d["checkpoints"].empty()) text.row("checkpoints", "none");
  for (const json& c : d["checkpoints"]) {
    text.row("checkpoint", fmt::format("{}: step {}, {}, {}", shown(c["path"]), shown(c["step"]),
                                       bytes_shown(c["bytes"]),
                                       c["complete"].get<bool>() ? "complete" : "NOT COMPLETE"));
    text.problems(c["problems"]);
  }
}

}  // namespace

std::string inspect_table(const json& d) {
  Text text;
  std::string const kind = d.at("kind");
  text.line(fmt::format("{}: {}", shown(d["path"]),
                        kind == "model"     ? "Hugging Face model"
                        : kind == "tensors" ? "safetensors file"
                        : kind == "shard"   ? "token shard"
                        : kind == "data"    ? "token shards"
                                            : kind));
  if (kind == "checkpoint" || kind == "model") model_table(text, d);
  if (kind == "shard") shard_table(text, d);
  if (kind == "data") data_table(text, d);
  if (kind == "run") run_table_rows(text, d);
  if (kind == "tensors") {
    text.row("tensors", fmt::format("{}, {}", d["tensors"].size(), bytes_shown(d["tensor_bytes"])));
    tensor_rows(text, d["tensors"]);
  }
  return text.take();
}

}  // namespace copus
