// Text before it is parsed as JSON.
#pragma once
#include <string_view>

namespace copus {

// Deeper than any file of ours or Hugging Face's goes.
constexpr int kDeepestJson = 64;

// Whether brackets outside strings and comments nest deeper than `most`. What copies, compares or
// writes a parsed value calls itself once a level: a file of brackets would run it out of stack, so
// such text is refused before it is parsed.
bool nests_deeper(std::string_view json, int most = kDeepestJson);

}  // namespace copus
