#include "copus/data/loader.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "copus/core/log.h"
#include "data/mixture.h"
#include "unit/data/shard_support.h"

namespace copus {
namespace {
using namespace test;
using Catch::Contains;
using Ids = std::vector<std::int32_t>;

struct Sample {
  Ids inputs, targets;
  bool operator<(const Sample& o) const {
    return std::tie(inputs, targets) < std::tie(o.inputs, o.targets);
  }
  bool operator==(const Sample& o) const = default;
};

Log quiet() {
  return Log(0, false);
}

Loader make_loader(std::vector<DataSource> train, std::int64_t seq_len, bool shuffle = true,
                   std::optional<std::int64_t> epochs = {}, std::uint64_t seed = 1) {
  Log log = quiet();
  DataConfig data;
  data.train = std::move(train);
  data.shuffle = shuffle;
  data.epochs = epochs;
  return Loader(data, seq_len, 257, seed, log);
}

EvalSet make_eval(std::vector<DataSource> sources, std::int64_t seq_len, std::int64_t tokens = 0,
                  const std::string& prefix = "") {
  Log log = quiet();
  return EvalSet(sources, seq_len, 257, tokens, prefix, log);
}

template <class Call>
Sample fetched(std::int64_t seq_len, Call call) {
  Sample s{Ids(static_cast<std::size_t>(seq_len)), Ids(static_cast<std::size_t>(seq_len))};
  call(s);
  return s;
}
Sample sample_of(const Loader& loader, std::int64_t i, std::int64_t seq_len) {
  return fetched(seq_len, [&](Sample& s) { loader.sample(i, s.inputs, s.targets); });
}
Sample window_of(const EvalSet& set, std::int64_t i, std::int64_t seq_len) {
  return fetched(seq_len, [&](Sample& s) { set.window(i, s.inputs, s.targets); });
}

// Window i by definition: tokens [i T, i T + T].
Sample expected(const Ids& all, std::int64_t window, std::int64_t seq_len) {
  auto const first = all.begin() + window * seq_len;
  return {Ids(first, first + seq_len), Ids(first + 1, first + seq_len + 1)};
}

TEST_CASE(
    "L5: n tokens have (n - 1) / T windows at every edge, each with its targets one further") {
  TempFolder const folder;
  for (std::int64_t const seq_len : {1, 4, 8}) {
    for (std::int64_t const n : {2, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25}) {
      if (n <= seq_len) continue;
      Ids const ids = counting(n);
      write_shard(folder / "a.bin", ids);
      Loader const loader = make_loader({{folder / "a.bin"}}, seq_len, false);
      INFO("n " << n << ", T " << seq_len);
      REQUIRE(loader.windows() == (n - 1) / seq_len);
      for (std::int64_t i = 0; i < 2 * loader.windows(); ++i) {
        REQUIRE(sample_of(loader, i, seq_len) == expected(ids, i % loader.windows(), seq_len));
      }
    }
  }
}

TEST_CASE("L5: a data set without one full window is refused with the numbers") {
  TempFolder const folder;
  for (std::int64_t const n : {1, 7, 8}) {
    write_shard(folder / "a.bin", counting(n));
    CHECK_THAT(config_error([&] { make_loader({{folder / "a.bin"}}, 8); }),
               Contains("no full window") && Contains(std::to_string(n) + " tokens") &&
                   Contains("at least 9"));
  }
}

TEST_CASE("windows run across shards, even across shards shorter than a window") {
  TempFolder const folder;
  Ids const all = counting(101);
  std::size_t at = 0;
  int number = 0;
  for (std::size_t const size : {30u, 1u, 2u, 1u, 40u, 3u, 24u}) {
    write_shard(folder / ("d/train-0000" + std::to_string(number++) + ".bin"),
                Ids(all.begin() + static_cast<std::ptrdiff_t>(at),
                    all.begin() + static_cast<std::ptrdiff_t>(at + size)));
    at += size;
  }
  REQUIRE(at == all.size());
  for (std::int64_t const seq_len : {1, 5, 10, 33, 100}) {
    Loader const loader = make_loader({{folder / "d"}}, seq_len, false);
    CHECK(loader.windows() == 100 / seq_len);
    CHECK(loader.summary().at(0).shards == 7);
    CHECK(loader.summary().at(0).documents == 7);
    for (std::int64_t i = 0; i < loader.windows(); ++i) {
      REQUIRE(sample_of(loader, i, seq_len) == expected(all, i, seq_len));
    }
  }
}

TEST_CASE(
    "D9: an epoch draws every window of all shards exactly once, each epoch in another order") {
  TempFolder const folder;
  write_shard(folder / "d/train-00000.bin", counting(90));
  write_shard(folder / "d/train-00001.bin", counting(71, 90));
  Loader const loader = make_loader({{folder / "d"}}, 8);
  REQUIRE(loader.windows() == 20);
  std::vector<std::vector<Sample>> epochs(3);
  for (std::int64_t i = 0; i < 60; ++i) {
    CHECK(loader.epoch_of(i) == i / 20);
    epochs[static_cast<std::size_t>(i / 20)].push_back(sample_of(loader, i, 8));
  }
  std::set<Sample> all;
  for (std::int64_t i = 0; i < 20; ++i) all.insert(expected(counting(161), i, 8));
  REQUIRE(all.size() == 20);
  for (const auto& epoch : epochs) CHECK(std::set<Sample>(epoch.begin(), epoch.end()) == all);
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  CHECK(epochs[0] != epochs[2]);
}

TEST_CASE(
    "R1, R2, R3, R4, R6, L6: a sample depends on its number and the seed alone, in any epoch and "
    "shard") {
  TempFolder const folder;
  write_shard(folder / "d/train-00000.bin", counting(90));
  write_shard(folder / "d/train-00001.bin", counting(71, 90));
  Loader const straight = make_loader({{folder / "d"}}, 8);
  std::vector<Sample> order;
  for (std::int64_t i = 0; i < 50; ++i) order.push_back(sample_of(straight, i, 8));
  for (std::int64_t const resume : {0, 7, 19, 20, 21, 39, 40}) {
    Loader const resumed = make_loader({{folder / "d"}}, 8);
    for (std::int64_t i = resume; i < 50; ++i) {
      REQUIRE(sample_of(resumed, i, 8) == order[static_cast<std::size_t>(i)]);
    }
  }
  Loader const other = make_loader({{folder / "d"}}, 8, true, {}, 2);
  bool same = true;
  for (std::int64_t i = 0; i < 20; ++i) {
    same = same && sample_of(other, i, 8) == order[static_cast<std::size_t>(i)];
  }
  CHECK_FALSE(same);
}

TEST_CASE("D11: epochs limit the samples of a run, and without them it wraps for ever") {
  TempFolder const folder;
  write_shard(folder / "a.bin", counting(81));
  CHECK(make_loader({{folder / "a.bin"}}, 8, true, 3).limit() == 30);
  Loader const endless = make_loader({{folder / "a.bin"}}, 8);
  CHECK(endless.limit() == -1);
  CHECK(endless.epoch_of(10'000'000'000) == 1'000'000'000);
  CHECK_NOTHROW(sample_of(endless, 10'000'000'007, 8));
  CHECK_THAT(config_error([&] { make_loader({{folder / "a.bin"}}, 8, true, 0); }),
             Contains("data.epochs: 0"));
}

TEST_CASE("D5: shards without tokens are skipped when others have some") {
  TempFolder const folder;
  write_file(folder / "d/train-00000.bin", "");
  ShardWriter(folder / "d/train-00001.bin", 257, "bytes").finish();
  write_shard(folder / "d/train-00002.bin", counting(20));
  Log log = quiet();
  log.attach_file(folder / "log.txt");
  DataConfig data;
  data.train = {{folder / "d"}};
  Loader const loader(data, 4, 257, 1, log);
  CHECK(loader.summary().at(0).shards == 1);
  CHECK(loader.windows() == 4);
  std::string const lines = read_file(folder / "log.txt");
  CHECK_THAT(lines, Contains("train-00000.bin: no tokens, skipped") &&
                        Contains("train-00001.bin: no tokens, skipped"));
}

TEST_CASE("D5: a source whose shards are all empty is refused") {
  TempFolder const folder;
  write_file(folder / "d/train-00000.bin", "");
  ShardWriter(folder / "d/train-00001.bin", 257, "bytes").finish();
  CHECK_THAT(config_error([&] { make_loader({{folder / "d"}}, 4); }),
             Contains("no tokens in 2 shards"));
}

TEST_CASE("every mistake in the data section is reported at once") {
  TempFolder const folder;
  write_shard(folder / "good.bin", counting(20));
  write_shard(folder / "large.bin", counting(20), 300, "bytes");
  write_shard(folder / "other.bin", counting(20), 257, "other");
  write_shard(folder / "short.bin", counting(3));
  write_file(folder / "text.bin", "no shard at all");
  std::filesystem::create_directory(folder / "empty");
  std::string const what = config_error([&] {
    make_loader({{folder / "good.bin"},
                 {folder / "large.bin"},
                 {folder / "other.bin", 0.0},
                 {folder / "short.bin"},
                 {folder / "text.bin"},
                 {folder / "missing"},
                 {folder / "empty"},
                 {folder / "no-*.bin"}},
                4, true, -1);
  });
  INFO(what);
  CHECK_THAT(what, Contains("data.epochs: -1"));
  CHECK_THAT(what, Contains("data.train[2]") && Contains("weight 0"));
  CHECK_THAT(what, Contains("data.train[1]") && Contains("vocabulary 300"));
  CHECK_THAT(what, Contains("tokenizer \"other\""));
  CHECK_THAT(what, Contains("short.bin: 3 tokens"));
  CHECK_THAT(what, Contains("data.train[4]") && Contains("not a token shard"));
  CHECK_THAT(what, Contains("data.train[5]") && Contains("does not exist"));
  CHECK_THAT(what, Contains("data.train[6]") && Contains("without train-*.bin"));
  CHECK_THAT(what, Contains("data.train[7]") && Contains("no file matches"));
  CHECK_THAT(config_error([&] { make_loader({}, 4); }), Contains("data.train: no source"));
}

TEST_CASE("a directory means its shards of the asked part, a glob and a file mean themselves") {
  TempFolder const folder;
  write_shard(folder / "d/train-00000.bin", counting(20));
  write_shard(folder / "d/train-00001.bin", counting(20));
  write_shard(folder / "d/val-00000.bin", counting(11));
  CHECK(make_loader({{folder / "d"}}, 4).summary().at(0).tokens == 40);
  CHECK(make_loader({{folder / "d/*-00000.bin"}}, 4).summary().at(0).tokens == 31);
  CHECK(make_loader({{folder / "d/val-00000.bin"}}, 4).summary().at(0).tokens == 11);
  CHECK(make_eval({{folder / "d"}}, 4, 0, "val-").tokens() == 10);
  CHECK(make_eval({{folder / "d"}}, 4, 0, "").tokens() == 50);
}

TEST_CASE("a mixture keeps every share within one sample at every prefix") {
  for (const std::vector<double>& weights : {std::vector<double>{1, 1},
                                             {1, 2},
                                             {0.7, 0.2, 0.1},
                                             {5, 1, 1, 1, 1, 1, 1},
                                             {1, 1, 1, 1, 1},
                                             {0.9, 0.05, 0.03, 0.02},
                                             {97, 2, 1},
                                             {0.999, 0.001}}) {
    detail::Mixture const mixture(weights);
    double sum = 0;
    for (double const w : weights) sum += w;
    std::vector<std::int64_t> drawn(weights.size(), 0);
    for (std::int64_t i = 0; i < 3 * mixture.period() + 5; ++i) {
      detail::Draw const draw = mixture(i);
      REQUIRE(draw.index == drawn.at(draw.source));
      ++drawn[draw.source];
      for (std::size_t s = 0; s < weights.size(); ++s) {
        double const share = static_cast<double>(i + 1) * weights[s] / sum;
        REQUIRE(std::abs(static_cast<double>(drawn[s]) - share) < 1.0);
      }
    }
  }
}

TEST_CASE("weights without a short period are met to 2^-20 of the whole") {
  std::vector<double> const weights{std::sqrt(2.0), std::sqrt(3.0), 1e-9};
  detail::Mixture const mixture(weights);
  std::map<std::size_t, std::int64_t> drawn;
  for (std::int64_t i = 0; i < mixture.period(); ++i) ++drawn[mixture(i).source];
  double const share = weights[0] / (weights[0] + weights[1] + weights[2]);
  CHECK(mixture.period() == 1 << 20);
  CHECK(std::abs(static_cast<double>(drawn[0]) / (1 << 20) - share) <= 0x1p-20);
  CHECK(drawn[2] == 1);  // a source with a weight is drawn from
}

TEST_CASE("each source of a weighted list goes through epochs of its own") {
  TempFolder const folder;
  write_shard(folder / "a.bin", counting(41));       // 10 windows of 4, ids below 41
  write_shard(folder / "b.bin", counting(21, 100));  // 5 windows, ids from 100
  Loader const loader = make_loader({{folder / "a.bin", 3.0}, {folder / "b.bin", 1.0}}, 4);
  CHECK(loader.windows() == 15);
  std::vector<Sample> a, b;
  for (std::int64_t i = 0; i < 80; ++i) {
    CHECK(loader.epoch_of(i) == static_cast<std::int64_t>(a.size()) / 10);
    Sample const s = sample_of(loader, i, 4);
    (s.inputs[0] < 100 ? a : b).push_back(s);
  }
  REQUIRE(a.size() == 60);
  REQUIRE(b.size() == 20);
  auto const passes_once = [](const std::vector<Sample>& all, std::ptrdiff_t windows) {
    for (std::ptrdiff_t e = 0; e < std::ssize(all) / windows; ++e) {
      auto const first = all.begin() + e * windows;
      if (std::ssize(std::set<Sample>(first, first + windows)) != windows) return false;
    }
    return true;
  };
  CHECK(passes_once(a, 10));
  CHECK(passes_once(b, 5));
}

TEST_CASE("evaluation scores each of the n - 1 predictions once, in order, at every edge") {
  TempFolder const folder;
  for (std::int64_t const seq_len : {1, 4, 8}) {
    for (std::int64_t const n : {2, 3, 4, 5, 8, 9, 10, 16, 17, 18}) {
      Ids const ids = counting(n);
      write_shard(folder / "a.bin", ids);
      EvalSet const set = make_eval({{folder / "a.bin"}}, seq_len);
      REQUIRE(set.tokens() == n - 1);
      REQUIRE(set.windows() == (n - 1 + seq_len - 1) / seq_len);
      std::int64_t next = 0;
      for (std::int64_t w = 0; w < set.windows(); ++w) {
        Sample const s = window_of(set, w, seq_len);
        for (std::size_t t = 0; t < s.inputs.size(); ++t) {
          bool const real = next < n - 1;
          REQUIRE(s.inputs[t] == (real ? ids[static_cast<std::size_t>(next)] : 0));
          REQUIRE(s.targets[t] == (real ? ids[static_cast<std::size_t>(next + 1)] : -1));
          next += real;
        }
      }
      REQUIRE(next == n - 1);
    }
  }
}

TEST_CASE("D10: evaluation stops at the asked tokens and goes over several data sets") {
  TempFolder const folder;
  write_shard(folder / "a.bin", counting(6));
  write_shard(folder / "b.bin", counting(8, 100));
  std::vector<DataSource> const both{{folder / "a.bin"}, {folder / "b.bin"}};
  EvalSet const all = make_eval(both, 4);
  CHECK(all.tokens() == 12);
  CHECK(all.windows() == 4);
  CHECK(window_of(all, 1, 4) == Sample{{4, 0, 0, 0}, {5, -1, -1, -1}});
  CHECK(window_of(all, 2, 4) == Sample{{100, 101, 102, 103}, {101, 102, 103, 104}});
  CHECK(window_of(all, 3, 4) == Sample{{104, 105, 106, 0}, {105, 106, 107, -1}});
  EvalSet const some = make_eval(both, 4, 7);
  CHECK(some.tokens() == 7);
  CHECK(some.windows() == 3);
  CHECK(window_of(some, 2, 4) == Sample{{100, 101, 0, 0}, {101, 102, -1, -1}});
  CHECK(make_eval(both, 4, 5).windows() == 2);
  CHECK(make_eval(both, 4, 1000).tokens() == 12);
  CHECK(make_eval({}, 4).windows() == 0);
}

TEST_CASE("an evaluation set that predicts nothing or is missing is refused") {
  TempFolder const folder;
  write_shard(folder / "a.bin", counting(1));
  CHECK_THAT(config_error([&] { make_eval({{folder / "a.bin"}}, 4, 0, "val-"); }),
             Contains("data.val") && Contains("predicts nothing"));
  CHECK_THAT(config_error([&] { make_eval({{folder / "x"}}, 4); }),
             Contains("--data") && Contains("does not exist"));
}

}  // namespace
}  // namespace copus
