#include "copus/data/tokenizer.h"

#include <catch2/catch.hpp>

#include "copus/core/error.h"

namespace copus {
namespace {

TEST_CASE("the bytes tokenizer gives every byte its value and returns it") {
  Tokenizer const bytes = open_tokenizer("bytes");
  CHECK(bytes.id == "bytes");
  CHECK(bytes.vocab == 257);
  CHECK(bytes.end_of_text == 256);
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  std::vector<std::int32_t> ids{7};
  encode(bytes, text, ids);
  REQUIRE(ids.size() == 257);
  for (std::int32_t i = 0; i < 256; ++i) REQUIRE(ids[static_cast<std::size_t>(i) + 1] == i);
  ids.push_back(256);
  CHECK(decode(bytes, ids) == "\x07" + text);
  CHECK_THROWS_AS(decode(bytes, std::vector<std::int32_t>{257}), ConfigError);
  CHECK_THROWS_AS(decode(bytes, std::vector<std::int32_t>{-1}), ConfigError);
}

TEST_CASE("a tokenizer that is not bytes is refused with its name and what is accepted") {
  try {
    open_tokenizer("gpt2");
    FAIL("accepted");
  } catch (const ConfigError& e) {
    CHECK_THAT(e.what(), Catch::Contains("\"gpt2\"") && Catch::Contains("\"bytes\""));
  }
}

}  // namespace
}  // namespace copus
