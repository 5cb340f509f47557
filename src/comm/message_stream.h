// The messages between this rank and one peer in one direction as one stretch of bytes, which both
// ends cut into the same pieces.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

class MessageStream {
 public:
  void add(const TensorView& message) {
    messages_.push_back(message);
    left_ += message.bytes();
  }
  std::int64_t left() const { return left_; }  // bytes
  // Calls run(address, bytes, bytes before them) for what makes up the next `bytes`.
  template <class Run>
  void advance(std::int64_t bytes, const Run& run) {
    for (std::int64_t through = 0; through < bytes;) {
      const TensorView& message = messages_[at_];
      std::int64_t const count = std::min(bytes - through, message.bytes() - offset_);
      if (count > 0) run(message.ptr<std::byte>() + offset_, count, through);
      through += count;
      offset_ += count;
      if (offset_ == message.bytes()) ++at_, offset_ = 0;
    }
    left_ -= bytes;
  }

 private:
  std::vector<TensorView> messages_;
  std::size_t at_ = 0;
  std::int64_t offset_ = 0, left_ = 0;
};

using MessageStreams = std::map<int, MessageStream>;  // by peer

inline MessageStreams streams_of(std::span<const Parcel> parcels) {
  MessageStreams streams;
  for (const Parcel& parcel : parcels) streams[parcel.peer].add(parcel.data);
  return streams;
}

}  // namespace copus
