// A communicator that passes every call on, to be changed in one of them; groups split from it are
// of the same kind.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "copus/comm/communicator.h"

namespace copus::test {

// What the wrapper does of its own.
struct Wrapping {
  bool can_start = true;                              // where the transport can
  std::function<void(std::int64_t number)> on_start;  // before this rank's n-th start, from 0
};

class WrappedCommunicator final : public Communicator {
 public:
  WrappedCommunicator(Communicator& inner, const Wrapping& wrapping)
      : inner_(inner), wrapping_(wrapping) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string transport() const override { return inner_.transport(); }
  void all_reduce(TensorView x, ReduceOp op) override { inner_.all_reduce(x, op); }
  void all_reduce(std::span<double> values, ReduceOp op) override { inner_.all_reduce(values, op); }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    inner_.all_reduce(values, op);
  }
  void reduce_scatter(TensorView out, const TensorView& x) override {
    inner_.reduce_scatter(out, x);
  }
  void all_gather(TensorView out, const TensorView& x) override { inner_.all_gather(out, x); }
  void broadcast(TensorView x, int root) override { inner_.broadcast(x, root); }
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override {
    inner_.exchange(sends, receives);
  }
  bool can_start() const override { return wrapping_.can_start && inner_.can_start(); }
  std::unique_ptr<Transfer> start(std::span<const Parcel> sends,
                                  std::span<const Parcel> receives) override {
    if (wrapping_.on_start) wrapping_.on_start(started_);
    ++started_;
    return inner_.start(sends, receives);
  }
  void barrier() override { inner_.barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto group = inner_.split(color, key);
    if (group == nullptr) return nullptr;
    auto wrapped = std::make_unique<WrappedCommunicator>(*group, wrapping_);
    wrapped->owned_ = std::move(group);
    return wrapped;
  }
  void check_alive() const override { inner_.check_alive(); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  std::unique_ptr<Communicator> owned_;  // what inner_ is, of a group
  Communicator& inner_;
  Wrapping wrapping_;
  std::int64_t started_ = 0;
};

}  // namespace copus::test
