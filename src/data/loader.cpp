#include "copus/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "copus/core/error.h"
#include "copus/core/log.h"
#include "copus/core/rng.h"
#include "data/mixture.h"
#include "data/token_set.h"
#include "data/xxh3.h"

namespace copus {
namespace {

// One source is shuffled by the run's seed itself; further ones by seeds of their own, or two
// sources of one size would go through the same order.
std::uint64_t seed_of(std::uint64_t seed, std::size_t source) {
  if (source == 0) return seed;
  RngStream const s = stream_of({.seed = seed, .purpose = RngPurpose::mixture});
  PhiloxWords const w = philox(s.key, source, s.high);
  return static_cast<std::uint64_t>(w.word[0]) << 32 | w.word[1];
}

void check_request(const DataConfig& data, std::int64_t seq_len,
                   std::vector<std::string>& problems) {
  COPUS_CHECK(seq_len >= 1, "a window has at least one token");
  if (data.train.empty()) problems.emplace_back("data.train: no source given");
  if (data.epochs && *data.epochs < 1) {
    problems.push_back(fmt::format("data.epochs: {}; accepted: 1 or more", *data.epochs));
  }
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    double const weight = data.train[i].weight;
    if (!(weight > 0) || !std::isfinite(weight)) {
      problems.push_back(fmt::format("data.train[{}]: {}: weight {}; accepted: a number above 0", i,
                                     data.train[i].path, weight));
    }
  }
}

}  // namespace

struct Loader::State {
  std::int64_t seq_len = 0, windows = 0, epochs = -1;
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::vector<detail::TokenSet> sets;
  std::vector<SourceSummary> summary;
  std::optional<detail::Mixture> mixture;  // of two or more sources

  detail::Draw draw(std::int64_t sample) const {
    return mixture ? (*mixture)(sample) : detail::Draw{0, sample};
  }
  // How many samples before `sample` came from the first source.
  std::int64_t first_source_before(std::int64_t sample) const;
};

std::int64_t Loader::State::first_source_before(std::int64_t sample) const {
  if (!mixture) return sample;
  // The next sample of the first source at or after `sample` knows; every source is in a period.
  detail::Draw next = draw(sample);
  while (next.source != 0) next = draw(++sample);
  return next.index;
}

Loader::Loader(const DataConfig& data, std::int64_t seq_len, std::int64_t vocab, std::uint64_t seed,
               Log& log)
    : state_(std::make_unique<State>()) {
  std::vector<std::string> problems;
  check_request(data, seq_len, problems);
  state_->sets =
      detail::open_sources(data.train, {"data.train", "train-", vocab, seq_len}, log, problems);
  for (const detail::TokenSet& set : state_->sets) {
    if (set.tokens() > seq_len) continue;
    problems.push_back(fmt::format(
        "data.train: {}: {} tokens hold no full window; a seq_len of {} needs at least {}",
        set.shards().front().path(), set.tokens(), seq_len, seq_len + 1));
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));

  state_->seq_len = seq_len;
  state_->shuffle = data.shuffle;
  state_->seed = seed;
  state_->epochs = data.epochs.value_or(-1);
  std::vector<double> weights;
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    std::int64_t const windows = (state_->sets[i].tokens() - 1) / seq_len;
    state_->windows += windows;
    state_->summary.push_back(detail::summarize(data.train[i], state_->sets[i], windows));
    weights.push_back(data.train[i].weight);
  }
  if (weights.size() > 1) state_->mixture.emplace(weights);
}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

void Loader::sample(std::int64_t index, std::span<std::int32_t> inputs,
                    std::span<std::int32_t> targets) const {
  const State& s = *state_;
  auto const length = static_cast<std::size_t>(s.seq_len);
  COPUS_CHECK(index >= 0 && inputs.size() == length && targets.size() == length,
              "a sample has seq_len inputs and targets");
  detail::Draw const draw = s.draw(index);
  std::int64_t const windows = s.summary[draw.source].windows;
  std::int64_t window = draw.index % windows;
  if (s.shuffle) {
    Permutation const order(static_cast<std::uint64_t>(windows), seed_of(s.seed, draw.source),
                            static_cast<std::uint64_t>(draw.index / windows));
    window = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(window)));
  }
  const detail::TokenSet& set = s.sets[draw.source];
  set.read(window * s.seq_len, inputs);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  set.read((window + 1) * s.seq_len, targets.last(1));
}

std::int64_t Loader::windows() const {
  return state_->windows;
}
std::int64_t Loader::epoch_of(std::int64_t index) const {
  COPUS_CHECK(index >= 0, "samples are counted from 0");
  return state_->first_source_before(index) / state_->summary.front().windows;
}
std::int64_t Loader::limit() const {
  std::int64_t samples = 0;
  if (state_->epochs < 0) return -1;
  // More epochs than an int64 counts samples of are as good as no limit.
  return __builtin_mul_overflow(state_->epochs, state_->windows, &samples) ? -1 : samples;
}
const std::vector<SourceSummary>& Loader::summary() const {
  return state_->summary;
}
std::uint64_t Loader::identity() const {
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < state_->sets.size(); ++i) {
    words.push_back(std::bit_cast<std::uint64_t>(state_->summary[i].weight));
    for (const TokenShard& shard : state_->sets[i].shards())
      words.push_back(shard.header().checksum);
  }
  return std::max<std::uint64_t>(1, XXH3_64bits(words.data(), words.size() * sizeof words[0]));
}

}  // namespace copus
