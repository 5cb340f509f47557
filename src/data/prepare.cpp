#include "copus/data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "copus/core/error.h"
#include "copus/core/log.h"
#include "copus/core/rng.h"
#include "copus/core/units.h"
#include "data/documents.h"
#include "data/ordered_pipeline.h"
#include "data/shard_series.h"
#include "data/staging.h"

namespace copus {
namespace {

using detail::TokenPiece;
using Pipeline = detail::OrderedPipeline<TokenPiece>;

constexpr std::int64_t kFewestDocuments = 20;  // below: a val part of whole documents is too coarse
constexpr std::size_t kMostProblems = 10;
constexpr std::uint64_t kSplitSeed =
    0x636f707573;  // any; changing it changes which documents are val

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes read, rate and time left: twice a second on a terminal, every ten seconds as plain lines.
class Progress {
 public:
  Progress(Log& log, std::int64_t total) : log_(log), total_(total) {}
  void add(std::int64_t bytes) {
    done_ += bytes;
    double const now = seconds_since(start_);
    if (now - shown_ < (log_.console_is_terminal() ? 0.5 : 10.0)) return;
    shown_ = now;
    double const rate = static_cast<double>(done_) / now;
    double const left = rate > 0 ? static_cast<double>(total_ - done_) / rate : 0;
    std::string const line = fmt::format(
        "prepare: {} of {} ({:.0f}%), {}/s, {} left", human_bytes(static_cast<double>(done_)),
        human_bytes(static_cast<double>(total_)),
        100.0 * static_cast<double>(done_) / static_cast<double>(total_), human_bytes(rate),
        human_duration(left));
    log_.console_is_terminal() ? log_.live(line) : log_.info(line);
  }

 private:
  Log& log_;
  std::int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double shown_ = 0;
};

// Of each run of about 1/fraction documents, one drawn at random is for validation: a pure function
// of the document's number.
class ValDocuments {
 public:
  explicit ValDocuments(double fraction) : fraction_(fraction) {}
  bool operator()(std::int64_t document) const {
    auto const run =
        static_cast<std::int64_t>(std::floor((static_cast<double>(document) + 0.5) * fraction_));
    std::int64_t const first = first_of(run), size = first_of(run + 1) - first;
    RngStream const s = stream_of({.seed = kSplitSeed, .purpose = RngPurpose::shuffle});
    return document - first == random_bits(s, static_cast<std::uint64_t>(run)) % size;
  }

 private:
  // The first document d with floor((d + 0.5) fraction) = run.
  std::int64_t first_of(std::int64_t run) const {
    auto d = static_cast<std::int64_t>(static_cast<double>(run) / fraction_ - 0.5);
    while (d > 0 &&
           std::floor((static_cast<double>(d) - 0.5) * fraction_) >= static_cast<double>(run))
      --d;
    while (std::floor((static_cast<double>(d) + 0.5) * fraction_) < static_cast<double>(run)) ++d;
    return std::max<std::int64_t>(d, 0);
  }
  double fraction_;
};

// Everything that is read once and used by every pass over the input.
struct Job {
  Tokenizer tokenizer;
  std::vector<detail::TextInput> inputs;
  std::vector<detail::TextTask> tasks;
  int threads = 1;

  void run(const Pipeline::Consume& consume) const {
    Pipeline::run(
        tasks.size(), threads,
        [this](std::size_t task, const Pipeline::Emit& emit) {
          detail::tokenize(tasks[task], tokenizer, emit);
        },
        consume);
  }
};

Job check_options(const PrepareOptions& options) {
  std::vector<std::string> problems;
  Job job;
  try {
    job.tokenizer = open_tokenizer(options.tokenizer);
  } catch (const ConfigError& e) {
    problems.emplace_back(e.what());
  }
  if (!(options.val_fraction >= 0 && options.val_fraction <= 0.5)) {
    problems.push_back(fmt::format("val-fraction {}: accepted: 0 to 0.5", options.val_fraction));
  }
  if (options.shard_tokens < 2) {
    problems.push_back(fmt::format("shard-tokens {}: accepted: 2 or more", options.shard_tokens));
  }
  if (options.threads < 0 || options.threads > 4096) {
    problems.push_back(
        fmt::format("threads {}: accepted: 1 to 4096, or 0 for one a core", options.threads));
  }
  if (options.files.empty()) problems.emplace_back("no input file given");
  std::error_code error;
  if (options.out.empty()) {
    problems.emplace_back("no output directory given");
  } else if (std::filesystem::exists(options.out, error) &&
             !std::filesystem::is_directory(options.out, error)) {
    problems.push_back(fmt::format("{}: not a directory", options.out));
  } else if (std::size_t const old = detail::shards_in(options.out).size(); old && !options.force) {
    problems.push_back(
        fmt::format("{}: holds {} shards already; --force replaces them, or give another directory",
                    options.out, old));
  }
  job.inputs = detail::check_inputs(options.files, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  job.tasks = detail::cut_into_tasks(job.inputs);
  int const cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  job.threads = options.threads ? options.threads : cores;
  return job;
}

// Reads no further than it has to.
bool has_documents(const Job& job, std::int64_t wanted) {
  std::int64_t count = 0;
  job.run([&](TokenPiece&& piece) { return (count += piece.documents) < wanted; });
  return count >= wanted;
}

// Writes every piece, whole documents to one of two series; collects what is wrong in the input.
struct Writing {
  const Job& job;
  detail::ShardSeries &train, &val;
  const ValDocuments* chosen;  // none: everything is for training
  PrepareSummary& summary;
  Progress& progress;
  std::int64_t document = 0;  // number of the one being written
  std::vector<std::string> problems;

  void write(std::span<const std::int32_t> ids) {
    while (!ids.empty()) {
      auto const end = std::find(ids.begin(), ids.end(), job.tokenizer.end_of_text);
      bool const complete = end != ids.end();
      auto const count = static_cast<std::size_t>(end - ids.begin()) + (complete ? 1 : 0);
      ((*chosen)(document) ? val : train).append(ids.first(count));
      document += complete;
      ids = ids.subspan(count);
    }
  }
  bool take(TokenPiece&& piece) {
    summary.empty_documents += piece.empty_documents;
    summary.input_bytes += piece.input_bytes;
    problems.insert(problems.end(), piece.problems.begin(), piece.problems.end());
    if (problems.empty()) chosen ? write(piece.ids) : train.append(piece.ids);
    progress.add(piece.input_bytes);
    return problems.size() < kMostProblems;
  }
};

void write_all(const Job& job, Writing& writing) {
  try {
    job.run([&](TokenPiece&& piece) { return writing.take(std::move(piece)); });
  } catch (const ConfigError& e) {
    writing.problems.emplace_back(e.what());
  }
  if (!writing.problems.empty()) throw ConfigError(std::move(writing.problems));
  writing.train.finish();
  writing.val.finish();
  if (writing.train.total().tokens + writing.val.total().tokens == 0) {
    throw ConfigError("no text: every input is empty");
  }
}

std::int64_t tail_tokens(std::int64_t tokens, double fraction) {
  if (tokens < 2) {
    throw ConfigError(fmt::format("val-fraction {}: {} token cannot be split", fraction, tokens));
  }
  auto const wanted =
      static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(tokens)));
  return std::clamp<std::int64_t>(wanted, 1, tokens - 1);
}

}  // namespace

PrepareSummary prepare(const PrepareOptions& options, Log& log) {
  auto const start = std::chrono::steady_clock::now();
  Job const job = check_options(options);
  std::int64_t total = 0;
  for (const detail::TextInput& input : job.inputs) {
    total += input.bytes;
    if (input.bytes == 0) log.warn(fmt::format("{}: empty, skipped", input.path));
  }
  if (total == 0) throw ConfigError("no text: every input is empty");

  using Split = PrepareSummary::Split;
  PrepareSummary summary;
  double const fraction = options.val_fraction;
  if (fraction > 0) {
    auto const wanted =
        std::max(kFewestDocuments, static_cast<std::int64_t>(std::ceil(1.0 / fraction)) + 1);
    summary.split = has_documents(job, wanted) ? Split::documents : Split::tail;
  }
  detail::Staging staging(options.out);
  detail::ShardSeries train(staging.folder(), "train-", job.tokenizer, options.shard_tokens);
  detail::ShardSeries val(staging.folder(), "val-", job.tokenizer, options.shard_tokens);
  ValDocuments const chosen(fraction);
  Progress progress(log, total);
  Writing writing{job,     train,    val, summary.split == Split::documents ? &chosen : nullptr,
                  summary, progress, 0,   {}};
  write_all(job, writing);
  summary.train = train.total();
  if (summary.split == Split::tail) {
    detail::move_tail(train, tail_tokens(train.total().tokens, fraction), job.tokenizer, val,
                      summary.train);
    val.finish();
  }
  summary.val = val.total();
  staging.publish();
  summary.seconds = seconds_since(start);
  return summary;
}

std::string to_text(const PrepareSummary& s) {
  std::string text =
      fmt::format("{:<6} {:>7} {:>16} {:>12}\n", "part", "shards", "tokens", "documents");
  auto const row = [&](const char* name, const PrepareSummary::Part& part) {
    text +=
        fmt::format("{:<6} {:>7} {:>16} {:>12}\n", name, part.shards, part.tokens, part.documents);
  };
  row("train", s.train);
  if (s.split != PrepareSummary::Split::none) row("val", s.val);
  if (s.split == PrepareSummary::Split::documents) text += "val: whole documents, drawn evenly\n";
  if (s.split == PrepareSummary::Split::tail) {
    text += "val: the last tokens of the stream (too few documents to draw whole ones)\n";
  }
  if (s.empty_documents) text += fmt::format("left out: {} empty documents\n", s.empty_documents);
  text += fmt::format("{} read in {}\n", human_bytes(static_cast<double>(s.input_bytes)),
                      human_duration(s.seconds));
  return text;
}

}  // namespace copus
