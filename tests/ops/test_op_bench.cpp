#include <catch2/catch.hpp>
#include <set>

#include "backend/op_bench.h"
#include "ops/op_cases.h"

namespace copus::ops {

// Hidden: it needs a gibibyte and a second; `test_ops "[bench]"` runs it, scripts/test.sh does not.
TEST_CASE("every operation of the table is timed by the benchmark", "[.][bench]") {
  auto const backend = make_cpu_backend(2);
  std::set<std::string> timed;
  for (const OpRate& rate : bench_ops(*backend, 5)) {
    INFO(rate.name);
    CHECK(rate.seconds > 0.0);
    CHECK(rate.rate() > 0.0);
    timed.insert(rate.name.substr(0, rate.name.find(' ')));
    WARN(rate.name << ": " << rate.seconds * 1e3 << " ms, " << rate.rate() / 1e9
                   << (rate.flops > 0.0 ? " GFLOP/s" : " GB/s"));
  }
  for (const OpCase& row : all_op_cases()) {
    INFO(row.op);
    CHECK(timed.count(row.op) == 1);
  }
}

}  // namespace copus::ops
