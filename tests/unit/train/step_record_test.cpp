// What a step's record says of its ranks.
#include "copus/train/step_record.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace copus;

TEST_CASE("C21: the spread over ranks names the slowest one") {
  std::vector<double> const seconds{0.2, 0.1, 0.9, 0.3, 0.4};
  Spread const spread = spread_of(seconds);
  CHECK(spread.min == 0.1);
  CHECK(spread.median == 0.3);
  CHECK(spread.max == 0.9);
  CHECK(spread.max_rank == 2);
  CHECK(spread_of(std::vector<double>{0.5, 0.5}).max_rank == 0);
}
