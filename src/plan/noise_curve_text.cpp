// Noise-scale curves as a command line or a recorded run gives them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/json_text.h"
#include "copus/plan/noise_curve.h"

namespace copus {
namespace {

using nlohmann::json;

constexpr double kLeast = 1e-3, kMost = 1e12;  // noise scales, in sequences
constexpr double kSteepest = 4.0;              // exponents
constexpr const char* kForms =
    "power:B0,TOKENS0,EXPONENT or points:TOKENS:B,TOKENS:B,... or metrics:FILE";

std::optional<double> number_of(const std::string& text) {
  double value = 0.0;
  const char* const end = text.data() + text.size();
  auto const [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return {};
  return value;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  if (!text.empty() && text.back() == at) parts.emplace_back();
  return parts;
}

// Reads one curve's numbers; what it refuses is collected.
class Reader {
 public:
  explicit Reader(std::string key) : key_(std::move(key)) {}

  double noise_scale(const std::string& text) {
    std::optional<double> const value = number_of(text);
    if (!value || *value < kLeast || *value > kMost) {
      refuse(fmt::format("{}: \"{}\" is no noise scale; it takes sequences from {} to {:g}", key_,
                         text, kLeast, kMost));
    }
    return value.value_or(kLeast);
  }

  double tokens(const std::string& text, std::int64_t least) {
    std::int64_t value = least;
    try {
      value = parse_count(text, key_);
      if (value < least) {
        refuse(fmt::format("{}: \"{}\" tokens; it takes a count from {} up", key_, text, least));
      }
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) refuse(problem);
    }
    return static_cast<double>(value);
  }

  double exponent(const std::string& text) {
    std::optional<double> const value = number_of(text);
    if (!value || std::abs(*value) > kSteepest) {
      refuse(fmt::format("{}: \"{}\" is no exponent; it takes a number from {} to {}", key_, text,
                         -kSteepest, kSteepest));
    }
    return value.value_or(0.0);
  }

  void refuse(std::string problem) { problems_.push_back(std::move(problem)); }
  void finish() const {
    if (!problems_.empty()) throw ConfigError(problems_);
  }

 private:
  std::string key_;
  std::vector<std::string> problems_;
};

NoiseCurve power_law(const std::string& text, double error, const std::string& key) {
  std::vector<std::string> const parts = split(text, ',');
  if (parts.size() != 3) {
    throw ConfigError(
        fmt::format("{}: \"power:{}\" has {} values; it takes power:B0,TOKENS0,EXPONENT, for "
                    "example power:64,1B,0.5",
                    key, text, parts.size()));
  }
  Reader read(key);
  PowerLaw const law{read.noise_scale(parts[0]), read.tokens(parts[1], 1), read.exponent(parts[2])};
  read.finish();
  return NoiseCurve(law, error);
}

NoiseCurve pairs(const std::string& text, double error, const std::string& key) {
  Reader read(key);
  std::vector<NoisePoint> points;
  for (const std::string& pair : split(text, ',')) {
    std::vector<std::string> const parts = split(pair, ':');
    if (parts.size() != 2) {
      read.refuse(fmt::format(
          "{}: \"{}\" is no TOKENS:B; it takes points:TOKENS:B,TOKENS:B,..., for example "
          "points:0:64,10B:800",
          key, pair));
      continue;
    }
    double const at = read.tokens(parts[0], 0), value = read.noise_scale(parts[1]);
    if (!points.empty() && at <= points.back().useful_tokens) {
      read.refuse(
          fmt::format("{}: \"{}\" does not come after the point before it; it takes "
                      "tokens in ascending order",
                      key, pair));
    }
    points.push_back({at, value, value / (1.0 + error), value * (1.0 + error)});
  }
  if (text.empty()) {
    read.refuse(fmt::format("{}: \"points:\" has no point; it takes {}", key, kForms));
  }
  read.finish();
  return NoiseCurve(std::move(points));
}

// A recorded step, as far as a curve asks.
struct Recorded {
  double tokens = 0.0;
  std::int64_t batch = 0;
  std::optional<NoisePoint> noise;
};

std::optional<NoisePoint> warm_reading(const json& step) {
  if (!step.contains("gns") || step.at("gns").at("state") != "warm") return {};
  const json& gns = step.at("gns");
  NoisePoint const out{0.0, gns.at("critical_batch").get<double>(), gns.at("low").get<double>(),
                       gns.at("high").get<double>()};
  // An estimate so far off that no decision would take it says nothing here either.
  bool const usable = out.low > 0.0 && out.critical_batch >= out.low &&
                      out.high >= out.critical_batch && std::isfinite(out.high);
  return usable ? std::optional(out) : std::nullopt;
}

std::vector<Recorded> recorded_steps(const std::string& metrics, const std::string& name) {
  std::vector<Recorded> steps;
  std::istringstream lines(metrics);
  std::int64_t number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    try {
      json const line = nests_deeper(text) ? json() : json::parse(text);
      if (line.contains("event")) continue;
      Recorded step{line.at("tokens").get<double>(), line.at("batch").get<std::int64_t>(),
                    warm_reading(line)};
      bool const goes_on = step.tokens > (steps.empty() ? 0.0 : steps.back().tokens);
      if (!goes_on || step.batch < 1) {
        throw ConfigError(
            fmt::format("{}:{}: a step's tokens grow and its batch is 1 or more, here they are {} "
                        "and {}",
                        name, number, step.tokens, step.batch));
      }
      steps.push_back(std::move(step));
    } catch (const json::exception& error) {
      throw ConfigError(
          fmt::format("{}:{}: not a line of a run's metrics: {}", name, number, error.what()));
    }
  }
  return steps;
}

}  // namespace

NoiseCurve parse_noise_curve(const std::string& text, double error, const std::string& key) {
  std::size_t const colon = text.find(':');
  std::string const form = text.substr(0, colon);
  std::string const rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (form == "power") return power_law(rest, error, key);
  if (form == "points") return pairs(rest, error, key);
  throw ConfigError(fmt::format("{}: \"{}\" is no curve; it takes {}", key, text, kForms));
}

NoiseCurve recorded_noise_curve(const Config& config, const std::string& metrics,
                                const std::string& name) {
  std::vector<Recorded> const steps = recorded_steps(metrics, name);
  auto const first = std::find_if(steps.begin(), steps.end(),
                                  [](const Recorded& step) { return step.noise.has_value(); });
  if (first == steps.end()) {
    throw ConfigError(fmt::format(
        "{}: has no noise scale in the state warm; a run with adapt.mode log, suggest or act "
        "records one",
        name));
  }
  std::vector<NoisePoint> points;
  NoisePoint latest = *first->noise;  // also of the steps before it
  double before = 0.0;
  for (const Recorded& step : steps) {
    latest.useful_tokens +=
        (step.tokens - before) * useful_per_token(config, step.batch, latest.critical_batch);
    before = step.tokens;
    if (!step.noise) continue;
    double const at = latest.useful_tokens;
    latest = *step.noise;
    latest.useful_tokens = at;
    points.push_back(latest);
  }
  return NoiseCurve(std::move(points));
}

}  // namespace copus
