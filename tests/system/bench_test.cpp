// copus bench through the command line: what it prints, and what it refuses.
#include <catch2/catch.hpp>
#include <map>

#include "copus/plan/hardware.h"
#include "support/command.h"

using copus::test::Outcome;
using copus::test::Workspace;

namespace {

bool all_in(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (text.find(word) != std::string::npos) continue;
    UNSCOPED_INFO("no '" << word << "' in: " << text);
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("bench comm prints every operation at every size as one JSON document") {
  Workspace const here;
  Outcome const outcome = here.copus("bench comm --ranks 2 --threads 1 --repeats 1 --json");
  REQUIRE(outcome.code == 0);
  nlohmann::json const result = nlohmann::json::parse(outcome.out);
  CHECK(result["transport"] == "thread");
  CHECK(result["ranks"] == 2);
  std::map<std::string, std::vector<std::int64_t>> sizes;
  for (const nlohmann::json& rate : result["operations"]) {
    sizes[rate["operation"]].push_back(rate["bytes"]);
    double const bytes = rate["bytes"], seconds = rate["seconds"];
    CHECK(rate["algorithm_bandwidth"].get<double>() == Approx(bytes / seconds));
  }
  std::vector<std::int64_t> const all{4096,    16384,   65536,    262144,
                                      1048576, 4194304, 16777216, 67108864};
  CHECK(sizes == std::map<std::string, std::vector<std::int64_t>>{{"all_reduce", all},
                                                                  {"reduce_scatter", all},
                                                                  {"all_gather", all},
                                                                  {"broadcast", all},
                                                                  {"exchange", all}});
}

TEST_CASE("bench refuses by name what these ranks cannot measure, all mistakes at once") {
  Workspace const here;
  Outcome const alone = here.copus("bench comm --ranks 1");
  CHECK(alone.code == 2);
  CHECK(all_in(alone.err, {"one rank", "--ranks 2"}));
  Outcome const step = here.copus("bench step --dp 3 --micro 3 --seq-len 4096");
  CHECK(step.code == 2);
  CHECK(all_in(step.err, {"--micro 3", "--batch 4", "--seq-len 4096", "1024"}));
  Outcome const ranks = here.copus("bench step --dp 3 --batch 6");
  CHECK(ranks.code == 2);
  CHECK(all_in(ranks.err, {"3 ranks", "the world has 1", "--ranks 3"}));
  Outcome const device = here.copus("bench step --ranks 2 --device cuda");
  CHECK(device.code == 2);
  CHECK(all_in(device.err, {"--device cuda", "accepted here: cpu, auto"}));
  CHECK(here.copus("bench step --zero 2").code == 2);
  CHECK(here.copus("bench step --precision fp8").code == 2);
  here.write("other.json", R"({"tokens_per_second": 3})");
  Outcome const other = here.copus("bench step --vs other.json");
  CHECK(other.code == 2);
  CHECK(all_in(other.err, {"--vs other.json", "bench step --json"}));
  CHECK(here.copus("bench step --recompute half").code == 2);
}

TEST_CASE("bench step books what the noise scale adds, and refuses a batch that has none to show") {
  Workspace const here;
  std::string const tiny = "bench step --seq-len 8 --batch 2 --steps 1 --threads 1 --noise-scale 4";
  Outcome const outcome = here.copus(tiny + " --micro 1 --json");
  REQUIRE(outcome.code == 0);
  nlohmann::json const result = nlohmann::json::parse(outcome.out);
  nlohmann::json const noise = result["noise_scale"];
  CHECK(noise["every_steps"] == 4);
  double const added = noise["added_seconds"], step = result["step_seconds"];
  CHECK(added > 0.0);
  CHECK(noise["share"].get<double>() == Approx(added / step / 4));
  CHECK(noise["paired_ratio"].get<double>() ==
        Approx(noise["measuring_step_seconds"].get<double>() / step));
  Outcome const one = here.copus(tiny + " --micro 2");
  CHECK(one.code == 2);
  CHECK(all_in(one.err, {"batch of 2", "one micro-batch of 2"}));
}

TEST_CASE("bench switch names each part of a ring that is no layout, or not one of this model") {
  Workspace const here;
  Outcome const words = here.copus("bench switch --model gpt2-124 --ring '2,2;1,x,1;2,1,1,7'");
  CHECK(words.code == 2);
  CHECK(all_in(words.err, {"gpt2-124m", "'2,2'", "'1,x,1'", "'2,1,1,7'", "dp,tp,pp,zero"}));
  Outcome const one = here.copus("bench switch --ring 2,2,1");
  CHECK(one.code == 2);
  CHECK(all_in(one.err, {"two layouts"}));
  // 12 heads are not cut by 5; 8 ranks are not there.
  Outcome const sizes = here.copus("bench switch --ranks 5 --ring '1,5,1;2,2,2;1,1,1'");
  CHECK(sizes.code == 2);
  CHECK(all_in(sizes.err, {"tp 5", "12", "needs 8 ranks, there are 5", "--ranks 8"}));
}

TEST_CASE("bench comm leaves a profile whose link is what it measured, and the planner takes it") {
  Workspace const here;
  Outcome const outcome =
      here.copus("bench comm --ranks 2 --threads 1 --repeats 1 --json --out profile.json");
  REQUIRE(outcome.code == 0);
  copus::Hardware const hardware = copus::parse_hardware(here.read("profile.json"), "profile.json");
  double small = 0.0, large = 0.0;
  nlohmann::json const result = nlohmann::json::parse(outcome.out);
  for (const nlohmann::json& rate : result["operations"]) {
    if (rate["operation"] != "all_reduce") continue;
    if (rate["bytes"] == 4096) small = rate["seconds"];
    if (rate["bytes"] == 67108864) large = rate["seconds"];
  }
  // Two ranks: one message there and one back, each of half the tensor.
  CHECK(hardware.inside.latency_seconds == Approx(small / 2.0));
  CHECK(hardware.inside.bytes_per_second == Approx(67108864.0 / (large - small)));
  CHECK(hardware.source.find("bench comm on 2 ranks of 1 threads over thread") !=
        std::string::npos);
  here.write("c.json", R"({"model": {"preset": "gpt2-124m"}, "batch": {"sequences": 4},
                           "cluster": {"hardware": "profile.json", "gpus_per_node": 2}})");
  CHECK(here.copus("plan c.json --json").code == 0);
  Outcome const nowhere = here.copus("bench comm --out absent/profile.json");
  CHECK(nowhere.code == 2);
  CHECK(all_in(nowhere.err, {"--out absent/profile.json", "a folder that exists"}));
}
