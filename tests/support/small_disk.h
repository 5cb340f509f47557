// A disk that fills up.
#pragma once
#include <sys/resource.h>

#include <csignal>

namespace copus::test {

// Lets this process write files up to `bytes` only, for as long as it lives.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : old_action_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit const small{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_action_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit old_{};
  void (*old_action_)(int);
};

}  // namespace copus::test
