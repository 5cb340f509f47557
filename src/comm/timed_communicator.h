// A communicator that runs another one's calls and adds up the time spent in them: who waits, and
// how long.
#pragma once
#include <chrono>
#include <utility>

#include "copus/comm/communicator.h"

namespace copus {

class TimedCommunicator final : public Communicator {
 public:
  // `seconds` is shared by all groups of a rank and outlives this.
  TimedCommunicator(std::unique_ptr<Communicator> inner, double& seconds)
      : inner_(std::move(inner)), seconds_(seconds) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }
  void all_reduce(TensorView x, ReduceOp op) override {
    Clock const clock(seconds_);
    inner_->all_reduce(x, op);
  }
  void all_reduce(std::span<double> values, ReduceOp op) override {
    Clock const clock(seconds_);
    inner_->all_reduce(values, op);
  }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    Clock const clock(seconds_);
    inner_->all_reduce(values, op);
  }
  void reduce_scatter(TensorView out, const TensorView& x) override {
    Clock const clock(seconds_);
    inner_->reduce_scatter(out, x);
  }
  void all_gather(TensorView out, const TensorView& x) override {
    Clock const clock(seconds_);
    inner_->all_gather(out, x);
  }
  void broadcast(TensorView x, int root) override {
    Clock const clock(seconds_);
    inner_->broadcast(x, root);
  }
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override {
    Clock const clock(seconds_);
    inner_->exchange(sends, receives);
  }
  void barrier() override {
    Clock const clock(seconds_);
    inner_->barrier();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_->split(color, key);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  struct Clock {
    explicit Clock(double& seconds) : seconds_(seconds) {}
    ~Clock() {
      seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    double& seconds_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };
  std::unique_ptr<Communicator> inner_;
  double& seconds_;
};

}  // namespace copus
