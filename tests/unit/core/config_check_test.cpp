#include <catch2/catch.hpp>

#include "unit/core/config_fixture.h"

using namespace copus;

namespace {
const char* const kPreset = R"({"model": {"preset": "llama-3.2-1b", "seq_len": 128, "dropout": 0.1},
  "data": {"train": "x"}, "batch": {"sequences": 8}, "train": {"tokens": 1000000}})";
const char* const kGpt2 = R"({"model": {"family": "gpt2", "layers": 2, "hidden": 48, "heads": 3,
  "vocab": 300, "seq_len": 16}, "data": {"train": "x"}, "batch": {"sequences": 8},
  "train": {"tokens": 1000000}})";
}  // namespace

TEST_CASE("sizes that do not divide are refused with the nearest that do") {
  CHECK(with({{"model.hidden", "66"}}).names({"model.hidden: 66", "model.heads 4", "64 or 68"}));
  CHECK(with({{"model.kv_heads", "3"}}).names({"model.heads: 4", "model.kv_heads 3", "3 or 6"}));
  // 4 heads of width 15: RoPE has no half to rotate with.
  CHECK(with({{"model.hidden", "60"}}).names({"model.hidden: 60", "width 15", "56 or 64"}));
  CHECK(parse(kGpt2, {{"model.hidden", "45"}}).problems == std::vector<std::string>{});
  CHECK(with({{"model.vocab", "1"}}).names({"model.vocab: 1", "from 2"}));
  CHECK(with({{"model.max_positions", "16"}}).names({"model.seq_len: 32", "1 to 16"}));
  CHECK(with({{"model.max_positions", "64"}}).problems == std::vector<std::string>{});
}

TEST_CASE("a missing size is named, and once") {
  CHECK(
      with({{"model.layers", "null"}}).problems ==
      std::vector<std::string>{
          "model.layers: missing; it takes a size from 1 up, or give model.preset or model.from"});
  CHECK(with({{"model", "null"}}).problems.size() == 1);
  CHECK(with({{"model.ffn", "null"}}).names({"model.ffn: missing"}));
  CHECK(with({{"model.layers", "x"}}).problems.size() == 1);
}

TEST_CASE("training needs data and tokens, planning does not") {
  const char* const text = R"({"model": {"preset": "gpt2-124m"}, "batch": {"sequences": 8}})";
  Outcome const train = parse(text);
  CHECK(train.problems.size() == 2);
  CHECK(train.names({"data.train: missing"}));
  CHECK(train.names({"train.tokens: missing"}));
  CHECK(parse(text, {}, ConfigUse::plan).problems == std::vector<std::string>{});
  CHECK(parse("{}", {}, ConfigUse::plan).problems.size() == 2);  // model, batch
}

TEST_CASE("preset, from and sizes exclude each other; seq_len and dropout may accompany both") {
  Outcome const preset = parse(kPreset);
  CHECK(preset.problems == std::vector<std::string>{});
  CHECK(preset.config.model.layers == 16);
  CHECK(preset.config.model.seq_len == 128);
  CHECK(preset.config.model.dropout == 0.1);
  CHECK(parse(kPreset, {{"model.layers", "2"}}).names({"model.layers", "model.preset"}));
  CHECK(parse(kPreset, {{"model.from", "x"}}).names({"model.preset", "model.from"}));
  CHECK(parse(kPreset, {{"model.seq_len", "131073"}}).names({"model.seq_len", "131072"}));
  CHECK(parse(kPreset, {{"model.preset", "llama-3.2-2b"}})
            .names({"model.preset", "llama-3.2-2b", "did you mean llama-3.2-1b?"}));
  Outcome const from = parse(kPreset, {{"model", R"({"from": "dir", "dropout": 0.2})"}});
  CHECK(from.problems == std::vector<std::string>{});
  CHECK(from.config.model.from == "dir");
  CHECK(from.config.model.layers == 0);
  CHECK(with({{"model.from", "dir"}}).names({"model.hidden", "not together with model.from"}));
}

TEST_CASE("seq_len defaults to the preset's maximum") {
  CHECK(parse(kPreset, {{"model.seq_len", "null"}}).config.model.seq_len == 131072);
}

TEST_CASE("gpt2 fills in what follows from its family and refuses what is not part of it") {
  Outcome const got = parse(kGpt2);
  CHECK(got.problems == std::vector<std::string>{});
  CHECK(got.config.model.kv_heads == 3);
  CHECK(got.config.model.ffn == 192);
  CHECK(got.config.model.tie_embeddings);
  CHECK(parse(kGpt2, {{"model.kv_heads", "3"}}).problems == std::vector<std::string>{});
  CHECK(parse(kGpt2, {{"model.kv_heads", "1"}}).names({"model.kv_heads: 1", "gpt2", "takes 3"}));
  CHECK(parse(kGpt2, {{"model.rope_theta", "10000"}}).names({"model.rope_theta", "gpt2"}));
  CHECK(parse(kGpt2, {{"model.rope_scaling.factor", "8"}}).names({"rope_scaling", "gpt2"}));
}

TEST_CASE("RoPE scaling needs its factor, and a low frequency below the high one") {
  CHECK(with({{"model.rope_scaling", R"({"low_freq_factor": 2})"}})
            .names({"model.rope_scaling.factor: missing"}));
  CHECK(with({{"model.rope_scaling", R"({"factor": 8, "low_freq_factor": 4})"}})
            .names({"model.rope_scaling.low_freq_factor: 4", "high_freq_factor 4"}));
  Outcome const got = with({{"model.rope_scaling", R"({"factor": 8})"}});
  REQUIRE(got.config.model.rope_scaling);
  CHECK(*got.config.model.rope_scaling == RopeScaling{8.0, 1.0, 4.0, 8192});
  Outcome const linear = with({{"model.rope_scaling", R"({"type": "linear", "factor": 2.5})"}});
  REQUIRE(linear.config.model.rope_scaling);
  CHECK(*linear.config.model.rope_scaling == RopeScaling{2.5, 1.0, 4.0, 8192, RopeKind::linear});
  CHECK(with({{"model.rope_scaling", R"({"type": "linear", "factor": 2, "high_freq_factor": 3})"}})
            .names({"model.rope_scaling.high_freq_factor: not accepted for type linear"}));
  CHECK(with({{"model.rope_scaling", R"({"type": "yarn", "factor": 2})"}})
            .names({"model.rope_scaling.type: \"yarn\"", "llama3, linear"}));
}

TEST_CASE(
    "S9: every batch of the schedule is held against micro x dp, nearest valid values named") {
  CHECK(with({{"batch.micro", "3"}})
            .names({"batch.sequences: 8", "micro-batch 3 x dp 1 = 3", "6 or 9", "micro 2 or 4"}));
  CHECK(with({{"batch.micro", "16"}}).names({"batch.sequences: 8", "nearest: 16", "micro 8"}));
  CHECK(with({{"batch.micro", "2"}, {"parallel.dp", "3"}})
            .names({"batch.sequences: 8", "dp 3 = 6", "6 or 12"}));
  Outcome const ramp = with({{"batch.sequences", "null"},
                             {"batch.schedule", "0:8 1K:12 2K:20 3K:32"},
                             {"batch.micro", "4"},
                             {"parallel.dp", "2"}});
  CHECK(ramp.problems.size() == 2);
  CHECK(ramp.names({"step 1000:12", "8 or 16"}));
  CHECK(ramp.names({"step 2000:20", "16 or 24"}));
  // Micro-batches of an interleaved pipeline come in groups of pp.
  CHECK(with({{"batch.micro", "4"}, {"parallel.pp", "4"}, {"parallel.virtual_stages", "2"}})
            .names({"batch.sequences: 8", "pp 4 (interleaved) = 16", "nearest: 16"}));
}

TEST_CASE(
    "S9: the script's switches are held against micro x dp, keys left out keeping their value") {
  CHECK(with({{"batch.micro", "4"},
              {"adapt.script", R"([{"step": 2, "batch": 16}, {"step": 5, "dp": 3}])"}})
            .names({"adapt.script[1]: 16", "4 x dp 3 = 12", "12 or 24"}));
  CHECK(with({{"adapt.script", R"([{"step": 5, "dp": 1}, {"step": 5, "dp": 2}])"}})
            .names({"adapt.script[1].step: 5", "not after"}));
}

TEST_CASE("batch.schedule decides over batch.sequences, and says so") {
  Outcome const got = with({{"batch.schedule", "0:16 2M:64"}});
  CHECK(got.config.batch.sequences == 16);
  CHECK(got.warns({"batch.sequences: 8", "starts with 16"}));
  CHECK(with({{"batch.min", "16"}}).names({"batch.sequences: 8", "batch.min 16"}));
  CHECK(with({{"batch.max", "4"}}).names({"batch.sequences: 8", "batch.max 4"}));
}

TEST_CASE("S11: a warm-up longer than the run is shortened with a warning that names both") {
  Outcome const got = with({{"schedule.warmup_tokens", "2M"}, {"schedule.kind", "cosine"}});
  CHECK(got.problems == std::vector<std::string>{});
  CHECK(got.config.schedule.warmup_tokens == 1'000'000);
  CHECK(got.warns({"schedule.warmup_tokens: 2000000", "train.tokens 1000000"}));
  Outcome const wsd = with({{"schedule.warmup_tokens", "900K"},
                            {"schedule.kind", "wsd"},
                            {"schedule.decay_tokens", "200K"}});
  CHECK(wsd.config.schedule.warmup_tokens == 800'000);
  CHECK(wsd.warns({"900000", "800000", "decay_tokens 200000"}));
  CHECK(with({{"schedule.warmup_tokens", "1M"}}).warnings == std::vector<std::string>{});
}

TEST_CASE("a decay must be given for wsd, fit the run, and not end before the warm-up") {
  CHECK(with({{"schedule.kind", "wsd"}}).names({"schedule.decay_tokens: missing", "wsd"}));
  CHECK(with({{"schedule.kind", "wsd"}, {"schedule.decay_tokens", "2M"}})
            .names({"schedule.decay_tokens: 2000000", "train.tokens 1000000"}));
  CHECK(with({{"schedule.kind", "cosine"},
              {"schedule.decay_tokens", "1K"},
              {"schedule.warmup_tokens", "2K"}})
            .names({"schedule.decay_tokens: 1000", "warm-up of 2000"}));
  CHECK(with({{"schedule.decay_tokens", "1K"}}).warns({"schedule.decay_tokens: 1000", "constant"}));
}

TEST_CASE("objectives beyond plain need the square-root learning-rate rule") {
  CHECK(with({{"adapt.objective", "sqrt_lr"}})
            .names({"adapt.objective: \"sqrt_lr\"", "batch_rule.lr \"sqrt\"", "\"none\""}));
  CHECK(with({{"adapt.objective", "normalized"}, {"batch_rule.lr", "sqrt"}}).problems ==
        std::vector<std::string>{});
}

TEST_CASE("branched checks at an interval need a noise scale, losses and larger batches") {
  Outcome const bare = with({{"adapt.check_every_tokens", "64K"}});
  CHECK(bare.problems.size() == 3);
  CHECK(bare.names({"adapt.check_every_tokens: 64000", "adapt.mode", "\"off\""}));
  CHECK(bare.names({"adapt.check_every_tokens: 64000", "data.val"}));
  CHECK(bare.names({"adapt.check_every_tokens: 64000", "batch.max of 16 or more"}));
  Overrides const right{{"adapt.check_every_tokens", "64K"},
                        {"adapt.mode", "log"},
                        {"data.val", "data/x"},
                        {"batch.max", "16"}};
  CHECK(with(right).problems == std::vector<std::string>{});
}

TEST_CASE("check_sizes names sizes that nobody filled in") {
  Config config = parse(kSmall).config;
  CHECK(check_sizes(config) == std::vector<std::string>{});
  config.model.ffn = 0;
  config.model.heads = 3;
  CHECK(check_sizes(config).size() == 3);  // ffn; hidden over heads; heads over kv_heads
}

TEST_CASE("what this version cannot do is named with key, value and what it takes") {
  CHECK(not_yet(parse(kSmall).config) == std::vector<std::string>{});
  CHECK(not_yet(with({{"parallel.dp", "2"},
                      {"parallel.tp", "2"},
                      {"parallel.pp", "2"},
                      {"parallel.zero", "1"},
                      {"device", "cuda"},
                      {"transport", "mpi"},
                      {"parallel.recompute", "full"},
                      {"batch_rule.lr", "sqrt"},
                      {"batch_rule.beta", "half_life"},
                      {"batch_rule.weight_decay", "timescale"},
                      {"adapt.mode", "act"},
                      {"checkpoint.async", "true"},
                      {"transport", "nccl"},
                      {"train.precision", "bf16"},
                      {"train.emulate_bf16", "true"},
                      {"gns.every_steps", "4"},
                      {"parallel.sequence_parallel", "true"}})
                    .config) == std::vector<std::string>{});
  for (const auto& [key, value] : Overrides{{"log.tensorboard", "true"}}) {
    INFO(key);
    Outcome const got = with({{key, value}});
    CHECK(got.problems == std::vector<std::string>{});
    std::vector<std::string> const refused = not_yet(got.config);
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].starts_with(key.substr(0, 3)));
    CHECK(Outcome::has(refused, {"not in this version", "takes"}));
  }
}
