#include "cli/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace copus {
namespace {

// One request may come as several signals: GNU timeout sends its own to the process and to the
// process group, a launcher may pass on what the terminal has sent already.
constexpr std::int64_t kOneRequestNanoseconds = 500'000'000;

// A handler can reach nothing else.
std::atomic<int> received{0};
std::atomic<std::int64_t> first_at{0};
static_assert(std::atomic<int>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void remember(int signal) {
  std::int64_t const at = now();
  std::int64_t none = 0;
  first_at.compare_exchange_strong(none, at);
  int first = 0;
  if (received.compare_exchange_strong(first, signal)) return;
  if (at - first_at.load() < kOneRequestNanoseconds) return;
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
