// Checks that walk the whole table of op_cases.h on a backend: every backend answers to the same.
#pragma once
#include <string>
#include <vector>

#include "ops/guarded.h"
#include "ops/op_cases.h"

namespace copus::ops {

// One row on one backend: its operands' memory, and what the row's reference says.
class Trial {
 public:
  Trial(Backend& backend, const OpCase& row) : backend_(backend), row_(row) {
    for (const Operand& operand : row.operands) {
      memory_.emplace_back(backend, operand);
      views_.push_back(memory_.back().view());
    }
  }
  void run() {
    row_.run(backend_, views_);
    backend_.synchronize();
  }
  bool intact(std::size_t operand) const { return memory_[operand].intact(backend_); }
  std::vector<double> values(std::size_t operand) const {
    return memory_[operand].values(backend_);
  }

 private:
  Backend& backend_;
  const OpCase& row_;
  std::vector<Guarded> memory_;
  Views views_;
};

// What the row's reference says of all operands.
Values expected(const OpCase& row);
std::string title(const OpCase& row);

// Each output is within the roundings that its row allows of what double arithmetic gives.
void check_values(Backend& backend, const std::vector<OpCase>& rows = all_op_cases());
// Nothing outside the outputs has changed.
void check_guards(Backend& backend, const std::vector<OpCase>& rows = all_op_cases());
// A NaN in an input reaches every output element that depends on it.
void check_nan(Backend& backend, const std::vector<OpCase>& rows = all_op_cases());
// The same call twice gives the same bits; matrix products too.
void check_repeats(Backend& backend, const std::vector<OpCase>& rows = all_op_cases());

}  // namespace copus::ops
