#include "copus/train/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "train/line_file.h"
#include "train/metrics_record.h"

namespace copus {
namespace {

// JSON has no NaN or infinity: null stands for them.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json spread(const Spread& s) {
  return {{"min", s.min}, {"median", s.median}, {"max", s.max}, {"max_rank", s.max_rank}};
}

nlohmann::json number(const std::optional<double>& value) {
  return value ? number(*value) : nlohmann::json(nullptr);
}

nlohmann::json as_json(const GnsReading& gns) {
  nlohmann::json out{{"trace", number(gns.trace)},
                     {"signal", number(gns.signal)},
                     {"critical_batch", number(gns.critical_batch)},
                     {"low", number(gns.low)},
                     {"high", number(gns.high)},
                     {"state", name_of(gns.state)},
                     {"trace_step", number(gns.trace_step)},
                     {"signal_step", number(gns.signal_step)}};
  if (!gns.reason.empty()) out["reason"] = gns.reason;
  if (gns.double_count) out["double_count"] = true;
  return out;
}

// Keeps the whole lines up to and including step `last_step`.
void cut_after(const std::string& path, std::int64_t last_step, Log& log) {
  MetricsRecord const record = read_metrics_record(path, last_step);
  if (std::filesystem::exists(path))
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(record.bytes));
  if (record.unreadable > 0)
    log.warn(
        fmt::format("{}: {} of its lines are none of a record, the first of them line {}: "
                    "they stay as they are",
                    path, record.unreadable, record.first_unreadable));
  if (record.steps == last_step) return;
  log.warn(
      fmt::format("{}: holds {} of the {} steps up to the checkpoint, the last of them step {}: "
                  "the lines of the others are lost",
                  path, record.steps, last_step, record.last_step));
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t last_step, Log& log)
    : path_(path), log_(log) {
  cut_after(path, last_step, log);
  file_ = std::make_unique<LineFile>(path);
}

MetricsFile::~MetricsFile() {
  file_->sync();
  if (file_->waiting() > 0)
    log_.warn(fmt::format("{}: its last {} lines are lost", file_->problem(), file_->waiting()));
}

void MetricsFile::write(const nlohmann::json& line) {
  file_->append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  say_how_it_stands();
}

void MetricsFile::say_how_it_stands() {
  bool const waits = file_->waiting() > 0;
  if (waits && !waits_)
    log_.warn(file_->problem() + "; its lines wait in memory until there is room");
  if (file_->dropped() > dropped_ && dropped_ == 0) {
    log_.warn(fmt::format("{}: {} lines wait, as many as are kept: further ones are lost", path_,
                          file_->waiting()));
  }
  if (!waits && waits_) log_.info(fmt::format("{}: the lines that waited are written", path_));
  waits_ = waits;
  dropped_ = file_->dropped();
}

void MetricsFile::sync() {
  std::string const problem = file_->sync();
  // That lines wait has been said.
  if (!problem.empty() && file_->waiting() == 0) log_.warn(problem);
  say_how_it_stands();
}

void MetricsFile::step(const StepRecord& r, const Layout& layout, double tokens_per_second,
                       double mfu) {
  nlohmann::json line{{"step", r.step},
                      {"tokens", r.tokens},
                      {"samples", r.samples},
                      {"loss", number(r.loss)},
                      {"grad_norm", number(r.grad_norm)},
                      {"lr", r.lr},
                      {"batch", r.batch},
                      {"micro_batch", r.micro},
                      {"dp", layout.dp},
                      {"tp", layout.tp},
                      {"pp", layout.pp},
                      {"seconds", r.seconds},
                      {"tokens_per_second", number(tokens_per_second)},
                      {"mfu", number(mfu)},
                      {"data_seconds", r.data_seconds},
                      {"peak_memory_bytes", peak_memory_bytes()}};
  if (layout.world() > 1) {
    line["rank_seconds"] = {{"compute", spread(r.compute)},
                            {"communication", spread(r.communication)},
                            {"data", spread(r.data)}};
  }
  if (r.pace) line["micro_batch_seconds"] = number(r.pace);
  if (r.predicted_seconds) line["predicted_seconds"] = number(r.predicted_seconds);
  if (r.gns) line["gns"] = as_json(*r.gns);
  write(line);
}

void MetricsFile::event(const std::string& name, const Counters& at, nlohmann::json fields) {
  nlohmann::json line{{"event", name}, {"step", at.step}, {"tokens", at.tokens}};
  line.update(fields);
  write(line);
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace copus
