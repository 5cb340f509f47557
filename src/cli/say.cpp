#include "cli/say.h"

#include <cstdio>

#include "copus/core/printable.h"

namespace copus {
namespace {

// Never throws for a stderr that is closed or full, as fmt::print does: the exit code still tells.
void say(const char* kind, std::string_view words) {
  std::fputs((kind + printable(words) + "\n").c_str(), stderr);
}

}  // namespace

void say_error(std::string_view problem) {
  say("error: ", problem);
}
void say_warning(std::string_view warning) {
  say("warning: ", warning);
}

}  // namespace copus
