// Shared by the tests of state: a temporary folder, the golden models, whole reads.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "copus/core/error.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "support/temp_folder.h"

namespace copus::test {

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string golden(const std::string& name) {
  return std::string(COPUS_TEST_DIR) + "/golden/" + name;
}
inline const std::vector<std::string> kGolden = {"gpt2", "llama-gqa", "llama-tied", "qwen2"};

// A copy of a golden model that a test may damage.
inline std::string copy_golden(const TempFolder& folder, const std::string& name) {
  std::string const to = folder / name;
  std::filesystem::copy(golden(name), to);
  return to;
}

inline std::vector<float> read_all(const SafetensorsFile& file, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(file.tensors().at(name).numel()));
  file.read_f32(name, 0, values);
  return values;
}

inline nlohmann::json config_of(const std::string& directory) {
  return nlohmann::json::parse(read_bytes(directory + "/config.json"));
}
inline void set_config(const std::string& directory, const nlohmann::json& config) {
  write_bytes(directory + "/config.json", config.dump());
}

// A tensor apart from its file.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
inline std::vector<Tensor> tensors_of(const std::string& path) {
  SafetensorsFile const file = SafetensorsFile::open(path);
  std::vector<Tensor> all;
  for (const auto& [name, entry] : file.tensors())
    all.push_back({name, entry.shape, read_all(file, name)});
  return all;
}
inline void write_tensors(const std::string& path, const std::vector<Tensor>& tensors,
                          DType dtype = DType::f32) {
  std::vector<SafetensorsWriter::Item> items;
  for (const Tensor& t : tensors) items.push_back({t.name, t.shape});
  SafetensorsWriter writer(path, items, {}, dtype);
  for (const Tensor& t : tensors) writer.append(t.values);
  writer.finish();
}

// The bytes of a tensor as they stand in the file.
inline std::string raw_tensor(const std::string& path, const std::string& name) {
  std::string const bytes = read_bytes(path);
  std::uint64_t header = 0;
  bytes.copy(reinterpret_cast<char*>(&header), 8);
  TensorEntry const entry = SafetensorsFile::open(path).tensors().at(name);
  return bytes.substr(8 + header + static_cast<std::size_t>(entry.begin),
                      static_cast<std::size_t>(entry.end - entry.begin));
}

// Every problem of the ConfigError that `body` throws, joined; empty when it throws none.
template <class Body>
std::string problems_of(Body body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}
inline bool names(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A file in the format with an arbitrary header.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::uint64_t const n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

}  // namespace copus::test
