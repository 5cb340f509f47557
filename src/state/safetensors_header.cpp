#include "state/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "copus/core/error.h"

namespace copus {
namespace {

constexpr std::pair<std::string_view, std::int64_t> kElementBytes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
    {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};

// Reads the header as a stream of events: three levels and no more, so a deep or repetitive header
// builds nothing but the table itself.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& path) : header_(header), path_(path) {}

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(number_integer_t value) override {
    refuse(fmt::format("the number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    refuse("the number " + text.substr(0, 40));
  }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::shape && at_ != At::offsets) refuse(fmt::format("the number {}", value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(fmt::format("{} of tensor \"{}\": {} does not fit 63 bits", key_, name_, value));
    }
    (at_ == At::shape ? entry_.shape : offsets_).push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::metadata) {
      header_.metadata[key_] = value;
    } else if (at_ == At::tensor && key_ == "dtype") {
      entry_.dtype = value;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::start) {
      at_ = At::names;
    } else if (at_ == At::names && key_ == "__metadata__") {
      if (metadata_seen_) fail("\"__metadata__\" stands twice in the header");
      metadata_seen_ = true;
      at_ = At::metadata;
    } else if (at_ == At::names) {
      if (header_.tensors.count(key_) > 0) fail(fmt::format("tensor \"{}\" stands twice", key_));
      name_ = key_;
      entry_ = {};
      offsets_.clear();
      keys_.clear();
      at_ = At::tensor;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (at_ == At::metadata && header_.metadata.count(value) > 0) {
      fail(fmt::format("metadata \"{}\" stands twice", value));
    }
    if (at_ == At::tensor) {
      if (value != "dtype" && value != "shape" && value != "data_offsets") {
        fail(
            fmt::format("tensor \"{}\" has the key \"{}\"; a tensor has dtype, shape and "
                        "data_offsets",
                        name_, value));
      }
      if (std::find(keys_.begin(), keys_.end(), value) != keys_.end()) {
        fail(fmt::format("tensor \"{}\" has {} twice", name_, value));
      }
      keys_.push_back(value);
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    if (at_ == At::tensor) {
      finish_tensor();
    }
    at_ = at_ == At::names ? At::done : At::names;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ == At::tensor && key_ == "shape") {
      at_ = At::shape;
    } else if (at_ == At::tensor && key_ == "data_offsets") {
      at_ = At::offsets;
    } else {
      refuse("a list");
    }
    return true;
  }

  bool end_array() override {
    at_ = At::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(fmt::format("the header is not JSON (at its byte {})", position));
  }

 private:
  enum class At { start, names, metadata, tensor, shape, offsets, done };

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("{}: not a valid safetensors file: {}", path_, what));
  }
  [[noreturn]] void refuse(const std::string& found) const {
    fail(
        fmt::format("{} stands in the header where it has no meaning (after \"{}\")", found, key_));
  }

  void finish_tensor() {
    if (keys_.size() != 3) {
      fail(fmt::format("tensor \"{}\" lacks dtype, shape or data_offsets", name_));
    }
    if (offsets_.size() != 2) {
      fail(fmt::format("tensor \"{}\" has {} data_offsets, not 2", name_, offsets_.size()));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.tensors.emplace(name_, std::move(entry_));
  }

  SafetensorsHeader& header_;
  const std::string& path_;
  At at_ = At::start;
  std::string key_, name_;
  TensorEntry entry_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::string> keys_;
  bool metadata_seen_ = false;
};

// Empty when the tensor's type, shape and offsets agree and lie inside the data.
std::string entry_problem(const TensorEntry& entry, std::int64_t data_bytes) {
  std::int64_t const element = safetensors_element_bytes(entry.dtype);
  if (element == 0) return fmt::format("unknown dtype \"{}\"", entry.dtype);
  std::int64_t bytes = element;
  for (std::int64_t const size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return fmt::format("shape [{}] does not fit 63 bits", fmt::join(entry.shape, ", "));
    }
  }
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return fmt::format("data_offsets [{}, {}] lie outside the {} bytes of data in the file",
                       entry.begin, entry.end, data_bytes);
  }
  if (entry.end - entry.begin != bytes) {
    return fmt::format("data_offsets [{}, {}] hold {} bytes; {} of shape [{}] has {}", entry.begin,
                       entry.end, entry.end - entry.begin, entry.dtype,
                       fmt::join(entry.shape, ", "), bytes);
  }
  return "";
}

}  // namespace

std::int64_t safetensors_element_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kElementBytes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const std::string& path) {
  SafetensorsHeader header;
  HeaderReader reader(header, path);
  if (json.empty() || json.front() != '{') {
    throw ConfigError(fmt::format(
        "{}: not a valid safetensors file: its header does not begin with \"{{\"", path));
  }
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);

  std::vector<std::pair<std::string_view, const TensorEntry*>> by_offset;
  for (const auto& [name, entry] : header.tensors) {
    std::string const problem = entry_problem(entry, data_bytes);
    if (!problem.empty()) {
      throw ConfigError(
          fmt::format("{}: not a valid safetensors file: tensor \"{}\": {}", path, name, problem));
    }
    by_offset.emplace_back(name, &entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  // The format allows neither holes (where something could hide) nor overlaps.
  std::int64_t at = 0;
  for (const auto& [name, entry] : by_offset) {
    if (entry->begin != at) {
      throw ConfigError(fmt::format(
          "{}: not a valid safetensors file: tensor \"{}\" begins at byte {} of the data, {} the "
          "tensor before it, which ends at {}",
          path, name, entry->begin, entry->begin < at ? "overlapping" : "leaving a hole after",
          at));
    }
    at = entry->end;
  }
  if (at != data_bytes) {
    throw ConfigError(fmt::format(
        "{}: not a valid safetensors file: {} bytes of data, of which the tensors use {}", path,
        data_bytes, at));
  }
  return header;
}

}  // namespace copus
