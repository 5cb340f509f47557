#include "copus/plan/planner_memory.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "plan/layout_json.h"

namespace copus {
namespace {

using nlohmann::json;

template <class Shape, class Field>
void for_sums(Shape& s, const Field& field) {
  field("alpha", s.predicted.alpha);
  field("beta", s.predicted.beta);
  field("weight", s.weight);
  field("m", s.m);
  field("mm", s.mm);
  field("t", s.t);
  field("mt", s.mt);
  field("beta_weight", s.beta_weight);
  field("beta_sum", s.beta);
  field("residual", s.residual);
  field("share", s.share);
}

json to_json(const LiveShape& s) {
  json out{{"layout", detail::to_json(s.shape.layout)},
           {"micro", s.shape.micro},
           {"recompute", name_of(s.shape.recompute)}};
  for_sums(s, [&](const char* name, double value) { out[name] = value; });
  return out;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw ConfigError(what);
}

double at_least_zero(const json& in, const std::string& name, const char* key) {
  auto const value = in.at(key).get<double>();
  require(std::isfinite(value) && value >= 0.0,
          fmt::format("{}: {} is {}; a number from 0 up", name, key, value));
  return value;
}

LiveShape shape_from(const json& in, const std::string& name) {
  LiveShape s;
  s.shape.layout = detail::layout_from(in.at("layout"), name);
  s.shape.micro = in.at("micro").get<std::int64_t>();
  s.shape.recompute = detail::recompute_from(in.at("recompute").get<std::string>(), name);
  for_sums(s, [&](const char* key, double& value) { value = at_least_zero(in, name, key); });
  // What is divided by.
  require(s.shape.micro >= 1 && s.weight > 0.0 && s.m > 0.0 && s.t > 0.0 && s.predicted.beta > 0.0,
          name + ": a shape's micro, weight, m, t and beta are above 0");
  return s;
}

}  // namespace

std::string memory_text(const PlannerMemory& memory) {
  json shapes = json::array(), held = json::array(), trend = json::array();
  for (const LiveShape& s : memory.live.shapes) shapes.push_back(to_json(s));
  for (const HeldBack& h : memory.state.held) {
    held.push_back({{"layout", detail::to_json(h.layout)},
                    {"micro", h.micro},
                    {"until_step", h.until_step},
                    {"failures", h.failures}});
  }
  for (const NoiseTrend::Point& p : memory.trend.points) {
    trend.push_back({p.tokens, p.log_critical_batch});
  }
  return json{{"shapes", shapes},
              {"level", memory.live.level},
              {"held", held},
              {"trend", trend},
              {"last_change_step", memory.state.last_change_step},
              {"switch_seconds", memory.switch_seconds},
              {"micro_seconds", memory.micro_seconds},
              {"correction", memory.correction}}
      .dump();
}

PlannerMemory parse_memory(const std::string& text, const std::string& name) try {
  json const in = json::parse(text);
  PlannerMemory memory;
  for (const json& s : in.at("shapes")) memory.live.shapes.push_back(shape_from(s, name));
  for (const json& h : in.at("held")) {
    // Checkpoints before refusals counted have them as rollbacks.
    const json& failures = h.at(h.contains("rollbacks") ? "rollbacks" : "failures");
    memory.state.held.push_back(
        {detail::layout_from(h.at("layout"), name), h.at("micro").get<std::int64_t>(),
         h.at("until_step").get<std::int64_t>(), failures.get<std::int64_t>()});
    require(memory.state.held.back().failures >= 1, name + ": held.failures is 1 or more");
  }
  for (const json& p : in.at("trend")) {
    memory.trend.points.push_back({p.at(0).get<double>(), p.at(1).get<double>()});
  }
  memory.state.last_change_step = in.at("last_change_step").get<std::int64_t>();
  memory.switch_seconds = at_least_zero(in, name, "switch_seconds");
  memory.micro_seconds = at_least_zero(in, name, "micro_seconds");
  // These two are not in files of earlier versions.
  if (in.contains("level")) {
    memory.live.level = in.at("level").get<double>();
    require(std::abs(memory.live.level) < 20.0, name + ": level is a logarithm, within 20 of 0");
  }
  if (in.contains("correction")) memory.correction = at_least_zero(in, name, "correction");
  require(memory.correction > 0.0, name + ": correction is above 0");
  return memory;
} catch (const json::exception& error) {
  throw ConfigError(fmt::format("{}: damaged: {}", name, error.what()));
}

}  // namespace copus
