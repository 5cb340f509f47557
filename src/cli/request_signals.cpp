#include "cli/request_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "copus/core/console.h"

namespace copus {
namespace {

// One request may come as several signals: GNU timeout sends its own to the process and to the
// process group, a launcher may pass on what the terminal has sent already.
constexpr auto kOneRequest = std::chrono::milliseconds(500);

std::atomic<int> received{0};
std::atomic<bool> check_asked{false};

sigset_t request_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int const signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

void wait_for_signals() {
  using Clock = std::chrono::steady_clock;
  sigset_t const set = request_signals();
  Clock::time_point first;
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signal == SIGUSR2) {
      check_asked = true;
      continue;
    }
    Clock::time_point const now = Clock::now();
    if (received == 0) {
      received = signal;
      first = now;
    } else if (now - first >= kOneRequest) {
      // Not the process's own Console: a thread that writes may hold it.
      Console(STDERR_FILENO)
          .write_now("copus: a second signal: leaving at once, without a checkpoint\n");
      _exit(128 + signal);
    }
  }
}

}  // namespace

void catch_request_signals() {
  // No handler: it would run on the stack of whatever thread the kernel picks, and some of oneDNN's
  // generated matrix products use their stack pointer in a way that a signal's frame destroys
  // memory (seen with oneDNN 2.6.3 on AVX-512). Threads made from here on block them too.
  sigset_t const set = request_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(wait_for_signals).detach();
}

int stop_signal() {
  return received.load();
}

bool take_check_request() {
  return check_asked.exchange(false);
}

std::string name_of_signal(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace copus
