#include "ops/guarded.h"

#include <bit>

namespace copus::ops {
namespace {

constexpr std::int64_t kBand = 64;  // elements
// A NaN: also what is read from outside is found out.
std::uint32_t canary(DType dtype) {
  return dtype == DType::bf16 ? 0x7fcau : 0x7fc0babeu;
}

std::uint32_t encode(double value, DType dtype) {
  if (dtype == DType::bf16) return math::to_bf16(static_cast<float>(value));
  if (dtype == DType::i32) return std::bit_cast<std::uint32_t>(static_cast<std::int32_t>(value));
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

double decode(std::uint32_t bits, DType dtype) {
  if (dtype == DType::bf16)
    return static_cast<double>(math::from_bf16(static_cast<std::uint16_t>(bits)));
  if (dtype == DType::i32) return std::bit_cast<std::int32_t>(bits);
  return static_cast<double>(std::bit_cast<float>(bits));
}

TensorView strided(const Operand& operand) {
  TensorView view;
  view.dtype = operand.dtype;
  view.dims = static_cast<int>(operand.sizes.size());
  // The gap lies between rows; between tokens where a row is (heads, D).
  int const gap_dim = view.dims == 4 ? 1 : view.dims - 2;
  std::int64_t step = 1;
  for (int d = view.dims - 1; d >= 0; --d) {
    auto const i = static_cast<std::size_t>(d);
    if (d == gap_dim) step += operand.gap;
    view.size[i] = operand.sizes[i];
    view.stride[i] = step;
    step *= operand.sizes[i];
  }
  return view;
}

}  // namespace

Guarded::Guarded(Backend& backend, const Operand& operand)
    : view_(strided(operand)), role_(operand.role) {
  std::int64_t const extent = view_.size[0] * view_.stride[0];
  before_.assign(static_cast<std::size_t>(extent + 2 * kBand), canary(operand.dtype));
  std::size_t element = 0;
  for (std::size_t const at : offsets()) {
    if (role_ != Role::output) before_[at] = encode(operand.values[element++], operand.dtype);
  }
  auto const elements = static_cast<std::int64_t>(before_.size()), width = size_of(view_.dtype);
  buffer_ = Buffer(backend, elements * width);
  TensorView const all(buffer_.data(), view_.dtype, {elements});
  if (view_.dtype == DType::bf16) {
    std::vector<std::uint16_t> const halves(before_.begin(), before_.end());
    backend.upload(all, halves.data());
  } else {
    backend.upload(all, before_.data());
  }
  view_.data = buffer_.data() + kBand * width;
}

std::vector<std::size_t> Guarded::offsets() const {
  std::vector<std::size_t> all{static_cast<std::size_t>(kBand)};
  for (int d = 0; d < view_.dims; ++d) {
    auto const i = static_cast<std::size_t>(d);
    std::vector<std::size_t> next;
    for (std::size_t const base : all) {
      for (std::int64_t k = 0; k < view_.size[i]; ++k) {
        next.push_back(base + static_cast<std::size_t>(k * view_.stride[i]));
      }
    }
    all = std::move(next);
  }
  return all;
}

std::vector<std::uint32_t> Guarded::words(Backend& backend) const {
  TensorView const all(buffer_.data(), view_.dtype, {static_cast<std::int64_t>(before_.size())});
  if (view_.dtype == DType::bf16) {
    std::vector<std::uint16_t> halves(before_.size());
    backend.download(halves.data(), all);
    return {halves.begin(), halves.end()};
  }
  std::vector<std::uint32_t> now(before_.size());
  backend.download(now.data(), all);
  return now;
}

std::vector<double> Guarded::values(Backend& backend) const {
  std::vector<std::uint32_t> const now = words(backend);
  std::vector<double> values;
  for (std::size_t const at : offsets()) {
    values.push_back(decode(now[at], view_.dtype));
  }
  return values;
}

bool Guarded::intact(Backend& backend) const {
  std::vector<std::uint32_t> now = words(backend);
  if (role_ != Role::input) {
    for (std::size_t const at : offsets()) now[at] = before_[at];
  }
  return now == before_;
}

}  // namespace copus::ops
