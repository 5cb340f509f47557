// The JSON header of a safetensors file, checked as if an enemy had written it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "copus/state/safetensors.h"

namespace copus {

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Headers longer than this are refused before they are read, as the format's own library does.
constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Bytes of one element; 0 for a type the format does not know.
std::int64_t safetensors_element_bytes(std::string_view dtype);

// `data_bytes` follow the header in the file. The tensors must tile them exactly. Throws a
// ConfigError that names `path`, the tensor and what is wrong.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const std::string& path);

}  // namespace copus
