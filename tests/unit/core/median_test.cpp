#include "copus/core/median.h"

#include <catch2/catch.hpp>

TEST_CASE("the median is the middle of the sorted values, of an even number the upper one") {
  CHECK(copus::median({5.0}) == 5.0);
  CHECK(copus::median({9.0, 1.0, 4.0}) == 4.0);
  CHECK(copus::median({7.0, 1.0, 100.0, 3.0}) == 7.0);
}
