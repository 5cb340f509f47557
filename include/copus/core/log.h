// A rank's log: lines to the console and to the run's log.txt. Handed in where it is needed; there
// is no global one.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace copus {

class Log {
 public:
  // Console only until attach_file. Lines of ranks other than 0 start with the padded rank, e.g.
  // "[rank 03] ".
  explicit Log(int rank = 0, bool console = true);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  void attach_file(const std::string& path);  // appends; throws IoError
  void info(std::string_view line);
  void warn(std::string_view line);
  void error(std::string_view line);
  // A line that the next one overwrites: shown on a terminal only, never written to the file.
  void live(std::string_view line);
  bool console_is_terminal() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
