#include "cli/say.h"

#include <string>

#include "copus/core/console.h"
#include "copus/core/printable.h"

namespace copus {
namespace {

// A stderr that is closed or full changes nothing: the exit code still tells.
void say(const char* kind, std::string_view words) {
  standard_error().write(kind + printable(words) + "\n");
}

}  // namespace

void say_error(std::string_view problem) {
  say("error: ", problem);
}
void say_warning(std::string_view warning) {
  say("warning: ", warning);
}

}  // namespace copus
