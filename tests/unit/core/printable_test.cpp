#include "copus/core/printable.h"

#include <catch2/catch.hpp>

using namespace copus;

TEST_CASE("nothing that a terminal obeys is left in printable text") {
  for (int byte = 0; byte < 256; ++byte) {
    CAPTURE(byte);
    std::string const one(1, static_cast<char>(byte)), shown = printable_line(one);
    bool const plain = byte >= 0x20 && byte < 0x7f;
    CHECK((shown == one) == plain);
    for (char const c : shown) CHECK((c >= 0x20 && c < 0x7f));
  }
  CHECK(printable("\x1b[2J\x1b]0;owned\x07") == "\\x1b[2J\\x1b]0;owned\\x07");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\u009b2J");  // the same command in two bytes
  CHECK(printable("a\xe2\x80\xae"
                  "b") == "a\\u202eb");
}

TEST_CASE("printable text keeps every other character, lines and tabs where asked") {
  std::string const text = "gr\xc3\xbc\xc3\x9f, \xe6\x9d\xb1\xe4\xba\xac, \xf0\x9f\x90\x99\n\ttwo";
  CHECK(printable(text) == text);
  CHECK(printable_line("a\nb\tc") == "a\\x0ab\\x09c");
}

TEST_CASE("text in pieces of any size is shown as in one piece") {
  std::string const text = "\xc3\xbc\x1b[2J\xf0\x9f\x90\x99\xff\xe4\xe6\x9d\xb1\xc2\x9b.\xe4\xba";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    CAPTURE(step);
    PrintablePieces pieces;
    std::string shown;
    for (std::size_t at = 0; at < text.size(); at += step)
      shown += pieces.add(std::string_view(text).substr(at, step));
    CHECK(shown + pieces.end() == printable(text));
  }
}

TEST_CASE("bytes that are no UTF-8 are shown one by one") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xc3") == "\\xc3");           // cut off
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");  // longer than it need be
  CHECK(printable("\xe0\x80\x9b") == "\\xe0\\x80\\x9b");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a pair
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xe4\x1b[2J") == "\\xe4\\x1b[2J");  // a lead byte does not hide what follows
}
