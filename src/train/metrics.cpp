#include "copus/train/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "copus/core/error.h"

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
void cut_after(const std::string& path, std::int64_t last_step) {
  std::ifstream in(path);
  if (!in) return;
  std::uintmax_t keep = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    nlohmann::json const object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || object.value("step", std::int64_t{0}) > last_step) break;
    keep += line.size() + 1;
  }
  in.close();
  std::filesystem::resize_file(path, keep);
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t last_step) : path_(path) {
  cut_after(path, last_step);
  file_ = std::fopen(path.c_str(), "a");
  if (file_ == nullptr)
    throw IoError(fmt::format("{}: cannot open for writing: {}", path, std::strerror(errno)));
}

MetricsFile::~MetricsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void MetricsFile::write(const nlohmann::json& line) {
  std::string const text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) {
    throw IoError(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  }
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
