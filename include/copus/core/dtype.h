// Element types of tensors.
#pragma once
#include <cstdint>
#include <string_view>

namespace copus {

enum class DType : std::uint8_t { f32, bf16, i32, u8 };

// An element of a bf16 tensor: the upper half of an f32 (math::to_bf16, math::from_bf16).
struct Bf16 {
  std::uint16_t bits;
};

template <class T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<Bf16> = DType::bf16;

constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

}  // namespace copus
