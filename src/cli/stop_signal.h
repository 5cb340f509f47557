// SIGTERM, SIGINT and SIGUSR1 as a request that the run looks at between steps.
#pragma once
#include <string>

namespace copus {

// From now on the first of these signals is remembered, and a second, half a second later or more,
// ends the process at once. To be called before any other thread is made: a thread of its own takes
// the signals, and no other is ever interrupted by one.
void catch_stop_signals();
// The signal that has come, or 0. Any thread.
int stop_signal();
std::string name_of_signal(int signal);

}  // namespace copus
