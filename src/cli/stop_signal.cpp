#include "cli/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace copus {
namespace {

// A handler can reach nothing else.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) {
  if (received.exchange(signal) == 0) return;
  constexpr char kText[] = "copus: a second signal: leaving at once, without a checkpoint\n";
  // Nothing better could be done about a failure here.
  [[maybe_unused]] auto const written = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(128 + signal);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
}

int stop_signal() {
  return received.load();
}

std::string name_of_signal(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace copus
