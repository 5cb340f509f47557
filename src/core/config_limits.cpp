// What the file may ask for and this version cannot do yet.
#include <fmt/format.h>

#include "copus/core/config_io.h"

namespace copus {
namespace {

class Refusals {
 public:
  void add(bool refuse, std::string_view key, const std::string& value, std::string_view accepted) {
    if (refuse)
      refusals_.push_back(
          fmt::format("{}: {} is not in this version, which takes {}", key, value, accepted));
  }
  std::vector<std::string> take() { return std::move(refusals_); }

 private:
  std::vector<std::string> refusals_;
};

}  // namespace

std::vector<std::string> not_yet(const Config& config) {
  Refusals refusals;
  refusals.add(config.log.tensorboard, "log.tensorboard", "true", "false");
  return refusals.take();
}

}  // namespace copus
