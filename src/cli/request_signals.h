// Signals as requests that the run looks at between steps: SIGTERM, SIGINT and SIGUSR1 to stop,
// SIGUSR2 for a branched check.
#pragma once
#include <string>

namespace copus {

// From now on the first request to stop is remembered, and a second, half a second later or more,
// ends the process at once. To be called before any other thread is made: a thread of its own takes
// the signals, and no other is ever interrupted by one.
void catch_request_signals();
// The signal to stop that has come, or 0. Any thread.
int stop_signal();
// Whether a check was asked for since the last call. Any thread.
bool take_check_request();
std::string name_of_signal(int signal);

}  // namespace copus
