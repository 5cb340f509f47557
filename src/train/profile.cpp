#include "copus/train/profile.h"

#include <fmt/format.h>

#include "copus/backend/profiler.h"

namespace copus {

std::string profile_problem(const ProfileSteps& steps, bool on_gpu) {
  if (!steps || on_gpu) return "";
  return fmt::format(
      "log.profile_steps: \"{}-{}\" opens a window for nsys and ncu, and the ranks compute on the "
      "CPU; it takes \"\" there (perf needs no window)",
      steps->first, steps->last);
}

std::string profile_words(const ProfileSteps& steps, std::int64_t done) {
  if (!steps) return "";
  if (steps->last <= done)
    return fmt::format("log.profile_steps: {}-{} lie before step {}, with which the run goes on",
                       steps->first, steps->last, done + 1);
  return fmt::format(
      "a profiler that waits for it (nsys --capture-range=cudaProfilerApi) records steps {} to {}",
      steps->first, steps->last);
}

void before_profiled(const ProfileSteps& steps, std::int64_t step) {
  if (steps && step >= steps->first && step <= steps->last) open_profiler_window();
}

void after_profiled(const ProfileSteps& steps, std::int64_t step, Communicator& world) {
  if (!steps || step != steps->last) return;
  // world: ranks that are threads share one window, which the first must not close on the others.
  world.barrier();
  close_profiler_window();
}

}  // namespace copus
