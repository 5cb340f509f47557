// A point on the token axis that comes again every so many tokens.
#pragma once
#include <cstdint>

namespace copus {

class TokenInterval {
 public:
  // every 0: never.
  TokenInterval(std::int64_t every, std::int64_t now)
      : every_(every), passed_(every > 0 ? now / every : 0) {}
  // Whether a multiple of `every` lies in what was consumed since the last call.
  bool due(std::int64_t tokens) {
    if (every_ == 0 || tokens / every_ == passed_) return false;
    passed_ = tokens / every_;
    return true;
  }

 private:
  std::int64_t every_, passed_;
};

}  // namespace copus
