#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "copus/core/error.h"
#include "copus/core/math.h"
#include "copus/state/safetensors.h"
#include "state/files.h"

namespace copus {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

// Built by hand because the tensors stand in the order of their bytes, not of their names.
std::string header_of(const std::vector<SafetensorsWriter::Item>& items,
                      const std::map<std::string, std::string>& metadata, DType dtype,
                      std::int64_t& data_bytes) {
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::set<std::string> names;
  data_bytes = 0;
  for (const SafetensorsWriter::Item& item : items) {
    COPUS_CHECK(names.insert(item.name).second && item.name != "__metadata__",
                fmt::format("tensor \"{}\" is written once", item.name));
    std::int64_t bytes = size_of(dtype);
    for (std::int64_t const size : item.shape) {
      COPUS_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes),
                  fmt::format("the shape of \"{}\" fits 63 bits", item.name));
    }
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json.size() > 1 ? "," : "", quoted(item.name),
                        dtype == DType::bf16 ? "BF16" : "F32", fmt::join(item.shape, ","),
                        data_bytes, data_bytes + bytes);
    data_bytes += bytes;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');  // aligns the data for readers that map the file
  return json;
}

}  // namespace

struct SafetensorsWriter::State {
  explicit State(const std::string& path) : sink(path) {}
  FileSink sink;
  DType dtype = DType::f32;
  std::int64_t bytes_left = 0;
  std::vector<std::uint16_t> rounded;
  FileSum sum;
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<Item>& items,
                                     const std::map<std::string, std::string>& metadata,
                                     DType dtype) {
  COPUS_CHECK(dtype == DType::f32 || dtype == DType::bf16, "weights are written as F32 or BF16");
  std::int64_t data_bytes = 0;
  std::string const header = header_of(items, metadata, dtype, data_bytes);
  state_ = std::make_unique<State>(path);
  state_->dtype = dtype;
  state_->bytes_left = data_bytes;
  std::uint64_t const length = header.size();
  char prefix[sizeof length];
  std::memcpy(prefix, &length, sizeof length);
  state_->sink.append(std::string_view(prefix, sizeof prefix));
  state_->sink.append(header);
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(std::span<const float> elements) {
  state_->bytes_left -= static_cast<std::int64_t>(elements.size()) * size_of(state_->dtype);
  COPUS_CHECK(state_->bytes_left >= 0, "no more elements are written than were announced");
  if (state_->dtype == DType::f32) {
    state_->sink.append(std::as_bytes(elements));
    return;
  }
  std::vector<std::uint16_t>& rounded = state_->rounded;
  rounded.resize(elements.size());
  std::transform(elements.begin(), elements.end(), rounded.begin(), math::to_bf16);
  state_->sink.append(std::as_bytes(std::span<const std::uint16_t>(rounded)));
}

void SafetensorsWriter::finish() {
  COPUS_CHECK(state_->bytes_left == 0, "all announced elements are written");
  state_->sum = state_->sink.finish();
}

std::int64_t SafetensorsWriter::file_bytes() const {
  return state_->sum.bytes;
}
std::uint64_t SafetensorsWriter::file_hash() const {
  return state_->sum.hash;
}

}  // namespace copus
