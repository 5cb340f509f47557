// Small things of one rank for every rank.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "copus/comm/communicator.h"

namespace copus {

// `value` of rank `root`, bit for bit. Every rank calls it.
template <class T>
void broadcast_value(Communicator& ranks, T& value, int root) {
  static_assert(std::is_trivially_copyable_v<T>);
  // Whoever is not the root adds zeros: values on the host, whatever device the ranks' tensors are
  // on.
  std::array<std::uint64_t, (sizeof(T) + 7) / 8> words{};
  if (ranks.rank() == root) std::memcpy(words.data(), &value, sizeof(T));
  ranks.all_reduce(std::span<std::uint64_t>(words), ReduceOp::sum);
  std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
}

// The same for a text, of any length.
std::string broadcast_text(Communicator& ranks, const std::string& text, int root);

}  // namespace copus
