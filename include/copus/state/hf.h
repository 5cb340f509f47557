// Hugging Face models: their config.json, their tensor names, and how those map to our logical
// tensors.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/params.h"
#include "copus/state/safetensors.h"

namespace copus {

// config.json of a Hugging Face directory or of one of our checkpoints. Every unsupported or
// contradictory value is named.
ModelConfig read_hf_config(const std::string& directory);
nlohmann::json to_hf_config(const ModelConfig& model);

// Fills config.model's sizes from model.from (seq_len and dropout as the user gave them), then
// check_sizes. No-op without from.
void resolve_model(Config& config);

// The file's tensor that a logical tensor lives in, and where: GPT-2 keeps (in, out) and q, k, v
// side by side.
struct HfPlace {
  std::string name;                     // with the prefix Hugging Face writes
  std::array<std::int64_t, 2> shape{};  // of the file's tensor, dims as there
  int dims = 2;
  bool transposed = false;  // file element (i, j) is logical element (j, i)
  std::int64_t first_column =
      0;  // where q, k or v begin among the file's columns (transposed) or entries
};
HfPlace hf_place(const ModelConfig& model, const Param& param);

// How the files of one of our checkpoints are held against what its state.json says of them: by
// their sizes, or read to the end for their checksums. Among ranks one does that for all.
enum class Depth { sizes, contents };

// A model's weights in a directory: opened, every tensor's presence and shape checked; missing and
// unused ones all named.
class HfModel {
 public:
  HfModel(const std::string& directory, const ModelConfig& model, Depth depth = Depth::contents);
  ~HfModel();
  HfModel(HfModel&&) noexcept;
  // The elements of `box` of a logical tensor, row-major.
  void read(const Param& param, const Box& box, std::span<float> out) const;
  const ModelConfig& model() const;
  const std::string& directory() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
