#include "copus/train/loop.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "copus/backend/attention_kernel.h"
#include "copus/comm/broadcast.h"
#include "copus/comm/rank_device.h"
#include "copus/comm/vote.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/train/profile.h"
#include "copus/train/rank_peak.h"
#include "copus/train/resolve.h"
#include "copus/train/run_plan.h"
#include "train/memory_room.h"
#include "train/run.h"
#include "train/run_directory.h"
#include "train/run_inputs.h"

namespace copus {
namespace {

bool differ_between_ranks(Communicator& world, const Config& config) {
  std::uint64_t const hash = std::hash<std::string>{}(to_json(config).dump());
  std::uint64_t bounds[2] = {hash, ~hash};
  world.all_reduce(std::span<std::uint64_t>(bounds), ReduceOp::max);
  return bounds[0] != ~bounds[1];
}

bool plans(const Config& config) {
  return config.adapt.mode == AdaptMode::suggest || config.adapt.mode == AdaptMode::act;
}

// The planner's last choice, out of the checkpoint, takes the place of the configuration's start.
// False where there is none that is possible.
bool go_on_as_chosen(const std::string& checkpoint, const Config& config, Communicator& world,
                     Log& log, RunPlan& plan) {
  ChosenPlan chosen;
  std::string const unreadable =
      first_problem(world, problem_of([&] {
                      if (world.rank() == 0)
                        chosen = read_checkpoint_summary(checkpoint).counters.plan;
                      return std::string();
                    }));
  if (!unreadable.empty()) throw ConfigError(unreadable);
  broadcast_value(world, chosen, 0);
  if (chosen.dp == 0) return false;
  // Batches that are given by a schedule are not the planner's.
  if (!config.batch.schedule.empty()) chosen.batch = 0;
  std::string const problem = plan_problem(run_plan(chosen), config, world.size());
  if (!problem.empty()) {
    log.warn("what the planner had chosen is not possible any more: " + problem);
    return false;
  }
  plan = run_plan(chosen);
  log.info(fmt::format("going on as the planner had chosen: {}{} in micro-batches of {}",
                       to_string(plan.layout),
                       plan.batch ? fmt::format(", batch {}", *plan.batch) : "", plan.micro));
  return true;
}

}  // namespace

RunEnd train(Config config, const TrainOptions& options, Communicator& world) {
  Log log(world.rank(), world.rank() == 0);
  std::vector<std::string> problems;
  RunPlan plan;
  std::optional<Script> script;
  try {
    plan.layout = resolve_layout(config, world.size());
    plan.micro = choose_micro(config, plan.layout);
    script.emplace(config, plan, world.size());
  } catch (const ConfigError& e) {
    problems = e.problems();
  }
  // world: which device each takes, and by what way tensors go between them.
  RankDevice const device =
      choose_device(world, {config.device, config.transport, options.local_rank}, cuda_facts());
  problems.insert(problems.end(), device.problems.begin(), device.problems.end());
  if (std::string problem = precision_problem(config, device.gpu_facts()); !problem.empty())
    problems.push_back(std::move(problem));
  if (std::string problem = profile_problem(config.log.profile_steps, device.on_gpu);
      !problem.empty())
    problems.push_back(std::move(problem));
  if (options.hardware && plans(config) &&
      options.hardware->matrix(config.train.precision).peak_flops <= 0.0) {
    problems.push_back(fmt::format(
        "train.precision: \"{}\" has no rate in the hardware \"{}\", by which adapt.mode plans; it "
        "takes cluster.hardware \"measure\", or train.precision \"fp32\"",
        name_of(config.train.precision), config.cluster.hardware));
  }
  RunDirectory const directory{config.run_dir};
  if (differ_between_ranks(world, config)) {
    problems.push_back(
        "the ranks were started with different configurations (another file or --set on some "
        "host)");
  }
  RunInputs inputs = open_inputs(config, options.resume, directory, world, log, problems);
  if (!agreed(world, problems)) return RunEnd::refused;
  bool const acts = config.adapt.mode == AdaptMode::act && config.adapt.script.empty();
  bool const chosen = acts && !inputs.checkpoint.directory.empty() &&
                      go_on_as_chosen(inputs.checkpoint.directory, config, world, log, plan);
  auto const backend = make_backend(device, options.threads, config.train.emulate_bf16);
  RunMachine machine = run_machine(world, device, *backend, config.train.precision);
  if (std::string const words = slow_bf16_words(
          device, *backend, config, machine.peak_flops[static_cast<std::size_t>(world.rank())]);
      !words.empty()) {
    log.warn(words);
  }
  RunStart start{plan, std::move(*script)};
  if (plans(config)) start.cluster = planning_cluster(config, options.hardware, machine, world);
  if (acts && !chosen) start.trials = starting_plans(config, *start.cluster, world);
  if (!start.trials.empty()) plan = start.plan = start.trials.front();
  if (config.parallel.virtual_stages.value_or(1) > 1 && plan.layout.pp == 1) {
    log.warn(fmt::format("parallel.virtual_stages: {} does nothing with one pipeline stage",
                         *config.parallel.virtual_stages));
  }
  if (plan.layout.world() < world.size()) {
    log.warn(fmt::format("{} of {} ranks are idle: the layout is {}",
                         world.size() - plan.layout.world(), world.size(), to_string(plan.layout)));
  }
  for (const std::string& note : device.notes) log.info(note);
  if (device.on_gpu) {
    log.info(attention_words(attention_task(config.model, config.train.precision)));
    std::string const short_of =
        memory_problem(config, plan.layout, plan.micro, world.rank(),
                       backend->free_bytes() / device.sharing, backend->attention_library());
    std::vector<std::string> shortages;
    if (!short_of.empty()) shortages.push_back(short_of);
    if (!agreed(world, shortages)) return RunEnd::refused;
  }
  Run run(std::move(config), options, std::move(start), world, std::move(machine),
          std::move(inputs), log);
  return run.go();
}

}  // namespace copus
