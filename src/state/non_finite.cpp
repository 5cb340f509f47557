#include "state/non_finite.h"

#include <fmt/format.h>

#include <bit>

namespace copus {

void NonFinite::look(const std::string& tensor, std::span<const float> weights) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::int64_t count = 0;
  for (float const x : weights)
    count += (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent ? 1 : 0;
  if (count > 0) counts_[tensor] += count;
}

std::vector<std::string> NonFinite::problems(const std::string& source) const {
  std::vector<std::string> problems;
  for (const auto& [tensor, count] : counts_) {
    problems.push_back(
        fmt::format("{}: tensor \"{}\" holds {} {} NaN or infinite; accepted: finite weights",
                    source, tensor, count, count == 1 ? "weight that is" : "weights that are"));
  }
  return problems;
}

}  // namespace copus
