#include "copus/core/error.h"

#include <fmt/format.h>

namespace copus {
namespace {

std::string joined(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "\n") + problem;
  return text;
}

}  // namespace

ConfigError::ConfigError(std::string problem)
    : ConfigError(std::vector<std::string>{std::move(problem)}) {}

ConfigError::ConfigError(std::vector<std::string> problems)
    : std::runtime_error(joined(problems)), problems_(std::move(problems)) {}

namespace detail {

void check_failed(const char* condition, const std::string& message, const char* file, int line) {
  throw InternalError(fmt::format("{}:{}: {} (this is a bug in copus; it failed: {})", file, line,
                                  message, condition));
}

}  // namespace detail
}  // namespace copus
