#include "ops/guarded.h"

#include <bit>

namespace copus::ops {
namespace {

constexpr std::int64_t kBand = 64;  // elements
constexpr std::uint32_t kCanary =
    0x7fc0babeu;  // a NaN: also what is read from outside is found out

std::uint32_t encode(double value, DType dtype) {
  if (dtype == DType::i32) return std::bit_cast<std::uint32_t>(static_cast<std::int32_t>(value));
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
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
  before_.assign(static_cast<std::size_t>(extent + 2 * kBand), kCanary);
  std::size_t element = 0;
  for (std::size_t const at : offsets()) {
    if (role_ != Role::output) before_[at] = encode(operand.values[element++], operand.dtype);
  }
  auto const bytes = static_cast<std::int64_t>(before_.size()) * 4;
  buffer_ = Buffer(backend, bytes);
  backend.upload(TensorView(buffer_.data(), DType::i32, {bytes / 4}), before_.data());
  view_.data = buffer_.data() + kBand * 4;
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
  std::vector<std::uint32_t> now(before_.size());
  backend.download(now.data(),
                   TensorView(buffer_.data(), DType::i32, {static_cast<std::int64_t>(now.size())}));
  return now;
}

std::vector<double> Guarded::values(Backend& backend) const {
  std::vector<std::uint32_t> const now = words(backend);
  std::vector<double> values;
  for (std::size_t const at : offsets()) {
    values.push_back(view_.dtype == DType::i32
                         ? std::bit_cast<std::int32_t>(now[at])
                         : static_cast<double>(std::bit_cast<float>(now[at])));
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
