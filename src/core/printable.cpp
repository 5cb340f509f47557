#include "copus/core/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <utility>

namespace copus {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no UTF-8 begins here
};

// Of the character that a first byte begins; 0 where none begins with it.
std::size_t length_after(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

Character character_at(std::string_view text, std::size_t at) {
  auto const byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  std::size_t const bytes = length_after(static_cast<unsigned char>(text[at]));
  if (bytes < 2) return {byte(0), bytes};
  std::uint32_t code = byte(0) & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  // The shortest form only, no surrogates, nothing beyond Unicode.
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  bool const surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || surrogate || code > 0x10ffff) return {};
  return {code, bytes};
}

bool commands(std::uint32_t code) {
  bool const control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
  bool const direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return control || direction;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    Character const c = character_at(text, at);
    std::size_t const bytes = c.bytes > 0 ? c.bytes : 1;
    std::string_view const raw = text.substr(at, bytes);
    if (c.bytes > 0 && (!commands(c.code) || kept.find(raw) != std::string_view::npos)) {
      out += raw;
    } else if (bytes == 1) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(raw[0]));
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c.code);
    }
    at += bytes;
  }
  return out;
}

// Bytes at the end of a text that a further one may complete to a character.
std::size_t unfinished(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= 3 && bytes <= text.size(); ++bytes) {
    auto const byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xc0) != 0x80) return length_after(byte) > bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, "\n\t");
}
std::string printable_line(std::string_view text) {
  return escaped(text, "");
}

std::string PrintablePieces::add(std::string_view piece) {
  held_ += piece;
  std::string const whole = held_.substr(0, held_.size() - unfinished(held_));
  held_.erase(0, whole.size());
  return printable(whole);
}

std::string PrintablePieces::end() {
  return printable(std::exchange(held_, {}));
}

}  // namespace copus
