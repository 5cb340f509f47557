// Counts and batch schedules as people write them: "250M", "0:16 2M:64".
#include <fmt/format.h>

#include <limits>
#include <sstream>

#include "config_codec.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus {
namespace detail {
namespace {

int zeros_of(char suffix) {
  switch (suffix) {
    case 'K':
    case 'k':
      return 3;
    case 'M':
    case 'm':
      return 6;
    case 'B':
    case 'b':
      return 9;
    case 'T':
    case 't':
      return 12;
    default:
      return 0;
  }
}

// value * 10 + digit, or false where that leaves 64 bits.
bool append_digit(std::int64_t& value, int digit) {
  if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) return false;
  value = value * 10 + digit;
  return true;
}

}  // namespace

// Decimal arithmetic on the digits themselves: "0.1B" is exactly 100000000, and what is not whole
// is no count.
std::optional<std::int64_t> exact_count(const std::string& text) {
  std::string digits = text;
  int zeros = 0;
  if (!digits.empty() && zeros_of(digits.back()) > 0) {
    zeros = zeros_of(digits.back());
    digits.pop_back();
  }
  std::int64_t value = 0;
  bool point = false, any = false;
  for (char c : digits) {
    if (c == '.' && !point && any) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return {};
    any = true;
    if (point && zeros-- == 0) return {};
    if (!append_digit(value, c - '0')) return {};
  }
  if (!any || digits.back() == '.') return {};
  for (; zeros > 0; --zeros)
    if (!append_digit(value, 0)) return {};
  return value;
}

}  // namespace detail

std::int64_t parse_count(const std::string& text, const std::string& key) {
  if (std::optional<std::int64_t> const value = detail::exact_count(text)) return *value;
  throw ConfigError(
      fmt::format("{}: \"{}\" is not a count; it takes a whole number below 2^63, like 250000000 "
                  "or 250M (K, M, "
                  "B, T)",
                  key, text));
}

std::vector<BatchStep> parse_batch_schedule(const std::string& text, const std::string& key) {
  std::vector<BatchStep> steps;
  std::vector<std::string> problems;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::size_t const colon = word.find(':');
    std::optional<std::int64_t> tokens, sequences;
    if (colon != std::string::npos) {
      tokens = detail::exact_count(word.substr(0, colon));
      sequences = detail::exact_count(word.substr(colon + 1));
    }
    if (!tokens || !sequences || *sequences < 1 || *sequences > detail::kLargestSize) {
      problems.push_back(
          fmt::format("{}: \"{}\" is not a step; it takes TOKENS:SEQUENCES, like 2M:64, with at "
                      "least 1 sequence",
                      key, word));
      continue;
    }
    if (!steps.empty() && *tokens <= steps.back().tokens)
      problems.push_back(
          fmt::format("{}: step \"{}\" is not after the one before it, at token {}; token counts "
                      "ascend strictly",
                      key, word, steps.back().tokens));
    steps.push_back({*tokens, *sequences});
  }
  if (problems.empty() && (steps.empty() || steps.front().tokens != 0))
    problems.push_back(fmt::format(
        "{}: \"{}\" does not say what happens from token 0 on; the first step is 0:SEQUENCES", key,
        text));
  if (!problems.empty()) throw ConfigError(problems);
  return steps;
}

std::string to_string(const std::vector<BatchStep>& schedule) {
  std::string text;
  for (const BatchStep& step : schedule)
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", step.tokens, step.sequences);
  return text;
}

std::int64_t batch_at(const BatchConfig& batch, std::int64_t tokens) {
  std::int64_t sequences = batch.sequences;
  for (const BatchStep& step : batch.schedule)
    if (step.tokens <= tokens) sequences = step.sequences;
  return sequences;
}

}  // namespace copus
