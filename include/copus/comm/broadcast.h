// Small things of one rank for every rank.
#pragma once
#include <string>
#include <type_traits>

#include "copus/comm/communicator.h"

namespace copus {

// `value` of rank `root`, bit for bit. Every rank calls it.
template <class T>
void broadcast_value(Communicator& ranks, T& value, int root) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
  ranks.broadcast({&value, DType::i32, {static_cast<std::int64_t>(sizeof(T) / 4)}}, root);
}

// The same for a text, of any length.
std::string broadcast_text(Communicator& ranks, const std::string& text, int root);

}  // namespace copus
