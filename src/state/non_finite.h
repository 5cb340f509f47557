// Weights that are no numbers (NaN, infinities), counted by the file's tensor that holds them.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace copus {

class NonFinite {
 public:
  void look(const std::string& tensor, std::span<const float> weights);
  // One for each tensor that holds some; `source` is named as where it stands.
  std::vector<std::string> problems(const std::string& source) const;

 private:
  std::map<std::string, std::int64_t> counts_;
};

}  // namespace copus
