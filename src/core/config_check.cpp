// Rules between keys: sizes that must divide, batches that must fit, rules that need each other.
#include <fmt/format.h>

#include <algorithm>

#include "config_rules.h"

namespace copus {
namespace detail {
namespace {

// The multiples of `unit` around `value`, both at least one unit.
std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  std::int64_t const below = value / unit * unit;
  if (below == 0) return fmt::to_string(unit);
  return fmt::format("{} or {}", below, below + unit);
}

// The divisors of `value` around `wish`, looked for in its neighbourhood.
std::string nearest_divisors(std::int64_t value, std::int64_t wish) {
  constexpr std::int64_t kFarthest = 1 << 16;
  std::int64_t below = std::min(value, wish), above = wish;
  while (below > std::max<std::int64_t>(wish - kFarthest, 1) && value % below != 0) --below;
  while (above < std::min(value, wish + kFarthest) && value % above != 0) ++above;
  if (value % below != 0) below = 1;
  if (above > value || value % above != 0) return fmt::to_string(below);
  return fmt::format("{} or {}", below, above);
}

void check_model(const ModelConfig& m, Problems& problems) {
  auto const sized = [](auto... values) { return ((values > 0) && ...); };
  auto const divides = [&](std::int64_t whole, std::int64_t parts, const std::string& key,
                           const std::string& by) {
    if (!sized(whole, parts) || whole % parts == 0) return;
    problems.push_back(fmt::format("{}: {} is not a multiple of {} {}; nearest: {}", key, whole, by,
                                   parts, nearest_multiples(whole, parts)));
  };
  divides(m.hidden, m.heads, "model.hidden", "model.heads");
  divides(m.heads, m.kv_heads, "model.heads", "model.kv_heads");
  bool const odd_head =
      sized(m.hidden, m.heads) && m.hidden % m.heads == 0 && m.head_dim() % 2 != 0;
  if (odd_head && !m.is_gpt2())
    problems.push_back(fmt::format(
        "model.hidden: {} over {} heads makes heads of width {}, and RoPE rotates pairs; nearest: "
        "{}",
        m.hidden, m.heads, m.head_dim(), nearest_multiples(m.hidden, 2 * m.heads)));
  if (m.vocab == 1)
    problems.push_back("model.vocab: 1 is not accepted; it takes a count of token ids from 2 up");
  if (sized(m.seq_len, m.max_positions) && m.seq_len > m.max_positions)
    problems.push_back(
        fmt::format("model.seq_len: {} is more than the model's {} positions; it takes 1 to {}",
                    m.seq_len, m.max_positions, m.max_positions));
  if (m.rope_scaling && m.rope_scaling->kind == RopeKind::llama3 &&
      m.rope_scaling->low_freq_factor >= m.rope_scaling->high_freq_factor)
    problems.push_back(
        fmt::format("model.rope_scaling.low_freq_factor: {} is not below high_freq_factor {}",
                    m.rope_scaling->low_freq_factor, m.rope_scaling->high_freq_factor));
}

// One batch and how it is cut: over dp ranks, into micro-batches, those in groups of pp when the
// pipeline interleaves. 1 stands for "auto", which picks what fits.
struct Cut {
  std::int64_t dp = 1, micro = 1, group = 1;
  bool micro_given = false;
  std::int64_t unit() const { return dp * micro * group; }
};

Cut cut_of(const Config& config) {
  const ParallelConfig& p = config.parallel;
  bool const interleaved = p.virtual_stages.value_or(1) > 1;
  return {p.dp.value_or(1), config.batch.micro.value_or(1), interleaved ? p.pp.value_or(1) : 1,
          config.batch.micro.has_value()};
}

void check_batch(const std::string& where, std::int64_t sequences, const Cut& cut,
                 Problems& problems) {
  if (sequences <= 0 || sequences % cut.unit() == 0) return;
  std::string parts = fmt::format("micro-batch {} x dp {}", cut.micro, cut.dp);
  if (cut.group > 1) parts += fmt::format(" x pp {} (interleaved)", cut.group);
  std::string advice = nearest_multiples(sequences, cut.unit());
  std::int64_t const other = cut.dp * cut.group;
  if (cut.micro_given && sequences % other == 0)
    advice += fmt::format(", or micro {}", nearest_divisors(sequences / other, cut.micro));
  problems.push_back(fmt::format("{}: {} sequences are not a multiple of {} = {}; nearest: {}",
                                 where, sequences, parts, cut.unit(), advice));
}

// Every batch the run can come to use: the schedule's, or the one.
std::vector<BatchStep> steps_of(const BatchConfig& batch) {
  return batch.schedule.empty() ? std::vector<BatchStep>{{0, batch.sequences}} : batch.schedule;
}

std::string name_of_step(const Config& config, const BatchStep& step) {
  if (config.batch.schedule.empty()) return "batch.sequences";
  return fmt::format("batch.schedule step {}:{}", step.tokens, step.sequences);
}

void check_batches(const Config& config, Problems& problems) {
  const BatchConfig& batch = config.batch;
  if (batch.min > 0 && batch.max > 0 && batch.min > batch.max)
    problems.push_back(
        fmt::format("batch.min: {} is more than batch.max {}", batch.min, batch.max));
  for (const BatchStep& step : steps_of(batch)) {
    std::string const where = name_of_step(config, step);
    check_batch(where, step.sequences, cut_of(config), problems);
    if (step.sequences > 0 && step.sequences < batch.min)
      problems.push_back(
          fmt::format("{}: {} is below batch.min {}", where, step.sequences, batch.min));
    if (batch.max > 0 && step.sequences > batch.max)
      problems.push_back(
          fmt::format("{}: {} is above batch.max {}", where, step.sequences, batch.max));
  }
}

// Follows the script's switches: keys left out keep their value.
void check_script(const Config& config, Problems& problems) {
  Cut cut = cut_of(config);
  std::vector<BatchStep> batches = steps_of(config.batch);
  std::int64_t last_step = 0, last_tokens = -1;
  int pp = config.parallel.pp.value_or(1);
  int virtual_stages = config.parallel.virtual_stages.value_or(1);
  for (std::size_t i = 0; i < config.adapt.script.size(); ++i) {
    const ScriptedSwitch& entry = config.adapt.script[i];
    std::string const where = fmt::format("adapt.script[{}]", i);
    if (entry.step && *entry.step <= last_step)
      problems.push_back(
          fmt::format("{}.step: {} is not after the {} before it", where, *entry.step, last_step));
    if (entry.tokens && *entry.tokens <= last_tokens)
      problems.push_back(fmt::format("{}.tokens: {} is not after the {} before it", where,
                                     *entry.tokens, last_tokens));
    last_step = entry.step.value_or(last_step);
    last_tokens = entry.tokens.value_or(last_tokens);
    // A value that was refused where it was read is not looked at again.
    bool const readable = entry.dp.value_or(1) > 0 && entry.pp.value_or(1) > 0 &&
                          entry.micro.value_or(1) > 0 && entry.batch.value_or(1) > 0 &&
                          entry.virtual_stages.value_or(1) > 0;
    if (!readable) return;
    cut.dp = entry.dp.value_or(static_cast<int>(cut.dp));
    pp = entry.pp.value_or(pp);
    virtual_stages = entry.virtual_stages.value_or(virtual_stages);
    cut.group = virtual_stages > 1 ? pp : 1;
    cut.micro = entry.micro.value_or(cut.micro);
    cut.micro_given = cut.micro_given || entry.micro.has_value();
    if (entry.batch) batches = {{0, *entry.batch}};
    if (!entry.batch && !entry.dp && !entry.pp && !entry.micro && !entry.virtual_stages) continue;
    for (const BatchStep& step : batches) check_batch(where, step.sequences, cut, problems);
  }
}

void check_schedule(const Config& config, Problems& problems) {
  const ScheduleConfig& s = config.schedule;
  std::int64_t const tokens = config.train.tokens;
  if (s.kind == ScheduleKind::wsd && s.decay_tokens == 0)
    problems.push_back(
        "schedule.decay_tokens: missing; kind wsd takes the length of its final decay in tokens");
  if (s.kind == ScheduleKind::wsd && tokens > 0 && s.decay_tokens > tokens)
    problems.push_back(fmt::format(
        "schedule.decay_tokens: {} is longer than the run; it takes 1 to train.tokens {}",
        s.decay_tokens, tokens));
  if (s.kind == ScheduleKind::cosine && s.decay_tokens > 0 && s.decay_tokens < s.warmup_tokens)
    problems.push_back(fmt::format(
        "schedule.decay_tokens: {} ends the cosine before its warm-up of {} tokens; it takes more, "
        "or 0 for train.tokens",
        s.decay_tokens, s.warmup_tokens));
}

// What branched checks at an interval need: a noise scale to correct, losses, larger batches.
void check_branches(const Config& config, Problems& problems) {
  std::int64_t const every = config.adapt.check_every_tokens, most = config.batch.max;
  if (every == 0) return;
  auto const need = [&](const std::string& what) {
    problems.push_back(
        fmt::format("adapt.check_every_tokens: {} needs {}; it takes 0 here", every, what));
  };
  if (config.adapt.mode == AdaptMode::off)
    need("adapt.mode \"log\", \"suggest\" or \"act\", which is \"off\"");
  if (!config.data.train.empty() && config.data.val.empty())
    need("data.val, on which to measure losses");
  std::int64_t const first = config.batch.sequences;
  if (first > 0 && most < 2 * first) {
    need(fmt::format("a batch.max of {} or more (twice the batch of {}), which is {}", 2 * first,
                     first, most));
  }
}

}  // namespace

void check_rules(const Config& config, Problems& problems) {
  check_schedule(config, problems);
  check_branches(config, problems);
  if (config.adapt.objective != Objective::plain && config.batch_rule.lr != LrRule::sqrt)
    problems.push_back(fmt::format(
        "adapt.objective: \"{}\" needs batch_rule.lr \"sqrt\", which is \"{}\"; it takes \"plain\" "
        "here",
        name_of(config.adapt.objective), name_of(config.batch_rule.lr)));
}

void check_fit(const Config& config, Problems& problems) {
  check_model(config.model, problems);
  check_batches(config, problems);
  check_script(config, problems);
}

}  // namespace detail

std::vector<std::string> check_sizes(const Config& config) {
  std::vector<std::string> problems;
  const ModelConfig& m = config.model;
  struct Size {
    std::string_view name;
    std::int64_t value;
  };
  for (const Size& size :
       {Size{"layers", m.layers}, Size{"hidden", m.hidden}, Size{"heads", m.heads},
        Size{"kv_heads", m.kv_heads}, Size{"ffn", m.ffn}, Size{"vocab", m.vocab},
        Size{"seq_len", m.seq_len}, Size{"max_positions", m.max_positions}})
    if (size.value < 1)
      problems.push_back(
          fmt::format("model.{}: {} is not accepted; it takes 1 or more", size.name, size.value));
  detail::check_fit(config, problems);
  return problems;
}

}  // namespace copus
