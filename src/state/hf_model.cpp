#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/state/hf.h"
#include "state/checkpoint_files.h"
#include "state/files.h"

namespace copus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kMaxIndexBytes = std::int64_t{256} << 20;
constexpr std::int64_t kTile = 64;  // file rows transposed at a time
constexpr std::int64_t kTileWidth = 1024;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kGpt2Prefix = "transformer.";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Buffers that old Hugging Face versions stored: derived values, not weights.
bool is_derived(const ModelConfig& model, std::string_view name) {
  if (model.is_gpt2()) return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");
  return ends_with(name, ".rotary_emb.inv_freq");
}

// Where each logical tensor's file tensor is; the file tensors by name; every problem found.
struct Opened {
  std::string directory;
  std::vector<SafetensorsFile> files;
  std::map<std::string, std::size_t> file_of;  // tensor name -> index into files
  std::vector<std::string> problems;

  const TensorEntry& entry(const std::string& name) const {
    return files[file_of.at(name)].tensors().at(name);
  }
};

// A file of one of our checkpoints must be the one that was written.
void open_file(Opened& out, const std::string& name, const FileSums& sums, Depth depth) {
  std::string const path = out.directory + "/" + name;
  if (auto const sum = sums.find(name); sum != sums.end()) {
    std::string problem = file_problem(out.directory, name, sum->second, depth);
    if (!problem.empty()) throw ConfigError(std::move(problem));
  }
  SafetensorsFile file = SafetensorsFile::open(path);
  for (const auto& [tensor, entry] : file.tensors()) {
    if (!out.file_of.emplace(tensor, out.files.size()).second) {
      out.problems.push_back(fmt::format("{}: tensor \"{}\" also stands in {}", path, tensor,
                                         out.files[out.file_of[tensor]].path()));
    }
  }
  out.files.push_back(std::move(file));
}

// Each tensor of the index is where that says, and no other one is in the parts.
void check_index(Opened& out, const ModelConfig& model, const json& map) {
  for (const auto& [tensor, file] : map.items()) {
    auto const found = out.file_of.find(tensor);
    std::string const expected = out.directory + "/" + file.get<std::string>();
    if (found == out.file_of.end() || out.files[found->second].path() != expected) {
      out.problems.push_back(fmt::format("{}: has no tensor \"{}\", which {} places there",
                                         expected, tensor, kIndexFile));
    }
  }
  for (const auto& [tensor, index] : out.file_of) {
    if (map.contains(tensor) || is_derived(model, tensor)) continue;
    out.problems.push_back(
        fmt::format("{}: tensor \"{}\" is not in {}; a tensor of a part is "
                    "named there",
                    out.files[index].path(), tensor, kIndexFile));
  }
}

// The shards of an index: plain names only, each opened once, each tensor where the index says.
void open_index(Opened& out, const ModelConfig& model, const FileSums& sums, Depth depth) {
  std::string const path = out.directory + "/" + kIndexFile;
  json const root = json::parse(read_json_file(path, kMaxIndexBytes), nullptr, false);
  if (!root.is_object() || !root.value("weight_map", json()).is_object()) {
    throw ConfigError(fmt::format("{}: not a JSON object with a weight_map", path));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : root.at("weight_map").items()) {
    if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>())) {
      throw ConfigError(fmt::format("{}: weight_map \"{}\" is {}; accepted: a file name", path,
                                    tensor, file.dump()));
    }
    names.insert(file.get<std::string>());
  }
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!fs::exists(out.directory + "/" + name)) {
      missing.push_back(
          fmt::format("{}/{}: missing, and {} names it", out.directory, name, kIndexFile));
    }
  }
  if (!missing.empty()) throw ConfigError(std::move(missing));
  for (const std::string& name : names) open_file(out, name, sums, depth);
  check_index(out, model, root.at("weight_map"));
}

Opened open_files(const std::string& directory, const ModelConfig& model, Depth depth) {
  Opened out;
  out.directory = directory;
  FileSums sums;
  if (auto const state = read_state(directory)) sums = file_sums(*state, directory);
  if (fs::exists(directory + "/" + kSingleFile)) {
    open_file(out, kSingleFile, sums, depth);
  } else if (fs::exists(directory + "/" + kIndexFile)) {
    open_index(out, model, sums, depth);
  } else {
    throw ConfigError(
        fmt::format("{}: holds neither {} nor {}", directory, kSingleFile, kIndexFile));
  }
  return out;
}

// The name the file uses: GPT-2's base model is stored without the prefix.
std::string name_in_file(const Opened& files, const ModelConfig& model, const std::string& name) {
  if (!model.is_gpt2() || files.file_of.count(name) > 0) return name;
  std::string bare = name.rfind(kGpt2Prefix, 0) == 0 ? name.substr(kGpt2Prefix.size()) : name;
  return files.file_of.count(bare) > 0 ? bare : name;
}

std::vector<std::int64_t> file_shape(const HfPlace& place) {
  if (place.dims == 1) return {place.shape[0]};
  return {place.shape[0], place.shape[1]};
}

void check_tensor(Opened& files, const std::string& name, const HfPlace& place) {
  auto const found = files.file_of.find(name);
  if (found == files.file_of.end()) {
    files.problems.push_back(
        fmt::format("{}: tensor \"{}\" is missing", files.directory, place.name));
    return;
  }
  const TensorEntry& entry = files.entry(name);
  const std::string& path = files.files[found->second].path();
  if (entry.shape != file_shape(place)) {
    files.problems.push_back(
        fmt::format("{}: tensor \"{}\" has shape [{}]; config.json makes it "
                    "[{}]",
                    path, name, fmt::join(entry.shape, ", "), fmt::join(file_shape(place), ", ")));
  }
  if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16") {
    files.problems.push_back(
        fmt::format("{}: tensor \"{}\" is {}; accepted: F32, BF16, F16", path, name, entry.dtype));
  }
}

// A stored head of a tied model is harmless when it repeats the embedding.
bool same_contents(const Opened& files, const std::string& a, const std::string& b) {
  const TensorEntry &ea = files.entry(a), &eb = files.entry(b);
  if (ea.shape != eb.shape || ea.dtype != eb.dtype) return false;
  std::vector<float> x(65536), y(65536);
  std::int64_t const n = ea.numel(), block = static_cast<std::int64_t>(x.size());
  for (std::int64_t at = 0; at < n; at += block) {
    auto const count = static_cast<std::size_t>(std::min(block, n - at));
    files.files[files.file_of.at(a)].read_f32(a, at, std::span(x).first(count));
    files.files[files.file_of.at(b)].read_f32(b, at, std::span(y).first(count));
    if (!std::ranges::equal(std::as_bytes(std::span(x).first(count)),
                            std::as_bytes(std::span(y).first(count)))) {
      return false;
    }
  }
  return true;
}

void check_unused(Opened& files, const ModelConfig& model, const std::set<std::string>& used,
                  const std::string& embedding) {
  for (const auto& [name, index] : files.file_of) {
    if (used.count(name) > 0 || is_derived(model, name)) continue;
    const std::string& path = files.files[index].path();
    if (name == "lm_head.weight" && model.tie_embeddings && used.count(embedding) > 0) {
      if (files.problems.empty() && !same_contents(files, name, embedding)) {
        files.problems.push_back(
            fmt::format("{}: tie_word_embeddings is true, but \"{}\" differs from \"{}\"", path,
                        name, embedding));
      }
      continue;
    }
    files.problems.push_back(fmt::format("{}: tensor \"{}\" is not one of a {}-layer {} model",
                                         path, name, model.layers, name_of(model.family)));
  }
}

// A number in config.json may claim any size; where it is plainly not of these files, one sentence
// stands for the tensors of all the layers that are missing.
void refuse_phantom_layers(const Opened& files, const ModelConfig& model) {
  constexpr std::size_t kNamedOneByOne = 1024;
  auto const layers = static_cast<std::size_t>(model.layers);
  if (layers <= kNamedOneByOne || layers <= files.file_of.size()) return;
  throw ConfigError(fmt::format("{}: config.json makes {} layers, and the files hold {} tensors",
                                files.directory, layers, files.file_of.size()));
}

}  // namespace

struct HfModel::State {
  Opened files;
  ModelConfig model;

  void read_rows(const std::string& name, const HfPlace& place, const Box& box,
                 std::span<float> out) const;
  void read_transposed(const std::string& name, const HfPlace& place, const Box& box,
                       std::span<float> out) const;
};

HfModel::HfModel(const std::string& directory, const ModelConfig& model, Depth depth)
    : state_(std::make_unique<State>()) {
  state_->files = open_files(directory, model, depth);
  state_->model = model;
  Opened& files = state_->files;
  refuse_phantom_layers(files, model);
  std::set<std::string> used, checked;
  std::string embedding;
  for (const Param& param : parameter_table(model)) {
    HfPlace const place = hf_place(model, param);
    std::string const name = name_in_file(files, model, place.name);
    if (param.role == Role::embed) embedding = name;
    if (!checked.insert(place.name).second) continue;  // q, k and v of one fused tensor
    if (files.file_of.count(name) > 0) used.insert(name);
    check_tensor(files, name, place);
  }
  check_unused(files, model, used, embedding);
  if (!files.problems.empty()) throw ConfigError(files.problems);
}

HfModel::~HfModel() = default;
HfModel::HfModel(HfModel&&) noexcept = default;

const ModelConfig& HfModel::model() const {
  return state_->model;
}
const std::string& HfModel::directory() const {
  return state_->files.directory;
}

void HfModel::read(const Param& param, const Box& box, std::span<float> out) const {
  for (std::size_t d = 0; d < 2; ++d) {
    COPUS_CHECK(
        box.begin[d] >= 0 && box.size[d] >= 0 && box.begin[d] + box.size[d] <= param.size[d],
        "a box lies inside " + param.name);
  }
  COPUS_CHECK(static_cast<std::int64_t>(out.size()) == box.numel(), "a box is read whole");
  if (box.empty()) return;
  HfPlace const place = hf_place(state_->model, param);
  std::string const name = name_in_file(state_->files, state_->model, place.name);
  if (place.transposed) {
    state_->read_transposed(name, place, box, out);
  } else {
    state_->read_rows(name, place, box, out);
  }
}

void HfModel::State::read_rows(const std::string& name, const HfPlace& place, const Box& box,
                               std::span<float> out) const {
  const SafetensorsFile& file = files.files[files.file_of.at(name)];
  std::int64_t const width = place.dims == 1 ? 0 : place.shape[1];
  auto const row_start = [&](std::int64_t row) {
    return place.first_column + (box.begin[0] + row) * width + box.begin[1];
  };
  if (box.size[0] == 1 || box.size[1] == width) {  // one stretch of the file
    file.read_f32(name, row_start(0), out);
    return;
  }
  auto const count = static_cast<std::size_t>(box.size[1]);
  for (std::int64_t row = 0; row < box.size[0]; ++row) {
    file.read_f32(name, row_start(row), out.subspan(static_cast<std::size_t>(row) * count, count));
  }
}

void HfModel::State::read_transposed(const std::string& name, const HfPlace& place, const Box& box,
                                     std::span<float> out) const {
  const SafetensorsFile& file = files.files[files.file_of.at(name)];
  // The file's rows are the box's columns. Tiles keep both sides of the copy in the cache.
  std::vector<float> tile(static_cast<std::size_t>(kTile * kTileWidth));
  for (std::int64_t col = 0; col < box.size[1]; col += kTile) {
    std::int64_t const cols = std::min(kTile, box.size[1] - col);
    for (std::int64_t row = 0; row < box.size[0]; row += kTileWidth) {
      std::int64_t const rows = std::min(kTileWidth, box.size[0] - row);
      for (std::int64_t i = 0; i < cols; ++i) {
        std::int64_t const at =
            (box.begin[1] + col + i) * place.shape[1] + place.first_column + box.begin[0] + row;
        file.read_f32(name, at,
                      std::span(tile).subspan(static_cast<std::size_t>(i * kTileWidth),
                                              static_cast<std::size_t>(rows)));
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        float* const to = out.data() + (row + r) * box.size[1] + col;
        for (std::int64_t i = 0; i < cols; ++i) {
          to[i] = tile[static_cast<std::size_t>(i * kTileWidth + r)];
        }
      }
    }
  }
}

}  // namespace copus
