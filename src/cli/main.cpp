// Reads the command line, runs one subcommand, and turns what it throws into an exit code:
// 0 done, 1 the run failed, 2 the user's mistake, 3 stopped by a signal after a checkpoint.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/say.h"
#include "copus/core/error.h"

namespace {

constexpr int kFailed = 1, kMistake = 2, kStopped = 3;

// OpenMP's waiting threads spin by default: one more busy process on the machine, or one more rank,
// then costs several times its share. They are to sleep unless the user has said otherwise. libgomp
// reads this when it is loaded, before main, so the program starts itself once more; where that
// fails it goes on as it is.
void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);
}

// A file opened where stdin, stdout or stderr was closed would take its number, and then the words
// that are printed there.
void fill_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) == -1) open("/dev/null", O_RDWR);
  }
}

// All at once, but an index of a million files that are not there has had its say after some.
void say_problems(const std::vector<std::string>& problems) {
  constexpr std::size_t kMost = 200;
  for (std::size_t i = 0; i < std::min(kMost, problems.size()); ++i) copus::say_error(problems[i]);
  if (problems.size() > kMost)
    copus::say_error(fmt::format("and {} more", problems.size() - kMost));
}

int run(int argc, char** argv) {
  CLI::App app{"copus: trains transformer language models, on this machine's CPU or on a cluster"};
  app.set_version_flag("--version", fmt::format("copus {}", COPUS_VERSION));
  app.require_subcommand(1);
  app.fallthrough(false);
  copus::add_train(app);
  copus::add_prepare(app);
  copus::add_eval(app);
  copus::add_import(app);
  copus::add_plan(app);
  copus::add_simulate(app);
  copus::add_export(app);
  copus::add_inspect(app);
  copus::add_generate(app);
  copus::add_bench(app);
  for (const char* name :
       {"prepare", "import", "plan", "simulate", "export", "inspect", "generate"}) {
    app.get_subcommand(name)->preparse_callback(
        [name](std::size_t) { copus::refuse_several_processes(name); });
  }
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return kMistake;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kMistake;
  }
  // What these were asked for is what they print; the others have written their files.
  for (const char* name : {"eval", "generate", "inspect", "plan", "simulate", "bench"}) {
    if (app.got_subcommand(name) && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
      copus::say_error("stdout: cannot write all of it");
      return kFailed;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  let_waiting_threads_sleep(argv);
  try {
    return run(argc, argv);
  } catch (const copus::Stopped&) {
    return kStopped;
  } catch (const copus::ConfigError& e) {
    say_problems(e.problems());
    return kMistake;
  } catch (const std::filesystem::filesystem_error& e) {
    copus::say_error(fmt::format("{}: {}", e.path1().string(), e.code().message()));
    return kFailed;
  } catch (const std::bad_alloc& e) {
    copus::say_error(fmt::format("out of memory ({})", e.what()));
    return kFailed;
  } catch (const std::exception& e) {
    copus::say_error(e.what());
    return kFailed;
  }
}
