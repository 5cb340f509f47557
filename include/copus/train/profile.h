// log.profile_steps: the steps of a run that a profiler records.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "copus/comm/communicator.h"
#include "copus/core/config.h"

namespace copus {

using ProfileSteps = std::optional<StepWindow>;

// Why there is no such window, by key and value; empty when there is, or when none is asked for.
std::string profile_problem(const ProfileSteps& steps, bool on_gpu);
// What a run that goes on after `done` steps has to say of its window; empty when it says nothing.
std::string profile_words(const ProfileSteps& steps, std::int64_t done);

// Before a step: opens the window where the step lies in it. After it, `step` being the one just
// done: closes it behind its last step, once every rank of the world is through with that.
void before_profiled(const ProfileSteps& steps, std::int64_t step);
void after_profiled(const ProfileSteps& steps, std::int64_t step, Communicator& world);

}  // namespace copus
