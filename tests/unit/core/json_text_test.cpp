#include "copus/core/json_text.h"

#include <catch2/catch.hpp>
#include <string>

#include "unit/core/config_fixture.h"

using namespace copus;

TEST_CASE("brackets count where they nest, not in strings and comments") {
  CHECK_FALSE(nests_deeper("", 0));
  CHECK(nests_deeper("{}", 0));
  CHECK_FALSE(nests_deeper("[[]]", 2));
  CHECK(nests_deeper("[[]]", 1));
  CHECK_FALSE(nests_deeper("[[], [], {\"a\": {}}]", 3));
  CHECK(nests_deeper("[{\"a\": {}}]", 2));
  CHECK_FALSE(nests_deeper(R"(["[[[[", "\"[[", "\\"])", 1));
  CHECK(nests_deeper(R"(["\\", [])", 1));
  CHECK_FALSE(nests_deeper("[ // [[[[\n /* [[ \n [[ */ ]", 1));
  CHECK(nests_deeper("// [[\n[/**/[", 1));
  for (const char* open : {"\"", "\"\\", "//", "/*", "/"}) CHECK_FALSE(nests_deeper(open, 1));
}

TEST_CASE("a configuration of a million brackets is refused, not followed") {
  std::string const deep(1000000, '[');
  CHECK(parse("{\"model\": " + deep + std::string(deep.size(), ']') + "}")
            .names({"dir/case.json", "deeper than 64 levels"}));
  CHECK(with({{"batch.sequences", deep + std::string(deep.size(), ']')}})
            .names({"batch.sequences: \"[[[["}));
}
