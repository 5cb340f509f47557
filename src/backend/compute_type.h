// The types that activations and weights may have, as loops and kernels see them: every element is
// read as a float, computed with in float, and rounded once where it is stored.
#pragma once
#include "copus/core/dtype.h"
#include "copus/core/error.h"
#include "copus/core/hd.h"
#include "copus/core/math.h"

namespace copus {

COPUS_HD float get(float x) {
  return x;
}
COPUS_HD float get(Bf16 x) {
  return math::from_bf16(x.bits);
}
COPUS_HD void put(float& to, float x) {
  to = x;
}
COPUS_HD void put(Bf16& to, float x) {
  to.bits = math::to_bf16(x);
}

// Calls body with a value of the type that `dtype` names: the one place where an operation asks.
template <class Body>
void with_compute_type(DType dtype, const Body& body) {
  COPUS_CHECK(dtype == DType::f32 || dtype == DType::bf16, "activations are f32 or bf16");
  if (dtype == DType::bf16) {
    body(Bf16{});
  } else {
    body(float{});
  }
}

}  // namespace copus
