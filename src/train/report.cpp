#include "copus/train/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "copus/core/config_io.h"
#include "copus/core/units.h"
#include "copus/parallel/params.h"

namespace copus {
namespace {

std::string kept(const std::string& name, const std::string& value) {
  return fmt::format("  {:<18}{}", name, value);
}

std::string schedule_text(const ScheduleConfig& s, const Config& c) {
  switch (s.kind) {
    case ScheduleKind::constant:
      return fmt::format("constant after {} tokens of warm-up",
                         human_count(static_cast<double>(s.warmup_tokens)));
    case ScheduleKind::cosine:
      return fmt::format(
          "cosine to {:g} x at {} tokens, {} of warm-up", s.min_lr_ratio,
          human_count(static_cast<double>(s.decay_tokens > 0 ? s.decay_tokens : c.train.tokens)),
          human_count(static_cast<double>(s.warmup_tokens)));
    case ScheduleKind::wsd:
      return fmt::format("warm-up {}, stable, decay over the last {} tokens to {:g} x",
                         human_count(static_cast<double>(s.warmup_tokens)),
                         human_count(static_cast<double>(s.decay_tokens)), s.min_lr_ratio);
  }
  return "";
}

std::string batch_text(const Config& c, std::int64_t micro) {
  std::string text;
  if (c.batch.schedule.empty()) {
    text = fmt::format("{} sequences", c.batch.sequences);
  } else {
    for (const BatchStep& step : c.batch.schedule) {
      text += fmt::format("{}{} from {} tokens", text.empty() ? "" : ", ", step.sequences,
                          human_count(static_cast<double>(step.tokens)));
    }
  }
  return fmt::format("{} of {} tokens, micro-batch {}{}", text, c.model.seq_len, micro,
                     c.batch.micro ? "" : " (auto)");
}

}  // namespace

std::vector<std::string> run_table(const Config& c, const Layout& layout, std::int64_t micro,
                                   const std::string& device, double peak_flops, bool listed) {
  const ModelConfig& m = c.model;
  double const parameters = static_cast<double>(parameter_count(m));
  return {
      "Run",
      kept("model",
           fmt::format(
               "{}: {} parameters, {} layers, width {}, {} heads ({} kv), ffn {}, vocab {}{}",
               name_of(m.family), human_count(parameters), m.layers, m.hidden, m.heads, m.kv_heads,
               m.ffn, m.vocab, m.tie_embeddings ? ", tied" : "")),
      kept("weights", m.from.empty() ? fmt::format("drawn from seed {}", c.train.seed)
                                     : "read from " + m.from),
      kept("tokens",
           fmt::format("{} ({:.2f} a parameter)", human_count(static_cast<double>(c.train.tokens)),
                       static_cast<double>(c.train.tokens) / parameters)),
      kept("batch", batch_text(c, micro)),
      kept("optimizer",
           fmt::format("{} lr {:g}, betas {:g} {:g}, eps {:g}, decay {:g}, clip {:g}, dropout {:g}",
                       c.optimizer.name, c.optimizer.lr, c.optimizer.beta1, c.optimizer.beta2,
                       c.optimizer.eps, c.optimizer.weight_decay, c.optimizer.clip, m.dropout)),
      kept("schedule", schedule_text(c.schedule, c)),
      kept("layout", to_string(layout)),
      kept("device", fmt::format("{}, {} matrix peak {:.0f} GFLOP/s", device,
                                 listed ? "listed" : "measured", peak_flops / 1e9)),
      kept("run directory", c.run_dir),
  };
}

std::vector<std::string> data_table(const std::vector<SourceSummary>& train,
                                    const std::vector<SourceSummary>& val, std::int64_t seq_len) {
  std::vector<std::string> lines{fmt::format("Data{:>34}{:>9}{:>11}{:>12}{:>10}", "shards",
                                             "tokens", "documents", "windows", "weight")};
  auto const add = [&](const char* use, const SourceSummary& s) {
    std::string const path =
        s.path.size() > 27 ? "..." + s.path.substr(s.path.size() - 24) : s.path;
    lines.push_back(fmt::format("  {:<6}{:<27}{:>3}{:>9}{:>11}{:>12}{:>10.3g}", use, path, s.shards,
                                human_count(static_cast<double>(s.tokens)),
                                human_count(static_cast<double>(s.documents)), s.windows,
                                s.weight));
  };
  for (const SourceSummary& s : train) add("train", s);
  for (const SourceSummary& s : val) add("val", s);
  if (val.empty()) lines.push_back("  val   none: no evaluation (data.val names one)");
  lines.push_back(fmt::format("  a window is {} tokens and the {} one further", seq_len, seq_len));
  return lines;
}

std::vector<std::string> memory_table(const MemoryPlan& plan) {
  std::vector<std::string> lines{"Memory (planned, reserved once)"};
  for (const MemorySegment& segment : plan.segments) {
    if (segment.bytes > 0) {
      lines.push_back(fmt::format(
          "  {:<26}{:>12}{:>7.1f} %", segment.name, human_bytes(static_cast<double>(segment.bytes)),
          100.0 * static_cast<double>(segment.bytes) / static_cast<double>(plan.total())));
    }
  }
  lines.push_back(
      fmt::format("  {:<26}{:>12}", "total", human_bytes(static_cast<double>(plan.total()))));
  return lines;
}

Progress::Progress(const Config& config, double flops_per_token, double peak_flops,
                   std::int64_t first_tokens)
    : config_(config),
      flops_per_token_(flops_per_token),
      peak_flops_(peak_flops),
      last_tokens_(first_tokens) {}

void Progress::add(const StepRecord& record) {
  double const rate =
      static_cast<double>(record.tokens - last_tokens_) / std::max(1e-9, record.seconds);
  double const data_share = record.data_seconds / std::max(1e-9, record.seconds);
  last_tokens_ = record.tokens;
  steps_ += 1;
  // The first step touches its memory for the first time; it is forgotten as soon as there is a
  // second.
  double const keep = steps_ <= 2 ? 0.0 : 0.9;
  recent_rate_ = keep * recent_rate_ + (1.0 - keep) * rate;
  recent_data_share_ = keep * recent_data_share_ + (1.0 - keep) * data_share;
}

double Progress::mfu_of(double tokens_per_second) const {
  return tokens_per_second * flops_per_token_ / peak_flops_;
}

// Steps at the present rate, and the checks that fall due between them.
double Progress::seconds_left(std::int64_t tokens) const {
  std::int64_t const end = config_.train.tokens, every = config_.adapt.check_every_tokens;
  double const steps =
      static_cast<double>(std::max<std::int64_t>(0, end - tokens)) / std::max(1e-9, recent_rate_);
  if (every == 0 || tokens >= end) return steps;
  // None at the end itself.
  auto const checks = static_cast<double>((end - 1) / every - tokens / every);
  return steps + checks * check_seconds_;
}

std::string Progress::line(const StepRecord& r) const {
  double const left =
      static_cast<double>(std::max<std::int64_t>(0, config_.train.tokens - r.tokens));
  double const done = 100.0 * (1.0 - left / static_cast<double>(config_.train.tokens));
  // Measured, and the planner's prediction of it.
  std::string const predicted = r.predicted_seconds ? fmt::format("{:.3f} s, {:.3f} predicted | ",
                                                                  r.seconds, *r.predicted_seconds)
                                                    : "";
  return fmt::format(
      "step {:>6} | {:>5} tokens {:>5.1f}% | loss {:>7.4f} | norm {:>7.3f} | lr {:.2e} | {:>6} "
      "tok/s | "
      "MFU {:>4.1f}% | data {:>3.1f}% | {}left {}",
      r.step, human_count(static_cast<double>(r.tokens)), done, r.loss, r.grad_norm, r.lr,
      human_count(recent_rate_), 100.0 * mfu_of(recent_rate_), 100.0 * recent_data_share_,
      predicted, human_duration(seconds_left(r.tokens)));
}

}  // namespace copus
