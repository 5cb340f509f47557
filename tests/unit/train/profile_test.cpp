#include "copus/train/profile.h"

#include <catch2/catch.hpp>

using namespace copus;

TEST_CASE("a profiler window is refused where the ranks compute on the CPU, and only there") {
  CHECK(profile_problem({}, false) == "");
  CHECK(profile_problem(StepWindow{20, 22}, true) == "");
  std::string const problem = profile_problem(StepWindow{20, 22}, false);
  CHECK(problem.find("log.profile_steps: \"20-22\"") == 0);
  CHECK(problem.find("CPU") != std::string::npos);
}

TEST_CASE("a run says when its profiler window comes, and when it has passed") {
  CHECK(profile_words({}, 5) == "");
  CHECK(profile_words(StepWindow{20, 22}, 0).find("steps 20 to 22") != std::string::npos);
  CHECK(profile_words(StepWindow{20, 22}, 21).find("steps 20 to 22") != std::string::npos);
  CHECK(profile_words(StepWindow{20, 22}, 22).find("before step 23") != std::string::npos);
}
