#include "cli/launched_process.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "copus/core/error.h"

namespace copus {
namespace {

int number(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  int value = -1;
  if (text != nullptr) {
    auto const [end, error] = std::from_chars(text, text + std::strlen(text), value);
    if (error != std::errc() || *end != '\0') value = -1;
  }
  if (value >= 0) return value;
  throw ConfigError(
      fmt::format("{}: {} is not accepted where a launcher started several "
                  "processes; it takes a whole number from 0",
                  name, text != nullptr ? fmt::format("\"{}\"", text) : "nothing"));
}

std::string joined(const Variable& variable, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* const name : names) {
    const char* const value = variable(name);
    if (value != nullptr && *value != '\0') text += (text.empty() ? "" : "-") + std::string(value);
  }
  return text;
}

// Part of a file's name.
std::string plain(std::string text) {
  for (char& c : text) {
    bool const letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '.') c = '_';
  }
  return text;
}

}  // namespace

std::optional<LaunchedProcess> launched_process(const Variable& variable) {
  bool const by_srun = variable("SLURM_STEP_NUM_TASKS") != nullptr;
  bool const by_rank = variable("WORLD_SIZE") != nullptr && variable("RANK") != nullptr;
  if (!by_srun && !by_rank) return {};
  // Inside a Slurm job torchrun starts its own processes; what it says is nearer.
  const char* const size = by_rank ? "WORLD_SIZE" : "SLURM_STEP_NUM_TASKS";
  LaunchedProcess process;
  process.size = number(variable, size);
  if (process.size <= 1) return {};
  process.rank = number(variable, by_rank ? "RANK" : "SLURM_PROCID");
  process.local_rank = number(variable, by_rank ? "LOCAL_RANK" : "SLURM_LOCALID");
  if (process.rank >= process.size) {
    throw ConfigError(fmt::format("{} {} and {} {} do not fit together; ranks count from 0",
                                  by_rank ? "RANK" : "SLURM_PROCID", process.rank, size,
                                  process.size));
  }
  process.job = plain(joined(variable, {"COPUS_JOB"}));
  if (process.job.empty() && by_rank && variable("TORCHELASTIC_RUN_ID") != nullptr)
    process.job = plain(
        joined(variable, {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}));
  if (process.job.empty() && by_srun)
    process.job = plain(joined(variable, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}));
  if (process.job.empty()) {
    throw ConfigError(
        "a launcher started this process as one of several and gives the job no name; set "
        "COPUS_JOB to one that is the same for all of them and new at every start");
  }
  return process;
}

}  // namespace copus
