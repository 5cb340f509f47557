// The memory of one operand between guard bands: canaries before, after and between its rows.
#pragma once
#include "copus/backend/buffer.h"
#include "ops/op_cases.h"

namespace copus::ops {

class Guarded {
 public:
  // Outputs start as NaN, so that an operation that reads or skips one is found out.
  Guarded(Backend& backend, const Operand& operand);

  const TensorView& view() const { return view_; }
  std::vector<double> values(Backend& backend) const;
  // Everything outside the view, and for an input the view too, holds what it held at the start.
  bool intact(Backend& backend) const;

 private:
  // Every element of the buffer, bands and gaps included, as its bits.
  std::vector<std::uint32_t> words(Backend& backend) const;
  // Places of the view's elements among them, in row-major order.
  std::vector<std::size_t> offsets() const;

  Buffer buffer_;
  TensorView view_;
  Role role_;
  std::vector<std::uint32_t> before_;
};

}  // namespace copus::ops
