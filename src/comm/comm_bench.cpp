#include "copus/comm/comm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "copus/backend/buffer.h"
#include "copus/comm/mpi.h"
#include "copus/core/error.h"
#include "copus/core/median.h"

namespace copus {
namespace {

// Element i of what rank r gives: a small positive integer, so that sums over many ranks are exact
// in f32, and different from what any of them adds.
float value(int rank, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 3) % 64 + 1);
}

float sum_of_values(int ranks, std::int64_t i) {
  float sum = 0.0f;
  for (int r = 0; r < ranks; ++r) sum += value(r, i);
  return sum;
}

class Measurement {
 public:
  Measurement(Communicator& ranks, Backend& backend, CommOperation operation, std::int64_t numel)
      : ranks_(ranks),
        backend_(backend),
        operation_(operation),
        piece_(numel / ranks.size()),
        whole_(piece_ * ranks.size()),
        arena_(backend, 2 * Arena::aligned(whole_ * size_of(DType::f32))),
        x_(arena_.take(DType::f32, {whole_})),
        y_(arena_.take(DType::f32, {whole_})) {}

  void fill() {
    std::vector<float> host(static_cast<std::size_t>(whole_));
    for (std::int64_t i = 0; i < whole_; ++i)
      host[static_cast<std::size_t>(i)] = value(ranks_.rank(), i);
    backend_.upload(x_, host.data());
    std::fill(host.begin(), host.end(), -1.0f);  // nothing that could arrive
    backend_.upload(y_, host.data());
    backend_.synchronize();
  }

  void call() {
    int const next = (ranks_.rank() + 1) % ranks_.size();
    int const before = (ranks_.rank() + ranks_.size() - 1) % ranks_.size();
    switch (operation_) {
      case CommOperation::all_reduce:
        return ranks_.all_reduce(x_, ReduceOp::sum);
      case CommOperation::reduce_scatter:
        return ranks_.reduce_scatter(y_.slice(0, 0, piece_), x_);
      case CommOperation::all_gather:
        return ranks_.all_gather(y_, x_.slice(0, 0, piece_));
      case CommOperation::broadcast:
        return ranks_.broadcast(x_, 0);
      case CommOperation::exchange: {
        Parcel const send{next, x_}, receive{before, y_};
        return ranks_.exchange({&send, 1}, {&receive, 1});
      }
      case CommOperation::library_all_reduce:
        return library_all_reduce(ranks_, x_);
    }
  }

  // After one call on what `fill` has written.
  void check() const {
    bool const into_x = operation_ == CommOperation::all_reduce ||
                        operation_ == CommOperation::broadcast ||
                        operation_ == CommOperation::library_all_reduce;
    std::int64_t const n = operation_ == CommOperation::reduce_scatter ? piece_ : whole_;
    std::vector<float> host(static_cast<std::size_t>(n));
    backend_.download(host.data(), (into_x ? x_ : y_).slice(0, 0, n));
    for (std::int64_t i = 0; i < n; ++i) {
      float const found = host[static_cast<std::size_t>(i)], right = expected(i);
      if (found == right) continue;
      throw CommError(
          fmt::format("{} of {} bytes over {} ({} ranks): element {} is {} on rank {}, "
                      "not {}",
                      name_of(operation_), x_.bytes(), ranks_.transport(), ranks_.size(), i, found,
                      ranks_.rank(), right));
    }
  }

  std::int64_t bytes() const { return x_.bytes(); }

 private:
  float expected(std::int64_t i) const {
    switch (operation_) {
      case CommOperation::all_reduce:
      case CommOperation::library_all_reduce:
        return sum_of_values(ranks_.size(), i);
      case CommOperation::reduce_scatter:
        return sum_of_values(ranks_.size(), piece_ * ranks_.rank() + i);
      case CommOperation::all_gather:
        return value(static_cast<int>(i / piece_), i % piece_);
      case CommOperation::broadcast:
        return value(0, i);
      case CommOperation::exchange:
        return value((ranks_.rank() + ranks_.size() - 1) % ranks_.size(), i);
    }
    return 0.0f;
  }

  Communicator& ranks_;
  Backend& backend_;
  CommOperation operation_;
  std::int64_t piece_, whole_;  // elements
  Arena arena_;
  TensorView x_, y_;
};

}  // namespace

const char* name_of(CommOperation operation) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                    "broadcast",  "exchange",       "MPI_Allreduce"};
  return kNames[static_cast<int>(operation)];
}

double CommRate::bus_bandwidth() const {
  double const others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case CommOperation::all_reduce:
    case CommOperation::library_all_reduce:
      return 2.0 * others * algorithm_bandwidth();
    case CommOperation::reduce_scatter:
    case CommOperation::all_gather:
      return others * algorithm_bandwidth();
    case CommOperation::broadcast:
    case CommOperation::exchange:
      break;
  }
  return algorithm_bandwidth();
}

CommRate measure_comm(Communicator& ranks, Backend& backend, CommOperation operation,
                      std::int64_t bytes, int rounds) {
  Measurement measurement(ranks, backend, operation, bytes / size_of(DType::f32));
  measurement.fill();
  measurement.call();
  measurement.check();
  // Small ones many times between two looks at the clock. What a reduction in place grows to does
  // not matter to its time.
  std::int64_t const calls = std::clamp<std::int64_t>((std::int64_t{4} << 20) / bytes, 1, 64);
  std::vector<double> seconds(static_cast<std::size_t>(rounds));
  for (double& round : seconds) {
    ranks.barrier();
    auto const start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) measurement.call();
    std::chrono::duration<double> const all = std::chrono::steady_clock::now() - start;
    round = all.count() / static_cast<double>(calls);
  }
  // A round has taken as long as on its slowest rank.
  ranks.all_reduce(std::span<double>(seconds), ReduceOp::max);
  return {operation, ranks.size(), measurement.bytes(), median(seconds)};
}

std::vector<CommRate> bench_comm(Communicator& ranks, Backend& backend, int rounds) {
  constexpr std::int64_t kSmallest = std::int64_t{4} << 10, kLargest = std::int64_t{64} << 20;
  std::vector<CommOperation> operations{CommOperation::all_reduce, CommOperation::reduce_scatter,
                                        CommOperation::all_gather, CommOperation::broadcast,
                                        CommOperation::exchange};
  if (ranks.transport() == "mpi") operations.push_back(CommOperation::library_all_reduce);
  std::vector<CommRate> rates;
  for (CommOperation operation : operations) {
    for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4)
      rates.push_back(measure_comm(ranks, backend, operation, bytes, rounds));
  }
  return rates;
}

}  // namespace copus
