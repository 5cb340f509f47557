// The text of a hardware profile: one row a number, read, checked and written by the same table.
#include <fmt/format.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/plan/hardware.h"

namespace copus {
namespace {

using Json = nlohmann::json;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Number {
  std::string section, key;  // "matrix.fp32", "peak_flops"
  std::function<double(const Hardware&)> get;
  std::function<void(Hardware&, double)> set;
  bool required = true;
  bool positive = true;  // above 0; else 0 is a value too
  double high = kInfinity;
  double low = 0.0;

  std::string path() const { return section + "." + key; }
  bool holds(double x) const { return (positive ? x > 0.0 : x >= 0.0) && x >= low && x <= high; }
  std::string accepts() const {
    if (low > 0.0) return fmt::format("a number from {:g} up", low);
    std::string const least = positive ? "a number above 0" : "a number from 0 up";
    return high < kInfinity ? fmt::format("{}, at most {:g}", least, high) : least;
  }
};

template <class Get>
Number number(const std::string& section, const std::string& key, Get get) {
  return {section, key, [get](const Hardware& hw) { return static_cast<double>(get(hw)); },
          [get](Hardware& hw, double x) {
            auto& field = get(hw);
            field = static_cast<std::remove_reference_t<decltype(field)>>(x);
          }};
}

std::vector<Number> rates() {
  std::vector<Number> rows{
      number(
          "matrix.fp32", "peak_flops", [](auto& hw) -> auto& { return hw.fp32.peak_flops; }),
      number(
          "matrix.fp32", "efficiency", [](auto& hw) -> auto& { return hw.fp32.efficiency; }),
      number(
          "matrix.bf16", "peak_flops", [](auto& hw) -> auto& { return hw.bf16.peak_flops; }),
      number(
          "matrix.bf16", "efficiency", [](auto& hw) -> auto& { return hw.bf16.efficiency; }),
      number(
          "matrix", "half_size", [](auto& hw) -> auto& { return hw.half_size; }),
      number(
          "attention", "forward", [](auto& hw) -> auto& { return hw.attention_forward; }),
      number(
          "attention", "backward", [](auto& hw) -> auto& { return hw.attention_backward; }),
      number(
          "attention", "cudnn", [](auto& hw) -> auto& { return hw.cudnn; }),
      number(
          "memory", "bytes_per_second",
          [](auto& hw) -> auto& { return hw.memory_bytes_per_second; }),
      number(
          "memory", "bytes", [](auto& hw) -> auto& { return hw.memory_bytes; }),
      number(
          "memory", "reserved_bytes", [](auto& hw) -> auto& { return hw.reserved_bytes; })};
  for (Number& row : rows) {
    // A machine without bf16 leaves its rate out.
    if (row.section == "matrix.bf16") row.required = false;
    if (row.key == "efficiency" || row.section == "attention") row.high = 1.0;
    if (row.key == "half_size" || row.key == "reserved_bytes" || row.key == "cudnn") {
      row.positive = row.required = false;
    }
  }
  return rows;
}

std::vector<Number> links_and_host() {
  std::vector<Number> rows{
      number(
          "inside", "latency_seconds", [](auto& hw) -> auto& { return hw.inside.latency_seconds; }),
      number(
          "inside", "bytes_per_second",
          [](auto& hw) -> auto& { return hw.inside.bytes_per_second; }),
      number(
          "between", "latency_seconds",
          [](auto& hw) -> auto& { return hw.between.latency_seconds; }),
      number(
          "between", "bytes_per_second",
          [](auto& hw) -> auto& { return hw.between.bytes_per_second; }),
      number(
          "between", "efficiency", [](auto& hw) -> auto& { return hw.between_efficiency; }),
      number(
          "host", "launch_seconds", [](auto& hw) -> auto& { return hw.launch_seconds; }),
      number(
          "host", "layer_seconds", [](auto& hw) -> auto& { return hw.layer_seconds; }),
      number(
          "host", "alone", [](auto& hw) -> auto& { return hw.alone; }),
      number(
          "overlap", "reduce", [](auto& hw) -> auto& { return hw.overlap; }),
      number(
          "overlap", "zero", [](auto& hw) -> auto& { return hw.overlap_zero; }),
      number(
          "overlap", "messages", [](auto& hw) -> auto& { return hw.overlap_messages; })};
  for (Number& row : rows) {
    if (row.section != "inside") row.required = false;
    // Not measured: the cluster's internode_gbps_per_gpu counts.
    if (row.key != "bytes_per_second" || row.section == "between") row.positive = false;
    if (row.key == "efficiency") row.positive = true;
    if (row.key == "efficiency" || row.section == "overlap") row.high = 1.0;
    if (row.key == "alone") row.low = 1.0;
  }
  return rows;
}

std::vector<Number> table() {
  std::vector<Number> rows = rates();
  for (Number& row : links_and_host()) rows.push_back(std::move(row));
  return rows;
}

Json::json_pointer pointer_of(std::string path) {
  for (char& c : path) {
    if (c == '.') c = '/';
  }
  return Json::json_pointer("/" + path);
}

class Reader {
 public:
  Reader(const Json& document, const std::string& name) : document_(document), name_(name) {}

  Hardware read() {
    Hardware hw;
    words(hw);
    for (const Number& row : table()) {
      known_.insert(row.path());
      read_number(row, hw);
    }
    find_unknown(document_, "");
    if (problems_.empty() && hw.reserved_bytes >= hw.memory_bytes) {
      problem(fmt::format("memory.reserved_bytes: {} leaves nothing of memory.bytes {}",
                          hw.reserved_bytes, hw.memory_bytes));
    }
    if (!problems_.empty()) throw ConfigError(problems_);
    return hw;
  }

 private:
  void problem(const std::string& what) { problems_.push_back(name_ + ": " + what); }

  void words(Hardware& hw) {
    for (auto [key, field] : {std::pair{"name", &hw.name}, std::pair{"source", &hw.source}}) {
      known_.insert(key);
      if (!document_.contains(key)) {
        problem(fmt::format("{}: missing; it takes a text", key));
      } else if (!document_[key].is_string()) {
        problem(fmt::format("{}: {} is not accepted; it takes a text", key, document_[key].dump()));
      } else {
        *field = document_[key].get<std::string>();
      }
    }
  }

  void read_number(const Number& row, Hardware& hw) {
    Json::json_pointer const pointer = pointer_of(row.path());
    if (!document_.contains(pointer)) {
      if (row.required) problem(fmt::format("{}: missing; it takes {}", row.path(), row.accepts()));
      return;
    }
    const Json& value = document_.at(pointer);
    // Bytes stay where a double counts them exactly.
    constexpr double kLargest = 9007199254740992.0;
    bool const fits = value.is_number() && row.holds(value.get<double>()) &&
                      (row.section != "memory" || value.get<double>() < kLargest);
    if (fits) {
      row.set(hw, value.get<double>());
    } else {
      problem(fmt::format("{}: {} is not accepted; it takes {}", row.path(), value.dump(),
                          row.accepts()));
    }
  }

  void find_unknown(const Json& node, const std::string& prefix) {
    for (const auto& [key, value] : node.items()) {
      std::string const path = prefix.empty() ? key : prefix + "." + key;
      if (known_.contains(path)) continue;
      auto const below = known_.lower_bound(path + ".");
      bool const section = below != known_.end() && below->starts_with(path + ".");
      if (section && value.is_object()) {
        find_unknown(value, path);
      } else if (section) {
        problem(fmt::format("{}: {} is not accepted; it takes an object", path, value.dump()));
      } else {
        std::string const near = nearest_name(path, names_in(prefix));
        problem(
            fmt::format("{}: unknown{}", path, near.empty() ? "" : "; did you mean " + near + "?"));
      }
    }
  }

  // The keys and sections that may stand there.
  std::vector<std::string> names_in(const std::string& prefix) const {
    std::set<std::string> names;
    std::size_t const from = prefix.empty() ? 0 : prefix.size() + 1;
    for (const std::string& path : known_) {
      if (prefix.empty() || path.starts_with(prefix + ".")) {
        names.insert(path.substr(0, path.find('.', from)));
      }
    }
    return {names.begin(), names.end()};
  }

  const Json& document_;
  const std::string& name_;
  std::set<std::string> known_;
  std::vector<std::string> problems_;
};

}  // namespace

Hardware parse_hardware(const std::string& json_text, const std::string& name) {
  Json document;
  try {
    constexpr bool kThrow = true, kComments = true;
    document = Json::parse(json_text, nullptr, kThrow, kComments);
  } catch (const Json::exception& error) {
    throw ConfigError(fmt::format("{}: {}", name, error.what()));
  }
  if (!document.is_object()) {
    throw ConfigError(name + ": a hardware profile is one object {...}; docs/planner.md has it");
  }
  return Reader(document, name).read();
}

std::string hardware_json(const Hardware& hardware) {
  Json document = {{"name", hardware.name}, {"source", hardware.source}};
  for (const Number& row : table()) {
    double const value = row.get(hardware);
    if (!row.required && value == 0.0 && row.positive) continue;  // no bf16
    document[pointer_of(row.path())] = value;
  }
  return document.dump(2) + "\n";
}

}  // namespace copus
