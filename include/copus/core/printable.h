// Text that comes from files or peers, before it reaches a terminal.
#pragma once
#include <string>
#include <string_view>

namespace copus {

// What a terminal would obey and not show stands as an escape: control characters ("\x1b", of two
// bytes "\u009b"), marks that turn the direction of writing ("\u202e"), and bytes that are no
// UTF-8. Line feeds and tabs stay; in printable_line they are escaped too, so that a name cannot
// end its line.
std::string printable(std::string_view text);
std::string printable_line(std::string_view text);

// The same for text that comes in pieces, of which a character may lie in two.
class PrintablePieces {
 public:
  std::string add(std::string_view piece);
  std::string end();  // what was held back

 private:
  std::string held_;  // the beginning of a character
};

}  // namespace copus
