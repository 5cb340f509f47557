#include "cli/launched_process.h"

#include <catch2/catch.hpp>
#include <map>

#include "copus/core/error.h"

using namespace copus;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchedProcess> process_of(const Variables& variables) {
  return launched_process([&](const char* name) {
    auto const found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  });
}

std::string refusal_of(const Variables& variables) {
  try {
    process_of(variables);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a process without a launcher, or alone under one, is not one of several") {
  CHECK_FALSE(process_of({}));
  CHECK_FALSE(process_of({{"RANK", "0"}}));
  CHECK_FALSE(process_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}));
  CHECK_FALSE(process_of({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));
  CHECK_FALSE(process_of({{"SLURM_NTASKS", "8"}}));  // sbatch's script itself
}

TEST_CASE("srun tells a task its ranks, and a job's name that a restart changes") {
  Variables const step{{"SLURM_STEP_NUM_TASKS", "16"},
                       {"SLURM_PROCID", "9"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "3"}};
  auto const process = process_of(step);
  REQUIRE(process);
  CHECK(process->rank == 9);
  CHECK(process->size == 16);
  CHECK(process->local_rank == 1);
  CHECK(process->job == "77-3");
  Variables restarted = step;
  restarted["SLURM_RESTART_COUNT"] = "1";
  CHECK(process_of(restarted)->job == "77-3-1");
}

TEST_CASE("torchrun's variables count inside a Slurm job too, and COPUS_JOB names any") {
  Variables variables{{"RANK", "3"},
                      {"WORLD_SIZE", "4"},
                      {"LOCAL_RANK", "3"},
                      {"TORCHELASTIC_RUN_ID", "none"},
                      {"TORCHELASTIC_RESTART_COUNT", "0"},
                      {"MASTER_PORT", "29400"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_PROCID", "0"}};
  CHECK(process_of(variables)->rank == 3);
  CHECK(process_of(variables)->job == "none-0-29400");
  variables["COPUS_JOB"] = "mine/2";
  CHECK(process_of(variables)->job == "mine_2");
}

TEST_CASE("what a launcher says and does not fit is refused by name") {
  Variables const good{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"COPUS_JOB", "a"}};
  CHECK(refusal_of(good) == "");
  auto const with = [&](const std::string& name, const std::string& value) {
    Variables changed = good;
    changed[name] = value;
    return refusal_of(changed);
  };
  CHECK(with("RANK", "2").find("RANK 2 and WORLD_SIZE 2") == 0);
  CHECK(with("RANK", "x").find("RANK: \"x\"") == 0);
  CHECK(with("LOCAL_RANK", "-1").find("LOCAL_RANK: \"-1\"") == 0);
  CHECK(with("COPUS_JOB", "").find("COPUS_JOB") != std::string::npos);
  Variables without = good;
  without.erase("LOCAL_RANK");
  CHECK(refusal_of(without).find("LOCAL_RANK: nothing") == 0);
}
