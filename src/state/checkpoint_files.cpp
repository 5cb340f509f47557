#include "state/checkpoint_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "copus/core/error.h"

namespace copus {
namespace {

using nlohmann::json;
constexpr std::int64_t kMaxStateBytes = std::int64_t{64} << 20;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;  // of one file

json field(const json& object, const char* key) {
  return object.is_object() ? object.value(key, json()) : json();
}

}  // namespace

std::optional<std::uint64_t> parse_hex(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoull(text, nullptr, 16);
}

std::string state_text(json state) {
  state.erase("checksum");
  // Keys are sorted and numbers round-trip, so the text of the parsed file is this text again.
  state["checksum"] = to_hex(hash_of(state.dump()));
  return state.dump(1) + "\n";
}

std::optional<json> read_state(const std::string& directory) {
  std::string const path = directory + "/" + kStateFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::string const text = read_json_file(path, kMaxStateBytes);
  json state = json::parse(text, nullptr, false);
  if (!state.is_object()) throw ConfigError(fmt::format("{}: damaged: not a JSON object", path));
  // Byte for byte what state_text wrote, its checksum included.
  if (state_text(state) != text) {
    throw ConfigError(fmt::format("{}: damaged: its checksum does not match", path));
  }
  json const format = state.value("format", json());
  if (format != kCheckpointFormat) {
    throw OtherFormat(
        fmt::format("{}: format is {}; accepted: {}", path, format.dump(), kCheckpointFormat));
  }
  return state;
}

json to_json(const FileSums& sums) {
  json out = json::object();
  for (const auto& [name, sum] : sums)
    out[name] = {{"bytes", sum.bytes}, {"xxh3", to_hex(sum.hash)}};
  return out;
}

FileSums file_sums(const json& state, const std::string& directory) {
  FileSums sums;
  json const files = state.value("files", json());
  if (!files.is_object()) {
    throw ConfigError(fmt::format("{}/{}: damaged: names no files", directory, kStateFile));
  }
  for (const auto& [name, entry] : files.items()) {
    auto const hash = parse_hex(field(entry, "xxh3"));
    auto const bytes = field(entry, "bytes");
    bool const counted = bytes.is_number_unsigned() && bytes.get<std::uint64_t>() <= kMostBytes;
    if (!hash || !counted || !is_file_name(name)) {
      throw ConfigError(fmt::format("{}/{}: damaged at file \"{}\"", directory, kStateFile, name));
    }
    sums[name] = {bytes.get<std::int64_t>(), *hash};
  }
  return sums;
}

std::string file_problem(const std::string& directory, const std::string& name, const FileSum& sum,
                         Depth depth) {
  std::string const path = directory + "/" + name;
  std::error_code error;
  auto const bytes = std::filesystem::file_size(path, error);
  if (error) return fmt::format("{}: missing ({})", path, error.message());
  if (static_cast<std::int64_t>(bytes) != sum.bytes) {
    return fmt::format("{}: {} bytes where {} were written", path, bytes, sum.bytes);
  }
  if (depth == Depth::contents && sum_of_file(path) != sum) {
    return fmt::format("{}: corrupt: its checksum does not match", path);
  }
  return "";
}

}  // namespace copus
