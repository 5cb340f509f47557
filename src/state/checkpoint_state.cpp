#include "state/checkpoint_state.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/plan/planner_memory.h"

namespace copus {
namespace {

using nlohmann::json;

json to_json(const ModelConfig& m) {
  json out = {{"family", std::string(name_of(m.family))},
              {"layers", m.layers},
              {"hidden", m.hidden},
              {"heads", m.heads},
              {"kv_heads", m.kv_heads},
              {"ffn", m.ffn},
              {"vocab", m.vocab},
              {"seq_len", m.seq_len},
              {"max_positions", m.max_positions},
              {"tie_embeddings", m.tie_embeddings},
              {"rope_theta", m.rope_theta},
              {"rope_scaling", nullptr},
              {"norm_eps", m.norm_eps},
              {"dropout", m.dropout}};
  if (m.rope_scaling) {
    out["rope_scaling"] = {{"type", std::string(name_of(m.rope_scaling->kind))},
                           {"factor", m.rope_scaling->factor},
                           {"low_freq_factor", m.rope_scaling->low_freq_factor},
                           {"high_freq_factor", m.rope_scaling->high_freq_factor},
                           {"original_max_positions", m.rope_scaling->original_max_positions}};
  }
  return out;
}

ModelConfig model_from(const json& in, const std::string& directory) {
  ModelConfig m;
  auto const family = in.at("family").get<std::string>();
  bool known = false;
  for (Family const f : {Family::llama, Family::qwen2, Family::gpt2}) {
    if (family != name_of(f)) continue;
    m.family = f;
    known = true;
  }
  if (!known) {
    throw ConfigError(
        fmt::format("{}/{}: damaged: model.family is \"{}\"", directory, kStateFile, family));
  }
  m.layers = in.at("layers").get<std::int64_t>();
  m.hidden = in.at("hidden").get<std::int64_t>();
  m.heads = in.at("heads").get<std::int64_t>();
  m.kv_heads = in.at("kv_heads").get<std::int64_t>();
  m.ffn = in.at("ffn").get<std::int64_t>();
  m.vocab = in.at("vocab").get<std::int64_t>();
  m.seq_len = in.at("seq_len").get<std::int64_t>();
  m.max_positions = in.at("max_positions").get<std::int64_t>();
  m.tie_embeddings = in.at("tie_embeddings").get<bool>();
  m.rope_theta = in.at("rope_theta").get<double>();
  m.norm_eps = in.at("norm_eps").get<double>();
  m.dropout = in.at("dropout").get<double>();
  if (const json& rope = in.at("rope_scaling"); !rope.is_null()) {
    m.rope_scaling =
        RopeScaling{rope.at("factor").get<double>(), rope.at("low_freq_factor").get<double>(),
                    rope.at("high_freq_factor").get<double>(),
                    rope.at("original_max_positions").get<std::int64_t>(),
                    // Absent in checkpoints from before there was a choice.
                    rope.value("type", "llama3") == name_of(RopeKind::linear) ? RopeKind::linear
                                                                              : RopeKind::llama3};
  }
  return m;
}

// Every number of a record under its own name: written and read by one list.
template <class History, class Field>
requires std::is_same_v<std::remove_const_t<History>, GnsHistory>
void for_fields(History& h, const Field& field) {
  field("estimates", h.estimates);
  field("tokens", h.tokens);
  field("one_micro_batch", h.one_micro_batch);
  field("weight", h.weight);
  field("weight_share", h.weight_share);
  field("trace", h.trace);
  field("signal", h.signal);
  field("trace_noise_factor", h.trace_noise.factor);
  field("trace_noise_unit", h.trace_noise.unit);
  field("signal_noise_factor", h.signal_noise.factor);
  field("signal_noise_unit", h.signal_noise.unit);
  field("covariance_factor", h.covariance.factor);
  field("covariance_unit", h.covariance.unit);
  field("unit_share", h.unit_share);
  field("double_count_seen", h.double_count.seen);
  field("double_count_mean_square", h.double_count.mean_square);
  field("double_count_sum", h.double_count.sum);
  field("double_count_sum_squares", h.double_count.sum_squares);
  field("double_count_evidence", h.double_count.evidence);
}

template <class Plan, class Field>
requires std::is_same_v<std::remove_const_t<Plan>, ChosenPlan>
void for_fields(Plan& p, const Field& field) {
  field("dp", p.dp);
  field("tp", p.tp);
  field("pp", p.pp);
  field("virtual_stages", p.virtual_stages);
  field("zero", p.zero);
  field("sequence_parallel", p.sequence_parallel);
  field("micro", p.micro);
  field("batch", p.batch);
}

template <class Record>
json fields_to_json(const Record& record) {
  json out = json::object();
  for_fields(record, [&](const char* name, const auto& value) { out[name] = value; });
  return out;
}

template <class Record>
Record fields_from(const json& in) {
  Record record;
  for_fields(record, [&](const char* name, auto& value) { in.at(name).get_to(value); });
  return record;
}

json to_json(const Counters& c) {
  return {{"step", c.step},
          {"tokens", c.tokens},
          {"samples", c.samples},
          {"seed", c.seed},
          {"updates", c.updates},
          {"beta1_product", c.beta1_product},
          {"beta2_product", c.beta2_product},
          {"skipped_in_a_row", c.skipped_in_a_row},
          {"reference_batch", c.reference_batch},
          {"gns", fields_to_json(c.gns)},
          {"plan", fields_to_json(c.plan)}};
}

Counters counters_from(const json& in) {
  Counters c;
  c.step = in.at("step").get<std::int64_t>();
  c.tokens = in.at("tokens").get<std::int64_t>();
  c.samples = in.at("samples").get<std::int64_t>();
  c.seed = in.at("seed").get<std::uint64_t>();
  c.updates = in.at("updates").get<std::int64_t>();
  c.beta1_product = in.at("beta1_product").get<double>();
  c.beta2_product = in.at("beta2_product").get<double>();
  c.skipped_in_a_row = in.at("skipped_in_a_row").get<std::int64_t>();
  c.reference_batch = in.at("reference_batch").get<std::int64_t>();
  // Checkpoints from before the noise scale was measured have none.
  if (in.contains("gns")) c.gns = fields_from<GnsHistory>(in.at("gns"));
  if (in.contains("plan")) c.plan = fields_from<ChosenPlan>(in.at("plan"));
  return c;
}

}  // namespace

json make_state(const CheckpointSummary& summary, const FileSums& sums) {
  json state{{"format", kCheckpointFormat},     {"counters", to_json(summary.counters)},
             {"model", to_json(summary.model)}, {"optimizer", summary.has_optimizer},
             {"tokenizer", summary.tokenizer},  {"files", to_json(sums)}};
  if (summary.data != 0) state["data"] = to_hex(summary.data);
  if (!(summary.planner == PlannerMemory{})) {
    state["planner"] = json::parse(memory_text(summary.planner));
  }
  return state;
}

CheckpointSummary parse_state(const std::string& directory, FileSums& sums) {
  auto const state = read_state(directory);
  if (!state) {
    throw ConfigError(
        fmt::format("{}/{}: missing; this is not a checkpoint", directory, kStateFile));
  }
  try {
    sums = file_sums(*state, directory);
    CheckpointSummary summary;
    summary.model = model_from(state->at("model"), directory);
    summary.counters = counters_from(state->at("counters"));
    if (state->contains("planner")) {
      summary.planner = parse_memory(state->at("planner").dump(),
                                     fmt::format("{}/{}: planner", directory, kStateFile));
    }
    summary.has_optimizer = state->at("optimizer").get<bool>();
    summary.tokenizer = state->at("tokenizer").get<std::string>();
    summary.data = parse_hex(state->value("data", json())).value_or(0);
    for (const auto& [name, sum] : sums) {
      if (__builtin_add_overflow(summary.bytes, sum.bytes, &summary.bytes)) {
        throw ConfigError(fmt::format("{}/{}: damaged: its files' sizes do not fit 63 bits",
                                      directory, kStateFile));
      }
    }
    return summary;
  } catch (const json::exception& error) {
    throw ConfigError(fmt::format("{}/{}: damaged: {}", directory, kStateFile, error.what()));
  }
}

std::vector<std::string> model_differences(const ModelConfig& stored, const ModelConfig& wanted,
                                           const std::string& directory) {
  json const a = to_json(stored), b = to_json(wanted);
  std::vector<std::string> problems;
  for (const auto& [key, value] : a.items()) {
    // How long a window to train on and what to drop are the run's to choose.
    if (key == "seq_len" || key == "dropout" || value == b.at(key)) continue;
    if (wanted.is_gpt2() && key.rfind("rope_", 0) == 0) continue;  // it has none; files lack them
    problems.push_back(fmt::format("model.{}: {} is not accepted; {} holds a model with {}", key,
                                   b.at(key).dump(), directory, value.dump()));
  }
  return problems;
}

void require_same_model(const std::string& directory, const ModelConfig& model) {
  FileSums sums;
  std::vector<std::string> problems =
      model_differences(parse_state(directory, sums).model, model, directory);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void check_small_files(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::exists(directory + "/" + kStateFile, error)) return;
  FileSums sums;
  parse_state(directory, sums);
  std::vector<std::string> problems;
  for (const auto& [name, sum] : sums) {
    if (name.ends_with(".safetensors")) continue;
    std::string problem = file_problem(directory, name, sum, Depth::contents);
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace copus
