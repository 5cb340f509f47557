// The types that activations and weights may have, as the CPU's loops see them: every element is
// read as a float, computed with in float, and rounded once where it is stored.
#pragma once
#include "copus/core/dtype.h"
#include "copus/core/error.h"
#include "copus/core/math.h"

namespace copus {

inline float get(float x) {
  return x;
}
inline float get(Bf16 x) {
  return math::from_bf16(x.bits);
}
inline void put(float& to, float x) {
  to = x;
}
inline void put(Bf16& to, float x) {
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
