#include "config_codec.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "config_keys.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus::detail {

bool Interval::holds(double x) const {
  bool const above = without_low ? x > low : x >= low;
  bool const below = without_high ? x < high : x <= high;
  return above && below;
}

std::string Interval::text() const {
  if (std::isinf(high)) return fmt::format("a number {} {}", without_low ? "above" : "from", low);
  return fmt::format("a number in {}{}, {}{}", without_low ? '(' : '[', low, high,
                     without_high ? ')' : ']');
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::optional<std::int64_t> count_of(const Json& value) {
  if (value.is_string()) return exact_count(value.get<std::string>());
  if (value.is_number_unsigned()) {
    std::uint64_t const number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  // 1e9 is a float to JSON and a count to its writer; up to 2^53 it is exact.
  if (value.is_number_float()) {
    double const number = value.get<double>();
    if (std::abs(number) <= 9007199254740992.0 && number == std::floor(number))
      return static_cast<std::int64_t>(number);
  }
  return {};
}

namespace {

Codec<std::int64_t> counted(std::int64_t lowest, std::int64_t highest, const std::string& what) {
  return {what,
          [lowest, highest](const Json& value, std::int64_t& out, const std::string&, Problems&) {
            std::optional<std::int64_t> const number = count_of(value);
            if (!number || *number < lowest || *number > highest) return false;
            out = *number;
            return true;
          },
          [](const std::int64_t& value) { return Json(value); }};
}

}  // namespace

Codec<std::int64_t> count(std::int64_t lowest, const std::string& what) {
  return counted(
      lowest, std::numeric_limits<std::int64_t>::max(),
      fmt::format("{} from {} up, as a number or like \"250M\" (K, M, B, T)", what, lowest));
}

Codec<std::int64_t> size(std::int64_t lowest, const std::string& what) {
  return counted(lowest, kLargestSize, fmt::format("{} from {} to {}", what, lowest, kLargestSize));
}

Codec<int> small_whole(int lowest, int highest, const std::string& what) {
  return {fmt::format("{} from {} to {}", what, lowest, highest),
          [lowest, highest](const Json& value, int& out, const std::string&, Problems&) {
            std::optional<std::int64_t> const number = count_of(value);
            if (!number || *number < lowest || *number > highest) return false;
            out = static_cast<int>(*number);
            return true;
          },
          [](const int& value) { return Json(value); }};
}

Codec<std::uint64_t> seed_number() {
  return {"a whole number from 0 to 2^64 - 1",
          [](const Json& value, std::uint64_t& out, const std::string&, Problems&) {
            bool const whole = value.is_number_unsigned() ||
                               (value.is_number_integer() && value.get<std::int64_t>() >= 0);
            if (whole) out = value.get<std::uint64_t>();
            return whole;
          },
          [](const std::uint64_t& value) { return Json(value); }};
}

Codec<double> real(const Interval& range) {
  return {range.text(),
          [range](const Json& value, double& out, const std::string&, Problems&) {
            if (!value.is_number() || !range.holds(value.get<double>())) return false;
            out = value.get<double>();
            return true;
          },
          [](const double& value) { return Json(value); }};
}

Codec<bool> flag() {
  return {"true or false",
          [](const Json& value, bool& out, const std::string&, Problems&) {
            if (!value.is_boolean()) return false;
            out = value.get<bool>();
            return true;
          },
          [](const bool& value) { return Json(value); }};
}

Codec<std::string> text(const std::string& what) {
  return {what,
          [](const Json& value, std::string& out, const std::string&, Problems&) {
            if (!value.is_string() || value.get_ref<const std::string&>().empty()) return false;
            out = value.get<std::string>();
            return true;
          },
          [](const std::string& value) { return value.empty() ? Json() : Json(value); }, true};
}

Codec<std::string> word(std::vector<std::string> words) {
  return {fmt::format("one of {}", fmt::join(words, ", ")),
          [words](const Json& value, std::string& out, const std::string&, Problems&) {
            if (std::find(words.begin(), words.end(), value) == words.end()) return false;
            out = value.get<std::string>();
            return true;
          },
          [](const std::string& value) { return Json(value); }, true};
}

Codec<std::vector<BatchStep>> batch_schedule() {
  return {"steps TOKENS:SEQUENCES like \"0:16 2M:64\", or \"\"",
          [](const Json& value, std::vector<BatchStep>& out, const std::string& path,
             Problems& problems) {
            if (!value.is_string()) return false;
            try {
              if (value != "") out = parse_batch_schedule(value.get<std::string>(), path);
            } catch (const ConfigError& error) {
              problems.insert(problems.end(), error.problems().begin(), error.problems().end());
            }
            return true;
          },
          [](const std::vector<BatchStep>& value) { return Json(to_string(value)); }, true};
}

Codec<std::optional<StepWindow>> step_window() {
  return {"steps FIRST-LAST like \"20-22\", counted from 1, or \"\"",
          [](const Json& value, std::optional<StepWindow>& out, const std::string&, Problems&) {
            if (!value.is_string()) return false;
            out.reset();
            const std::string& text = value.get_ref<const std::string&>();
            if (text.empty()) return true;
            std::size_t const dash = text.find('-');
            auto const first = exact_count(text.substr(0, dash));
            auto const last =
                dash == std::string::npos ? first : exact_count(text.substr(dash + 1));
            if (!first || !last || *first < 1 || *last < *first) return false;
            out = StepWindow{*first, *last};
            return true;
          },
          [](const std::optional<StepWindow>& value) {
            return Json(value ? fmt::format("{}-{}", value->first, value->last) : std::string());
          },
          true};
}

namespace {

bool read_source(const Json& value, DataSource& out, const std::string& path, Problems& problems) {
  if (value.is_string() && value != "") {
    out.path = value.get<std::string>();
    return true;
  }
  if (!value.is_object()) return false;
  std::set<std::string> given;
  read_keys(value, "", path, source_table(), out, given, problems);
  if (!given.contains("path"))
    problems.push_back(path + ".path: missing; it takes " + source_table().front().accepts);
  return true;
}

bool read_switch(const Json& value, ScriptedSwitch& out, const std::string& path,
                 Problems& problems) {
  if (!value.is_object()) return false;
  std::set<std::string> given;
  std::size_t const before = problems.size();
  read_keys(value, "", path, script_table(), out, given, problems);
  if (problems.size() > before) return true;  // a mistyped key explains what else is missing
  if (given.contains("tokens") == given.contains("step"))
    problems.push_back(path + ": takes exactly one of tokens and step (when the switch happens)");
  if (given.size() < 2)
    problems.push_back(path + ": changes nothing; give batch, micro, dp, tp or pp");
  return true;
}

// A list whose entries `read` fills; `lone`: one entry may stand without brackets.
template <class T>
Codec<std::vector<T>> list_of(const std::string& accepts, bool lone,
                              bool (*read)(const Json&, T&, const std::string&, Problems&),
                              const Table<T>& (*table)()) {
  return {accepts,
          [lone, read](const Json& value, std::vector<T>& out, const std::string& path,
                       Problems& problems) {
            out.clear();
            if (!value.is_array()) return lone && read(value, out.emplace_back(), path, problems);
            bool all = true;
            for (std::size_t i = 0; i < value.size(); ++i)
              all = read(value[i], out.emplace_back(), fmt::format("{}[{}]", path, i), problems) &&
                    all;
            return all;
          },
          [table](const std::vector<T>& value) {
            Json list = Json::array();
            for (const T& entry : value) list.push_back(write_keys(table(), entry));
            return list;
          }};
}

}  // namespace

Codec<std::vector<DataSource>> data_sources() {
  return list_of<DataSource>(
      "a directory, glob or shard, or a list of them or of {\"path\", \"weight\"}", true,
      read_source, source_table);
}

Codec<std::vector<ScriptedSwitch>> script() {
  return list_of<ScriptedSwitch>(
      "a list of {\"tokens\" or \"step\": N, and any of \"batch\", \"micro\", \"dp\", \"tp\", "
      "\"pp\"}",
      false, read_switch, script_table);
}

}  // namespace copus::detail
