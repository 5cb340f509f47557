#include "copus/core/json_text.h"

namespace copus {
namespace {

// The place after the string or comment that begins at `at`, or `at` where none does.
std::size_t after_text(std::string_view json, std::size_t at) {
  auto const end_of = [&](std::string_view mark, std::size_t from) {
    std::size_t const found = json.find(mark, from);
    return found == std::string_view::npos ? json.size() : found + mark.size();
  };
  if (json.substr(at, 2) == "//") return end_of("\n", at + 2);
  if (json.substr(at, 2) == "/*") return end_of("*/", at + 2);
  if (json[at] != '"') return at;
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at + 1;
}

}  // namespace

bool nests_deeper(std::string_view json, int most) {
  int depth = 0;
  for (std::size_t at = 0; at < json.size();) {
    std::size_t const next = after_text(json, at);
    if (next != at) {
      at = next;
      continue;
    }
    char const c = json[at++];
    if ((c == '[' || c == '{') && ++depth > most) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace copus
