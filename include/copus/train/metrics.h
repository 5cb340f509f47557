// metrics.jsonl: one JSON object a line, written at once. A disk that is full does not end a run:
// lines then wait in memory, and are written in order when there is room.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "copus/core/log.h"
#include "copus/parallel/layout.h"
#include "copus/train/trainer.h"

namespace copus {

class LineFile;

class MetricsFile {
 public:
  // Appends. Lines of steps after `last_step` (left by a run that went on past its checkpoint) are
  // cut off first; `log` hears of steps up to it that are missing, and of lines that wait.
  MetricsFile(const std::string& path, std::int64_t last_step, Log& log);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void step(const StepRecord& record, const Layout& layout, double tokens_per_second, double mfu);
  // `fields` gets "event", "step" and "tokens".
  void event(const std::string& name, const Counters& at, nlohmann::json fields);
  // What was written survives a power cut; a warning where it may not.
  void sync();

 private:
  void write(const nlohmann::json& line);
  void say_how_it_stands();

  std::string path_;
  Log& log_;
  std::unique_ptr<LineFile> file_;
  bool waits_ = false;        // as last said
  std::int64_t dropped_ = 0;  // likewise
};

// The most memory this process has held so far, in bytes.
std::int64_t peak_memory_bytes();

}  // namespace copus
