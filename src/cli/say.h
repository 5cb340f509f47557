// Words for the user, on stderr. Names and values in them may come from files: they are printed as
// text, whatever bytes they hold.
#pragma once
#include <string_view>

namespace copus {

void say_error(std::string_view problem);    // "error: ..."
void say_warning(std::string_view warning);  // "warning: ..."

}  // namespace copus
