// The three kinds of failure: the user's mistake, the world's, and ours.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

namespace copus {

// The user's mistake (config, flag, file). Each problem names the key or file, the value and what
// would be accepted. Collect every problem before throwing. The program ends with exit code 2 and
// has written nothing.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(std::string problem);
  explicit ConfigError(std::vector<std::string> problems);
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

// The world's failure: a file system, a device, a peer.
struct IoError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Our mistake: a broken invariant.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const std::string& message, const char* file,
                               int line);
}

}  // namespace copus

// Not CHECK: that name is Catch2's.
#define COPUS_CHECK(condition, message)                                                       \
  do {                                                                                        \
    if (!(condition)) ::copus::detail::check_failed(#condition, message, __FILE__, __LINE__); \
  } while (false)
