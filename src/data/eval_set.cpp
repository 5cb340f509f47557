#include <fmt/format.h>

#include <algorithm>

#include "copus/core/error.h"
#include "copus/core/log.h"
#include "copus/data/loader.h"
#include "data/token_set.h"

namespace copus {

struct EvalSet::State {
  std::int64_t seq_len = 0, tokens = 0;
  std::vector<detail::TokenSet> sets;
  std::vector<SourceSummary> summary;
  std::vector<std::int64_t> first_window{0};  // of each set, and the end
  std::vector<std::int64_t> predictions;      // of each set, cut by the limit
};

EvalSet::EvalSet(const std::vector<DataSource>& sources, std::int64_t seq_len, std::int64_t vocab,
                 std::int64_t tokens, const std::string& prefix, Log& log)
    : state_(std::make_unique<State>()) {
  COPUS_CHECK(seq_len >= 1, "a window has at least one token");
  std::string const key = prefix.empty() ? "--data" : "data.val";
  std::vector<std::string> problems;
  State& s = *state_;
  s.seq_len = seq_len;
  s.sets = detail::open_sources(sources, {key, prefix, vocab, seq_len}, log, problems);
  for (const detail::TokenSet& set : s.sets) {
    if (set.tokens() >= 2) continue;
    problems.push_back(fmt::format("{}: {}: 1 token predicts nothing; at least 2 are needed", key,
                                   set.shards().front().path()));
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  for (std::size_t i = 0; i < s.sets.size(); ++i) {
    std::int64_t count = s.sets[i].tokens() - 1;
    if (tokens > 0) count = std::min(count, tokens - s.tokens);
    std::int64_t const windows = (count + seq_len - 1) / seq_len;
    s.predictions.push_back(count);
    s.tokens += count;
    s.first_window.push_back(s.first_window.back() + windows);
    s.summary.push_back(detail::summarize(sources[i], s.sets[i], windows));
  }
}

EvalSet::~EvalSet() = default;
EvalSet::EvalSet(EvalSet&&) noexcept = default;

std::int64_t EvalSet::windows() const {
  return state_->first_window.back();
}
std::int64_t EvalSet::tokens() const {
  return state_->tokens;
}
const std::vector<SourceSummary>& EvalSet::summary() const {
  return state_->summary;
}

void EvalSet::window(std::int64_t index, std::span<std::int32_t> inputs,
                     std::span<std::int32_t> targets) const {
  const State& s = *state_;
  auto const length = static_cast<std::size_t>(s.seq_len);
  COPUS_CHECK(index >= 0 && index < windows(), "a window of this set");
  COPUS_CHECK(inputs.size() == length && targets.size() == length,
              "a window has seq_len inputs and targets");
  auto const set = static_cast<std::size_t>(
      std::upper_bound(s.first_window.begin(), s.first_window.end(), index) -
      s.first_window.begin() - 1);
  std::int64_t const first = (index - s.first_window[set]) * s.seq_len;
  auto const count = static_cast<std::size_t>(std::min(s.seq_len, s.predictions[set] - first));
  s.sets[set].read(first, inputs.first(count));
  s.sets[set].read(first + 1, targets.first(count));
  std::fill(inputs.begin() + static_cast<std::ptrdiff_t>(count), inputs.end(), 0);
  std::fill(targets.begin() + static_cast<std::ptrdiff_t>(count), targets.end(), -1);
}

}  // namespace copus
