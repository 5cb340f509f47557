#include "copus/data/prepare.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "copus/core/log.h"
#include "data/documents.h"
#include "data/ordered_pipeline.h"
#include "unit/data/shard_support.h"

namespace copus {
namespace {
using namespace test;
using Catch::Contains;
using Ids = std::vector<std::int32_t>;
using Split = PrepareSummary::Split;

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A file that deflate cannot shorten much, so that its .gz is larger than one read.
std::string noise(std::size_t size) {
  std::string text(size, '\0');
  std::uint64_t state = 88172645463325252ull;
  for (char& c : text) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state);
  }
  return text;
}

PrepareSummary run(const TempFolder& folder, const std::vector<std::string>& names,
                   PrepareOptions options = {}) {
  Log log(0, false);
  log.attach_file(folder / "log.txt");
  options.out = folder / "out";
  options.files.clear();
  for (const std::string& name : names) options.files.push_back(folder / name);
  return prepare(options, log);
}

Ids all_ids(const TempFolder& folder, const std::string& prefix) {
  Ids all;
  for (const std::string& name : names_in(folder / "out")) {
    if (name.rfind(prefix, 0) != 0) continue;
    Ids const part = ids_of(folder / ("out/" + name));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Ids document(const std::string& text) {
  Ids ids;
  for (char const c : text) ids.push_back(static_cast<unsigned char>(c));
  ids.push_back(256);
  return ids;
}
Ids documents(const std::vector<std::string>& texts) {
  Ids all;
  for (const std::string& text : texts) {
    Ids const one = document(text);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST_CASE("D14: documents of all four kinds of file stand in order, each with one end of text") {
  TempFolder const folder;
  write_file(folder / "a.txt", "alpha\n");
  write_file(folder / "b.jsonl", "{\"text\": \"one\"}\r\n\n{\"id\": 1, \"text\": \"tw\\u00f6\"}");
  write_file(folder / "c.txt.gz", gzipped("gamma") + gzipped(" delta"));
  write_file(folder / "d.jsonl.gz",
             gzipped("{\"text\":\"x\"}\n{\"text\":\"\"}\n{\"text\":\"y\\n\"}\n"));
  write_file(folder / "e", std::string("\xff\x00\xfe", 3));
  PrepareSummary const s = run(folder, {"a.txt", "b.jsonl", "c.txt.gz", "d.jsonl.gz", "e"});
  CHECK(all_ids(folder, "train-") == documents({"alpha\n", "one", "tw\xc3\xb6", "gamma delta", "x",
                                                "y\n", std::string("\xff\x00\xfe", 3)}));
  CHECK(s.train.documents == 7);
  CHECK(s.empty_documents == 1);
  CHECK(s.split == Split::none);
  CHECK(names_in(folder / "out") == std::vector<std::string>{"train-00000.bin"});
  CHECK(TokenShard::open(folder / "out/train-00000.bin").header().documents == 7);
  CHECK_THAT(to_text(s), Contains("train") && Contains("7") && Contains("1 empty"));
}

TEST_CASE("the shards do not depend on the number of threads, and large files are cut unseen") {
  std::string lines;
  for (int i = 0; i < 20000; ++i) {
    lines += "{\"text\": \"line " + std::to_string(i) +
             std::string(static_cast<std::size_t>(i % 200), 'x') + "\"}\n";
  }
  std::string const text = noise(2'500'000);
  std::vector<std::string> outputs[3];
  for (int const threads : {1, 2, 7}) {
    TempFolder const folder;
    write_file(folder / "a.txt", text);
    write_file(folder / "b.jsonl", lines);
    write_file(folder / "c.jsonl.gz", gzipped(lines));
    write_file(folder / "d.gz", gzipped(text));
    PrepareOptions options;
    options.threads = threads;
    options.val_fraction = 0.01;
    options.shard_tokens = 1'500'000;
    PrepareSummary const s = run(folder, {"a.txt", "b.jsonl", "c.jsonl.gz", "d.gz"}, options);
    CHECK(s.train.documents + s.val.documents == 40002);
    std::vector<std::string>& output = outputs[threads == 1 ? 0 : threads == 2 ? 1 : 2];
    for (const std::string& name : names_in(folder / "out")) {
      output.push_back(name + read_file(folder / ("out/" + name)));
    }
  }
  CHECK(outputs[0].size() > 5);
  CHECK(outputs[0] == outputs[1]);
  CHECK(outputs[0] == outputs[2]);
}

TEST_CASE("lines of a jsonl file are read once wherever its tasks are cut") {
  TempFolder const folder;
  std::string const lines =
      "{\"text\":\"a\"}\n\n{\"text\":\"bcdefg\"}\n{\"text\":\"h\"}\n{\"text\":\"ij\"}";
  write_file(folder / "x.jsonl", lines);
  std::vector<std::string> problems;
  auto const inputs = detail::check_inputs({folder / "x.jsonl"}, problems);
  REQUIRE(problems.empty());
  Tokenizer const bytes = open_tokenizer("bytes");
  for (std::int64_t cut = 1; cut <= static_cast<std::int64_t>(lines.size()) + 1; ++cut) {
    Ids ids;
    for (const detail::TextTask& task : detail::cut_into_tasks(inputs, cut)) {
      detail::tokenize(task, bytes, [&](detail::TokenPiece piece) {
        ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
      });
    }
    INFO("cut every " << cut);
    REQUIRE(ids == documents({"a", "bcdefg", "h", "ij"}));
  }
}

TEST_CASE("shards hold no more than the asked tokens and join to the whole stream") {
  TempFolder const folder;
  write_file(folder / "a.txt", std::string(95, 'q'));
  write_file(folder / "b.txt", std::string(103, 'r'));
  PrepareOptions options;
  options.shard_tokens = 50;
  PrepareSummary const s = run(folder, {"a.txt", "b.txt"}, options);
  CHECK(s.train.shards == 4);
  CHECK(s.train.tokens == 200);
  for (int i = 0; i < 4; ++i) {
    CHECK(ids_of(folder / ("out/train-0000" + std::to_string(i) + ".bin")).size() == 50);
  }
  CHECK(all_ids(folder, "train-") == documents({std::string(95, 'q'), std::string(103, 'r')}));
}

TEST_CASE("with enough documents the val part is whole documents in the asked proportion") {
  TempFolder const folder;
  std::string lines;
  std::vector<std::string> texts;
  for (int i = 0; i < 1000; ++i) {
    texts.push_back("document " + std::to_string(i));
    lines += "{\"text\": \"" + texts.back() + "\"}\n";
  }
  write_file(folder / "a.jsonl", lines);
  PrepareOptions options;
  options.val_fraction = 0.05;
  PrepareSummary const s = run(folder, {"a.jsonl"}, options);
  CHECK(s.split == Split::documents);
  CHECK(std::abs(s.val.documents - 50) <= 1);
  CHECK(s.train.documents + s.val.documents == 1000);
  // Every document is in exactly one part.
  Ids const train = all_ids(folder, "train-");
  Ids const val = all_ids(folder, "val-");
  Ids merged;
  auto t = train.begin(), v = val.begin();
  for (const std::string& text : texts) {
    Ids const one = document(text);
    auto const n = std::ssize(one);
    bool const in_val = val.end() - v >= n && std::equal(one.begin(), one.end(), v);
    bool const in_train = train.end() - t >= n && std::equal(one.begin(), one.end(), t);
    REQUIRE(in_val != in_train);
    (in_val ? merged.insert(merged.end(), one.begin(), one.end()) : merged.end());
    in_val ? void(v += n) : void(t += n);
  }
  CHECK(merged == val);
  CHECK(t == train.end());
}

TEST_CASE("the smallest sufficient number of documents yields both parts for any fraction") {
  for (double const fraction : {0.5, 0.4, 0.3, 0.1, 0.04, 0.013}) {
    TempFolder const folder;
    int const count = std::max(20, static_cast<int>(std::ceil(1 / fraction)) + 1);
    for (int const n : {count - 1, count}) {
      std::string lines;
      for (int i = 0; i < n; ++i) lines += "{\"text\": \"abc\"}\n";
      write_file(folder / "a.jsonl", lines);
      PrepareOptions options;
      options.val_fraction = fraction;
      options.force = true;
      PrepareSummary const s = run(folder, {"a.jsonl"}, options);
      INFO("fraction " << fraction << ", " << n << " documents");
      CHECK(s.split == (n == count ? Split::documents : Split::tail));
      CHECK(s.val.tokens > 0);
      CHECK(s.train.tokens > 0);
      CHECK(s.train.tokens + s.val.tokens == 4 * n);
    }
  }
}

TEST_CASE("with few documents the val part is the tail of the stream, exactly") {
  TempFolder const folder;
  std::string const a(299, 'a'), b(99, 'b');
  write_file(folder / "a.txt", a);
  write_file(folder / "b.txt", b);
  Ids const all = documents({a, b});
  for (std::int64_t const shard_tokens : {1000, 400, 90, 60, 20, 7}) {
    PrepareOptions options;
    options.val_fraction = 0.15;  // 60 of 400 tokens
    options.shard_tokens = shard_tokens;
    options.force = true;
    PrepareSummary const s = run(folder, {"a.txt", "b.txt"}, options);
    INFO("shards of " << shard_tokens);
    CHECK(s.split == Split::tail);
    CHECK(all_ids(folder, "train-") == Ids(all.begin(), all.end() - 60));
    CHECK(all_ids(folder, "val-") == Ids(all.end() - 60, all.end()));
    CHECK(s.train.tokens == 340);
    CHECK(s.train.documents == 1);
    CHECK(s.val.documents == 1);
    std::size_t const shards = static_cast<std::size_t>(s.train.shards + s.val.shards);
    CHECK(names_in(folder / "out").size() == shards);
    CHECK_THAT(to_text(s), Contains("last tokens"));
  }
}

TEST_CASE("every bad line is named by file and line, and nothing is left behind") {
  TempFolder const folder;
  std::string const lines = "{\"text\": \"good\"}\n\n{\"txt\": 1}\n[1]\n{\"text\": 5}\nnot json\n";
  write_file(folder / "a.jsonl", lines);
  write_file(folder / "b.jsonl.gz", gzipped(lines));
  std::string const what = config_error([&] { run(folder, {"a.jsonl", "b.jsonl.gz"}); });
  INFO(what);
  for (const std::string name : {"a.jsonl", "b.jsonl.gz"}) {
    CHECK_THAT(what, Contains(name + ":3: no JSON object with a \"text\" field"));
    CHECK_THAT(what, Contains(name + ":4: no JSON object"));
    CHECK_THAT(what, Contains(name + ":5: \"text\" is not a string"));
    CHECK_THAT(what, Contains(name + ":6: not JSON: column"));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE("a bad line far into a large file is named by its own number") {
  TempFolder const folder;
  std::string lines;
  for (int i = 0; i < 200000; ++i) lines += "{\"text\": \"some more text\"}\n";
  write_file(folder / "a.jsonl", lines + "oops\n");
  CHECK_THAT(config_error([&] { run(folder, {"a.jsonl"}); }), Contains("a.jsonl:200001: not JSON"));
}

TEST_CASE("a gzip file that is cut short anywhere is an error that names it") {
  TempFolder const folder;
  std::string const whole = gzipped("some text worth reading twice, twice");
  for (std::size_t size = 1; size < whole.size(); ++size) {
    write_file(folder / "a.txt.gz", whole.substr(0, size));
    INFO("size " << size);
    REQUIRE_THAT(config_error([&] { run(folder, {"a.txt.gz"}); }), Contains("a.txt.gz: cut short"));
  }
  std::string const large = gzipped(noise(3'000'000));
  write_file(folder / "b.gz", large.substr(0, large.size() - 9));
  CHECK_THAT(config_error([&] { run(folder, {"b.gz"}); }), Contains("b.gz: cut short"));
  write_file(folder / "c.gz", "plain text");
  CHECK_THAT(config_error([&] { run(folder, {"c.gz"}); }), Contains("c.gz: damaged or not gzip"));
  write_file(folder / "d.gz", whole + "garbage");
  CHECK_THAT(config_error([&] { run(folder, {"d.gz"}); }), Contains("d.gz: damaged"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  write_file(folder / "e.gz", whole + std::string(512, '\0'));
  CHECK(run(folder, {"e.gz"}).train.documents == 1);
}

TEST_CASE("D5: empty inputs are skipped with a warning, and nothing but empty ones is an error") {
  TempFolder const folder;
  write_file(folder / "empty.txt", "");
  write_file(folder / "empty.jsonl", "\n\n{\"text\": \"\"}\n");
  write_file(folder / "empty.gz", gzipped(""));
  write_file(folder / "full.txt", "full");
  CHECK_THAT(config_error([&] { run(folder, {"empty.txt"}); }), Contains("every input is empty"));
  CHECK_THAT(config_error([&] {
               run(folder, {"empty.txt", "empty.jsonl", "empty.gz"});
             }),
             Contains("every input is empty"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  PrepareSummary const s = run(folder, {"empty.txt", "empty.gz", "full.txt", "empty.jsonl"});
  CHECK(all_ids(folder, "train-") == document("full"));
  CHECK(s.empty_documents == 2);
  CHECK_THAT(read_file(folder / "log.txt"), Contains("empty.txt: empty, skipped"));
}

TEST_CASE("all mistakes in the options are reported at once and nothing is written") {
  TempFolder const folder;
  write_file(folder / "x.zst", "x");
  PrepareOptions options;
  options.tokenizer = "gpt2";
  options.val_fraction = 0.7;
  options.shard_tokens = 0;
  options.threads = -1;
  std::string const what = config_error([&] {
    run(folder, {"missing.txt", "x.zst", "."}, options);
  });
  INFO(what);
  CHECK_THAT(what, Contains("gpt2") && Contains("val-fraction 0.7") && Contains("shard-tokens 0") &&
                       Contains("threads -1") && Contains("missing.txt: does not exist") &&
                       Contains(".zst files are not read") && Contains("not a regular file"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  CHECK_THAT(config_error([&] { run(folder, {}); }), Contains("no input file"));
}

TEST_CASE("shards that stand in the directory stay unless they are to be replaced") {
  TempFolder const folder;
  write_file(folder / "a.txt", "first");
  write_file(folder / "b.txt", "second");
  write_file(folder / "out/notes.txt", "mine");
  PrepareOptions options;
  options.val_fraction = 0.5;
  run(folder, {"a.txt"}, options);
  CHECK_THAT(config_error([&] { run(folder, {"b.txt"}); }),
             Contains("holds 2 shards") && Contains("--force"));
  CHECK(all_ids(folder, "train-") == Ids{'f', 'i', 'r'});
  write_file(folder / "bad.jsonl", "oops");
  options.force = true;
  options.val_fraction = 0;
  CHECK_FALSE(config_error([&] { run(folder, {"bad.jsonl"}, options); }).empty());
  CHECK(all_ids(folder, "val-") == Ids{'s', 't', 256});
  run(folder, {"b.txt"}, options);
  CHECK(all_ids(folder, "train-") == document("second"));
  CHECK(names_in(folder / "out") == std::vector<std::string>{"notes.txt", "train-00000.bin"});
}

TEST_CASE("the pipeline hands over results in task order and stops when it is told to") {
  using Pipeline = detail::OrderedPipeline<int>;
  auto const produce = [](std::size_t task, const Pipeline::Emit& emit) {
    for (int i = 0; i < 20; ++i) emit(static_cast<int>(task) * 20 + i);
  };
  for (int const threads : {1, 3, 16}) {
    int next = 0;
    bool ordered = true;
    Pipeline::run(100, threads, produce, [&](int&& value) {
      ordered = ordered && value == next++;
      return true;
    });
    CHECK(ordered);
    CHECK(next == 2000);
    int taken = 0;
    Pipeline::run(100, threads, produce, [&](int&&) { return ++taken < 50; });
    CHECK(taken == 50);
  }
  Pipeline::run(0, 2, produce, [](int&&) { return true; });
}

TEST_CASE(
    "an exception of a producer or of the consumer reaches the caller after what came before") {
  using Pipeline = detail::OrderedPipeline<int>;
  int taken = 0;
  auto const produce = [](std::size_t task, const Pipeline::Emit& emit) {
    if (task == 7) throw IoError("seven");
    if (task > 7) throw IoError("later");
    emit(1);
  };
  CHECK_THROWS_WITH(Pipeline::run(50, 4, produce, [&](int&& v) { return taken += v, true; }),
                    "seven");
  CHECK(taken == 7);
  auto const fine = [](std::size_t, const Pipeline::Emit& emit) { emit(1); };
  CHECK_THROWS_WITH(Pipeline::run(50, 4, fine, [](int&&) -> bool { throw IoError("consumer"); }),
                    "consumer");
}

}  // namespace
}  // namespace copus
