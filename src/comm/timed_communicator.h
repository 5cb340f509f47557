// A communicator that runs another one's calls, adds up what passes through (who waits, how long,
// for how many bytes), and keeps on record what it is in the middle of.
#pragma once
#include <chrono>
#include <memory>
#include <utility>

#include "copus/backend/ranges.h"
#include "copus/comm/activity.h"
#include "copus/comm/communicator.h"
#include "copus/comm/group_traffic.h"

namespace copus {

class TimedCommunicator final : public Communicator {
 public:
  // `group`: its role, a literal. `traffic` and `record` outlive this; one thread at a time calls.
  TimedCommunicator(std::unique_ptr<Communicator> inner, const char* group, TrafficCounter& traffic,
                    CallRecord& record)
      : inner_(std::move(inner)), group_(group), traffic_(traffic), record_(record) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }
  void all_reduce(TensorView x, ReduceOp op) override {
    Clock const clock(*this, "all_reduce", 2 * shared(x.bytes()));
    inner_->all_reduce(x, op);
  }
  void all_reduce(std::span<double> values, ReduceOp op) override {
    Clock const clock(*this, "all_reduce of scalars",
                      2 * shared(static_cast<std::int64_t>(values.size_bytes())));
    inner_->all_reduce(values, op);
  }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    Clock const clock(*this, "all_reduce of integers",
                      2 * shared(static_cast<std::int64_t>(values.size_bytes())));
    inner_->all_reduce(values, op);
  }
  void reduce_scatter(TensorView out, const TensorView& x) override {
    Clock const clock(*this, "reduce_scatter", shared(x.bytes()));
    inner_->reduce_scatter(out, x);
  }
  void all_gather(TensorView out, const TensorView& x) override {
    Clock const clock(*this, "all_gather", shared(out.bytes()));
    inner_->all_gather(out, x);
  }
  void broadcast(TensorView x, int root) override {
    Clock const clock(*this, "broadcast", size() > 1 ? x.bytes() : 0);
    inner_->broadcast(x, root);
  }
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override {
    std::int64_t bytes = 0;
    for (const Parcel& parcel : sends) bytes += parcel.data.bytes();
    Clock const clock(*this, "exchange", bytes);
    inner_->exchange(sends, receives);
  }
  bool can_start() const override { return inner_->can_start(); }
  std::unique_ptr<Transfer> start(std::span<const Parcel> sends,
                                  std::span<const Parcel> receives) override {
    for (const Parcel& parcel : sends) traffic_.add_bytes(parcel.data.bytes());
    return std::make_unique<TimedTransfer>(*this, inner_->start(sends, receives));
  }
  void barrier() override {
    Clock const clock(*this, "barrier", 0);
    inner_->barrier();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_->split(color, key);
  }
  void check_alive() const override { inner_->check_alive(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  struct Clock {
    Clock(TimedCommunicator& of, const char* operation, std::int64_t bytes)
        : of_(of), range_(of.group_, operation) {
      of_.traffic_.add_bytes(bytes);
      of_.record_.begin(of_.group_, operation);
    }
    ~Clock() {
      of_.record_.end();
      of_.traffic_.add_seconds(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
    }
    TimedCommunicator& of_;
    Range range_;  // "dp all_reduce"
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };
  // Its time is what is waited for it.
  struct TimedTransfer final : Transfer {
    TimedTransfer(TimedCommunicator& of, std::unique_ptr<Transfer> inner)
        : of_(of), inner_(std::move(inner)) {}
    void wait() override {
      Clock const clock(of_, "exchange", 0);
      inner_->wait();
    }
    TimedCommunicator& of_;
    std::unique_ptr<Transfer> inner_;
  };
  // Of `bytes` that all ranks share, what one rank has to send at least.
  std::int64_t shared(std::int64_t bytes) const { return bytes * (size() - 1) / size(); }

  std::unique_ptr<Communicator> inner_;
  const char* group_;
  TrafficCounter& traffic_;
  CallRecord& record_;
};

}  // namespace copus
