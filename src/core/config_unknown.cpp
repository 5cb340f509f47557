// What to say about a key that does not exist.
#include <algorithm>
#include <cctype>

#include "config_keys.h"
#include "copus/core/config_io.h"

namespace copus::detail {
namespace {

struct OtherName {
  std::string_view word, path;
};
// Names other trainers use for our keys; too far from ours for an edit distance to find.
constexpr OtherName kOtherNames[] = {
    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"grad_clip", "optimizer.clip"},
    {"max_grad_norm", "optimizer.clip"},
    {"gradient_clipping", "optimizer.clip"},
    {"wd", "optimizer.weight_decay"},
    {"min_lr", "schedule.min_lr_ratio"},
    {"warmup", "schedule.warmup_tokens"},
    {"warmup_steps", "schedule.warmup_tokens"},
    {"lr_schedule", "schedule.kind"},
    {"batch_size", "batch.sequences"},
    {"global_batch_size", "batch.sequences"},
    {"micro_batch", "batch.micro"},
    {"micro_batch_size", "batch.micro"},
    {"steps", "train.tokens"},
    {"max_steps", "train.tokens"},
    {"max_tokens", "train.tokens"},
    {"dtype", "train.precision"},
    {"eval_interval", "train.eval_every_tokens"},
    {"n_layer", "model.layers"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"n_embd", "model.hidden"},
    {"hidden_size", "model.hidden"},
    {"d_model", "model.hidden"},
    {"n_head", "model.heads"},
    {"num_attention_heads", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"intermediate_size", "model.ffn"},
    {"vocab_size", "model.vocab"},
    {"context_length", "model.seq_len"},
    {"block_size", "model.seq_len"},
    {"max_position_embeddings", "model.max_positions"},
    {"rms_norm_eps", "model.norm_eps"},
    {"layer_norm_epsilon", "model.norm_eps"},
    {"data_parallel_size", "parallel.dp"},
    {"tensor_parallel_size", "parallel.tp"},
    {"pipeline_parallel_size", "parallel.pp"},
    {"output_dir", "run_dir"},
};

std::string section_of(const std::string& path) {
  std::size_t const dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}
std::string last_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

// Our spelling of a word: lower case, underscores.
std::string plain(std::string word) {
  for (char& c : word)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

// The names directly inside a section, subsections included, in the table's order.
std::vector<std::string> names_in(const std::string& section,
                                  const std::vector<std::string>& known) {
  std::string const prefix = section.empty() ? "" : section + ".";
  std::vector<std::string> names;
  for (const std::string& path : known) {
    if (!path.starts_with(prefix)) continue;
    std::string const rest = path.substr(prefix.size());
    std::string const name = rest.substr(0, rest.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Every path of the table, with its sections as paths of their own.
std::vector<std::string> all_paths(const std::vector<std::string>& known) {
  std::vector<std::string> paths;
  for (const std::string& path : known) {
    for (std::string s = section_of(path); !s.empty(); s = section_of(s))
      if (std::find(paths.begin(), paths.end(), s) == paths.end()) paths.push_back(s);
    paths.push_back(path);
  }
  return paths;
}

std::string suggestion(const std::string& path, const std::vector<std::string>& known) {
  std::string const section = section_of(path), word = plain(last_of(path));
  std::string const prefix = section.empty() ? "" : section + ".";
  std::vector<std::string> const siblings = names_in(section, known);
  auto const is_sibling = [&siblings](const std::string& name) {
    return std::find(siblings.begin(), siblings.end(), name) != siblings.end();
  };
  if (is_sibling(word)) return "did you mean " + prefix + word + "?";
  std::vector<std::string> elsewhere, last_words;
  std::vector<std::string> const paths = all_paths(known);
  for (const std::string& other : paths) {
    if (last_of(other) == word) elsewhere.push_back(other);
    last_words.push_back(last_of(other));
  }
  if (!elsewhere.empty())
    return fmt::format("that key belongs elsewhere: did you mean {}?",
                       fmt::join(elsewhere, " or "));
  std::string const near = nearest_name(word, siblings);
  if (!near.empty()) return "did you mean " + prefix + near + "?";
  for (const OtherName& other : kOtherNames) {
    bool const exists = std::find(paths.begin(), paths.end(), other.path) != paths.end();
    if (other.word == word && exists) return fmt::format("did you mean {}?", other.path);
  }
  std::string const far = nearest_name(word, last_words);
  for (const std::string& other : paths)
    if (!far.empty() && last_of(other) == far) return "did you mean " + other + "?";
  return "";
}

}  // namespace

bool is_section(const std::string& path, const std::vector<std::string>& known) {
  return std::any_of(known.begin(), known.end(), [&path](const std::string& key) {
    return key.starts_with(path) && key.size() > path.size() && key[path.size()] == '.';
  });
}

std::string unknown_key(const std::string& path, const std::vector<std::string>& known,
                        const std::string& place) {
  std::string const dot = place.empty() ? "" : place + ".";
  std::string section = dot + section_of(path);
  if (section.ends_with('.')) section.pop_back();
  std::string const where =
      section.empty() ? "at the top level" : fmt::format("in section \"{}\"", section);
  std::string advice = suggestion(path, known);
  if (advice.empty())
    advice = fmt::format("known there: {}", fmt::join(names_in(section_of(path), known), ", "));
  return fmt::format("{}{}: unknown key {}; {}", dot, path, where, advice);
}

}  // namespace copus::detail
