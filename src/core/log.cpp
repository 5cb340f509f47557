#include "copus/core/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

#include "copus/core/console.h"
#include "copus/core/error.h"
#include "copus/core/printable.h"

namespace copus {
namespace {

// stderr: with --json, stdout is one JSON document and nothing else.
class ConsoleSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    standard_error().write({line.data(), line.size()});
  }
  void flush_() override {}
};

}  // namespace

struct Log::State {
  spdlog::logger logger{"copus"};
  std::string prefix;
  bool terminal = false;
  bool live_line = false;  // an unfinished line stands on the terminal
  bool file_failed = false;

  // A full disk ends no run; one sentence stands for all the lines that log.txt lacks.
  void say_of_file(const std::string& failure) {
    if (std::exchange(file_failed, true)) return;
    standard_error().write(
        fmt::format("warning: {}; the log may lack lines\n", printable(failure)));
  }

  void write(spdlog::level::level_enum level, std::string_view line) {
    if (live_line) {
      standard_error().write_now("\r\033[K");
      live_line = false;
    }
    logger.log(level, "{}{}", prefix, printable(line));
    logger.flush();
  }
};

Log::Log(int rank, bool console) : state_(std::make_unique<State>()) {
  if (rank != 0) state_->prefix = fmt::format("[rank {:02}] ", rank);
  if (console) {
    auto sink = std::make_shared<ConsoleSink>();
    sink->set_pattern("%v");
    state_->logger.sinks().push_back(std::move(sink));
    state_->terminal = isatty(STDERR_FILENO) == 1;
  }
}

Log::~Log() {
  if (state_ && state_->live_line) standard_error().write_now("\n");
}
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::attach_file(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern("%Y-%m-%d %H:%M:%S %v");
    state_->logger.sinks().push_back(std::move(sink));
    state_->logger.set_error_handler(
        [state = state_.get()](const std::string& failure) { state->say_of_file(failure); });
  } catch (const spdlog::spdlog_ex& e) {
    throw IoError(fmt::format("{}: cannot open the log file: {}", path, e.what()));
  }
}

void Log::info(std::string_view line) {
  state_->write(spdlog::level::info, line);
}
void Log::warn(std::string_view line) {
  state_->write(spdlog::level::warn, fmt::format("warning: {}", line));
}
void Log::error(std::string_view line) {
  state_->write(spdlog::level::err, fmt::format("error: {}", line));
}

void Log::live(std::string_view line) {
  if (!state_->terminal) return;
  if (standard_error().write_now(fmt::format("\r\033[K{}", line))) state_->live_line = true;
}

bool Log::console_is_terminal() const {
  return state_->terminal;
}

}  // namespace copus
