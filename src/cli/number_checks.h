// Checks of numeric options that say what would be accepted in few words (CLI11's own print the
// largest double in full).
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace copus {

// Whether the text is a whole number is the option's type to say; this holds it against its least.
inline CLI::Validator whole_from(std::int64_t least) {
  auto const check = [least](std::string& text) {
    std::int64_t value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least) return std::string();
    return fmt::format("{} is not accepted; it takes a whole number from {} up", text, least);
  };
  return CLI::Validator(check, fmt::format("from {} up", least));
}

// A finite number from 0 up, or above it.
inline CLI::Validator number_from_zero(bool zero_too = true) {
  std::string const accepted = zero_too ? "from 0 up" : "above 0";
  auto const check = [=](std::string& text) {
    double value = 0;
    bool const number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
    if (number && (value > 0.0 || (zero_too && value == 0.0))) return std::string();
    return fmt::format("{} is not accepted; it takes a number {}", text, accepted);
  };
  return CLI::Validator(check, accepted);
}
inline CLI::Validator number_above_zero() {
  return number_from_zero(false);
}

}  // namespace copus
