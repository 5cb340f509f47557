// metrics.jsonl: one JSON object a line, flushed as soon as it is written.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "copus/parallel/layout.h"
#include "copus/train/trainer.h"

namespace copus {

class MetricsFile {
 public:
  // Appends. Lines of steps after `last_step` (left by a run that went on past its checkpoint) are
  // cut off first.
  MetricsFile(const std::string& path, std::int64_t last_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void step(const StepRecord& record, const Layout& layout, double tokens_per_second, double mfu);
  // `fields` gets "event", "step" and "tokens".
  void event(const std::string& name, const Counters& at, nlohmann::json fields);

 private:
  void write(const nlohmann::json& line);
  std::string path_;
  std::FILE* file_ = nullptr;
};

// The most memory this process has held so far, in bytes.
std::int64_t peak_memory_bytes();

}  // namespace copus
