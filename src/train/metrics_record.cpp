#include "train/metrics_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "copus/core/json_text.h"
#include "state/files.h"

namespace copus {
namespace {

std::int64_t whole_number(const nlohmann::json& line, const char* key, std::int64_t otherwise) {
  auto const found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

}  // namespace

MetricsRecord read_metrics_record(const std::string& path, std::int64_t last_step) {
  MetricsRecord record;
  std::ifstream in(path);
  std::int64_t number = 0;
  for (std::string text; std::getline(in, text) && !in.eof();) {
    ++number;
    nlohmann::json const line =
        nests_deeper(text) ? nlohmann::json() : nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object()) {
      // Damage of one line takes none of the others.
      if (record.unreadable++ == 0) record.first_unreadable = number;
      record.bytes += static_cast<std::int64_t>(text.size()) + 1;
      continue;
    }
    std::int64_t const step = whole_number(line, "step", 0);
    if (step > last_step) break;
    record.bytes += static_cast<std::int64_t>(text.size()) + 1;
    if (!line.contains("event")) {
      if (step <= record.last_step) continue;
      ++record.steps;
      record.last_step = step;
    } else if (line["event"] == "checkpoint") {
      record.saved_step = whole_number(line, "of_step", step);
    }
  }
  return record;
}

std::string set_metrics_aside(const std::string& path) {
  std::filesystem::path const folder = std::filesystem::path(path).parent_path();
  std::string aside;
  for (int i = 1; aside.empty() || std::filesystem::exists(aside); ++i)
    aside = (folder / fmt::format("metrics-before-{}.jsonl", i)).string();
  // There under both names first: a run killed in between can be resumed. A file system without
  // links moves it.
  if (::link(path.c_str(), aside.c_str()) != 0) rename_path(path, aside);
  replace_text_file(path, "");
  return aside;
}

}  // namespace copus
