#include <catch2/catch.hpp>

#include "unit/core/config_fixture.h"

using namespace copus;

TEST_CASE("a valid configuration is read without a problem or a warning") {
  Outcome const got = parse(kSmall);
  CHECK(got.problems == std::vector<std::string>{});
  CHECK(got.warnings == std::vector<std::string>{});
  CHECK(got.config.model.hidden == 64);
  CHECK(got.config.train.tokens == 1'000'000);
  CHECK(got.config.data.train == std::vector<DataSource>{{"data/x", 1.0}});
  CHECK(got.config.model.max_positions == 32);
  CHECK(got.config.parallel.zero == 0);
  CHECK_FALSE(got.config.parallel.dp.has_value());
  CHECK(got.config.run_dir == "runs/case");
}

TEST_CASE("a syntax error names the file, the line and the column") {
  Outcome const got = parse("{\n  \"model\": {\n    \"layers\" 2\n}}");
  REQUIRE(got.problems.size() == 1);
  // The parser stops on the 2, the 14th character of line 3.
  CHECK(got.problems[0].starts_with("dir/case.json:3:14: syntax error"));
  CHECK(parse("").problems.at(0).starts_with("dir/case.json:1:1: syntax error"));
  CHECK(parse("[1]").names({"dir/case.json", "one object"}));
  CHECK(parse("{\"train\": {\"tokens\": 1e999}}").names({"dir/case.json", "1e999"}));
}

TEST_CASE("a key that stands twice is an error that names its path") {
  Outcome const got = parse(
      R"({"train": {"tokens": 5, "seed": 1, "tokens": 6}, "model": {"preset": "gpt2-124m"},
          "data": {"train": "x"}, "batch": {"sequences": 1}})");
  CHECK(got.problems ==
        std::vector<std::string>{"train.tokens: this key stands twice; keep one of them"});
}

TEST_CASE("U1: an unknown key is an error that names the key, its section and the nearest name") {
  struct Case {
    std::string key, section, advice;
  };
  for (const Case& c : std::vector<Case>{
           {"batch.sequnces", "section \"batch\"", "did you mean batch.sequences?"},
           {"optimizer.beta3", "section \"optimizer\"", "did you mean optimizer.beta1?"},
           {"optimizer.weight-decay", "section \"optimizer\"",
            "did you mean optimizer.weight_decay?"},
           {"model.lr", "section \"model\"", "did you mean optimizer.lr or batch_rule.lr?"},
           {"optimizer.learning_rate", "section \"optimizer\"", "did you mean optimizer.lr?"},
           {"model.num_hidden_layers", "section \"model\"", "did you mean model.layers?"},
           {"optimiser", "top level", "did you mean optimizer?"},
           {"batch-rule", "top level", "did you mean batch_rule?"},
           {"tensorboard", "top level", "did you mean log.tensorboard?"},
           {"kernels", "top level", "did you mean cluster.kernels?"},
           {"cluster.kernels.atention", "section \"cluster.kernels\"",
            "did you mean cluster.kernels.attention?"},
           {"model.rope_scaling.facter", "section \"model.rope_scaling\"",
            "did you mean model.rope_scaling.factor?"},
           {"log.zzzzzzzz", "section \"log\"",
            "known there: every_steps, tensorboard, profile_steps"},
       }) {
    INFO(c.key);
    // On the command line and in the file alike.
    CHECK(with({{c.key, "1"}}).names({c.key + ": unknown key", c.section, c.advice}));
    std::string text = "1";
    std::string path = c.key;
    while (!path.empty()) {
      std::size_t const dot = path.rfind('.');
      text = "{\"" + path.substr(dot == std::string::npos ? 0 : dot + 1) + "\": " + text + "}";
      path = dot == std::string::npos ? "" : path.substr(0, dot);
    }
    CHECK(parse(text).names({c.key + ": unknown key", c.section, c.advice}));
  }
}

TEST_CASE("U1: an unknown key inside a list entry is named with its place") {
  CHECK(with({{"adapt.script", R"([{"step": 1, "dp": 1}, {"step": 2, "bach": 8}])"}})
            .names({"adapt.script[1].bach", "unknown key", "did you mean batch?"}));
  CHECK(with({{"adapt.script", R"([{"stepp": 1}])"}}).problems.size() == 1);
  CHECK(with({{"data.train", R"([{"path": "a", "wieght": 2}])"}})
            .names({"data.train[0].wieght", "unknown key", "did you mean weight?"}));
}

TEST_CASE("U1: all mistakes are reported at once, one problem each") {
  Outcome const got = parse(R"({
    "model": {"family": "lama", "layers": -1, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 257,
              "seq_len": 32},
    "data": {"train": 7}, "batch": {"sequences": 8, "sequense": 1},
    "optimizer": {"beta1": 1.0}, "train": {"tokens": "many"}})");
  CHECK(got.problems.size() == 6);
  CHECK(got.names({"model.family: \"lama\"", "llama, qwen2, gpt2"}));
  CHECK(got.names({"model.layers: -1", "from 1"}));
  CHECK(got.names({"data.train: 7", "a directory"}));
  CHECK(got.names({"batch.sequense", "batch.sequences"}));
  CHECK(got.names({"optimizer.beta1: 1.0", "[0, 1)"}));
  CHECK(got.names({"train.tokens: \"many\"", "250M"}));
}

TEST_CASE("a value of the wrong type or range names the key, the value and what is accepted") {
  struct Case {
    std::string key, value, accepted;
  };
  for (const Case& c : std::vector<Case>{
           {"data.shuffle", "1", "true or false"},
           {"train.seed", "-1", "from 0"},
           {"train.tokens", "1.5", "a count of tokens"},
           {"train.precision", "\"fp8\"", "one of fp32, bf16"},
           {"batch.micro", "0", "or \"auto\""},
           {"parallel.zero", "2", "0 to 1"},  // L11
           {"parallel.dp", "0", "from 1"},
           {"parallel.recompute", "\"some\"", "none, selective, full, or \"auto\""},
           {"model.dropout", "1", "[0, 1)"},
           {"optimizer.lr", "-1.0", "from 0"},
           {"optimizer.clip", "-1.0", "from 0"},
           {"schedule.min_lr_ratio", "1.5", "[0, 1]"},
           {"gns.confidence", "1.0", "(0, 1)"},
           {"gns.confidence", "0.0", "(0, 1)"},
           {"optimizer.name", "\"sgd\"", "one of adamw"},
           {"train", "5", "an object"},
           {"model.rope_scaling", "5", "an object"},
           {"data.epochs", "0", "unlimited"},
           {"model.hidden", "3000000000", "2147483647"},
           {"log.profile_steps", "\"0-3\"", "counted from 1"},
           {"log.profile_steps", "\"5-4\"", "FIRST-LAST"},
           {"log.profile_steps", "\"5-\"", "FIRST-LAST"},
           {"log.profile_steps", "\"-5\"", "FIRST-LAST"},
       }) {
    INFO(c.key << "=" << c.value);
    Outcome const got = with({{c.key, c.value}});
    CHECK(got.names({c.key + ": " + c.value + " is not accepted", c.accepted}));
  }
}

TEST_CASE("what is at the edge of a range is accepted") {
  for (const auto& [key, value] : Overrides{{"optimizer.lr", "0"},
                                            {"optimizer.clip", "0"},
                                            {"optimizer.beta1", "0"},
                                            {"model.dropout", "0"},
                                            {"schedule.min_lr_ratio", "1"},
                                            {"train.seed", "18446744073709551615"},
                                            {"train.tokens", "9223372036854775807"},
                                            {"train.tokens", "1e9"},
                                            {"parallel.zero", "1"},
                                            {"parallel.dp", "auto"},
                                            {"data.epochs", "unlimited"}}) {
    INFO(key << "=" << value);
    CHECK(with({{key, value}}).problems == std::vector<std::string>{});
  }
}

TEST_CASE("an override is JSON where it parses, else text, and the later one wins") {
  Outcome const got = with({{"train.tokens", "250M"},
                            {"data.shuffle", "false"},
                            {"run_dir", "123"},  // text, although it looks like a number
                            {"batch.micro", "2"},
                            {"batch.micro", "4"},
                            {"log.profile_steps", "7"},
                            {"data.val", R"(["a", {"path": "b", "weight": 3}])"},
                            {"adapt.script", R"([{"step": 4, "batch": 16, "micro": 8}])"}});
  CHECK(got.problems == std::vector<std::string>{});
  CHECK(got.config.train.tokens == 250'000'000);
  CHECK_FALSE(got.config.data.shuffle);
  CHECK(got.config.run_dir == "123");
  CHECK(got.config.batch.micro == 4);
  CHECK(got.config.log.profile_steps == StepWindow{7, 7});
  CHECK(got.config.data.val == std::vector<DataSource>{{"a", 1.0}, {"b", 3.0}});
  REQUIRE(got.config.adapt.script.size() == 1);
  CHECK(got.config.adapt.script[0].batch == 16);
  CHECK_FALSE(got.config.adapt.script[0].tokens.has_value());
}

TEST_CASE("an override may replace a section, and null takes a key out") {
  Outcome const preset = with({{"model", R"({"preset": "gpt2-124m", "seq_len": 64})"}});
  CHECK(preset.problems == std::vector<std::string>{});
  CHECK(preset.config.model.vocab == 50257);
  CHECK(preset.config.model.seq_len == 64);
  CHECK(with({{"model.kv_heads", "null"}}).config.model.kv_heads == 4);
  CHECK(with({{"batch.sequences", "null"}}).names({"batch.sequences: missing"}));
}

TEST_CASE("a list entry that says too little or too much is refused") {
  CHECK(with({{"adapt.script", R"([{"batch": 8}])"}}).names({"adapt.script[0]", "exactly one"}));
  CHECK(with({{"adapt.script", R"([{"step": 1, "tokens": 5, "dp": 1}])"}})
            .names({"adapt.script[0]", "exactly one"}));
  CHECK(with({{"adapt.script", R"([{"step": 1}])"}}).names({"adapt.script[0]", "changes nothing"}));
  CHECK(with({{"adapt.script", R"({"step": 1})"}}).names({"adapt.script", "a list"}));
  CHECK(with({{"data.train", R"([{"weight": 1}])"}}).names({"data.train[0].path: missing"}));
  CHECK(with({{"data.train", R"([{"path": "a", "weight": 0}])"}})
            .names({"data.train[0].weight: 0", "above 0"}));
}

TEST_CASE("a file that cannot be read is the user's mistake and is named") {
  std::vector<std::string> warnings;
  CHECK_THROWS_AS(read_config("no/such/file.json", {}, ConfigUse::train, warnings), ConfigError);
  CHECK_THROWS_WITH(read_config("no/such/file.json", {}, ConfigUse::train, warnings),
                    Catch::Contains("no/such/file.json"));
  CHECK_THROWS_WITH(read_config(COPUS_TEST_DIR, {}, ConfigUse::train, warnings),
                    Catch::Contains("cannot be read"));
}
