#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

// The names of the virtual functions after the memory section of backend.h.
std::set<std::string> declared_operations() {
  std::ifstream file(std::string(COPUS_TEST_DIR) + "/../include/copus/backend/backend.h");
  std::stringstream text;
  text << file.rdbuf();
  std::string const all = text.str();
  std::string const operations = all.substr(all.find("---- matrix products"));
  // "virtual", a type, then the name up to its parenthesis.
  std::istringstream words(operations);
  std::set<std::string> names;
  for (std::string word; words >> word;) {
    if (word != "virtual") continue;
    std::string type, name;
    words >> type >> name;
    names.insert(name.substr(0, name.find('(')));
  }
  return names;
}

}  // namespace

TEST_CASE("every operation of the backend has a row in the table, and every row an operation") {
  std::set<std::string> const declared = declared_operations();
  REQUIRE(declared.count("matmul") == 1);
  REQUIRE(declared.count("adamw") == 1);
  std::set<std::string> rows;
  for (const OpCase& row : all_op_cases()) rows.insert(row.op);
  CHECK(rows == declared);
}

TEST_CASE("every operation on activations or weights has a row in bf16") {
  std::set<std::string> expected = declared_operations(), rows;
  // These work on f32 alone: statistics of logits, gradients and the optimizer's state.
  for (const char* name : {"cross_entropy_stats", "cross_entropy_rescale", "cross_entropy_loss",
                           "sum", "square_sum", "adamw", "hash"}) {
    CHECK(expected.erase(name) == 1);
  }
  for (const OpCase& row : bf16_op_cases()) rows.insert(row.op);
  CHECK(rows == expected);
}

}  // namespace copus::ops
