// The benchmark of a transport: what it counts, and that it believes no transport blindly.
#include "copus/comm/comm_bench.h"

#include <catch2/catch.hpp>
#include <mutex>

#include "copus/core/error.h"

using namespace copus;

namespace {

const std::vector<CommOperation> kOperations{
    CommOperation::all_reduce, CommOperation::reduce_scatter, CommOperation::all_gather,
    CommOperation::broadcast, CommOperation::exchange};

// Rank 1 of 2 in a group whose transport moves nothing.
class Idle final : public Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  std::string transport() const override { return "idle"; }
  void all_reduce(TensorView, ReduceOp) override {}
  void all_reduce(std::span<double>, ReduceOp) override {}
  void all_reduce(std::span<std::uint64_t>, ReduceOp) override {}
  void reduce_scatter(TensorView, const TensorView&) override {}
  void all_gather(TensorView, const TensorView&) override {}
  void broadcast(TensorView, int) override {}
  void exchange(std::span<const Parcel>, std::span<const Parcel>) override {}
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int) override { return nullptr; }
  void check_alive() const override {}
  void abort(const std::string&) noexcept override {}
};

double factor(CommOperation operation, int ranks) {
  CommRate const rate{operation, ranks, 1000, 1e-6};
  return rate.bus_bandwidth() / rate.algorithm_bandwidth();
}

}  // namespace

TEST_CASE("the bus bandwidth is what a rank must send at least: nccl-tests' factors") {
  for (int n : {2, 3, 8}) {
    double const others = (n - 1.0) / n;
    CHECK(factor(CommOperation::all_reduce, n) == Approx(2.0 * others));
    CHECK(factor(CommOperation::library_all_reduce, n) == Approx(2.0 * others));
    CHECK(factor(CommOperation::reduce_scatter, n) == Approx(others));
    CHECK(factor(CommOperation::all_gather, n) == Approx(others));
    CHECK(factor(CommOperation::broadcast, n) == 1.0);
    CHECK(factor(CommOperation::exchange, n) == 1.0);
  }
  CHECK(CommRate{CommOperation::exchange, 2, 1000, 1e-6}.algorithm_bandwidth() == Approx(1e9));
}

TEST_CASE("a transport that moves nothing is refused for every operation, by name and element") {
  auto const backend = make_cpu_backend(1);
  Idle idle;
  for (CommOperation operation : kOperations) {
    std::string const name = name_of(operation);
    CAPTURE(name);
    try {
      measure_comm(idle, *backend, operation, 4096, 1);
      FAIL("no complaint");
    } catch (const CommError& e) {
      std::string const text = e.what();
      CHECK(text.find(name + " of 4096 bytes over idle (2 ranks)") == 0);
      CHECK(text.find("element 0 is ") != std::string::npos);
      CHECK(text.find("on rank 1") != std::string::npos);
    }
  }
}

TEST_CASE("three ranks as threads pass every check, at a size cut down to what they can share") {
  std::mutex mutex;
  std::vector<std::int64_t> sizes;
  run_ranks(3, [&](int, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    for (CommOperation operation : kOperations) {
      CommRate const rate = measure_comm(world, *backend, operation, 4096, 2);
      std::lock_guard const lock(mutex);
      sizes.push_back(rate.bytes);
    }
  });
  // 1,024 elements are 3 times 341 and one over.
  CHECK(sizes == std::vector<std::int64_t>(3 * kOperations.size(), 4 * 3 * 341));
}
