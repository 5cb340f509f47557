// Tensors that the host cannot touch, between ranks as threads.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "comm/conformance.h"
#include "copus/backend/buffer.h"
#include "copus/comm/staged.h"
#include "copus/core/error.h"
#include "support/far_backend.h"

using namespace copus;
using copus::test::FarBackend;

namespace {

// The signal that ends a process which reads there, or 0.
int signal_of_reading(const void* address) {
  pid_t const child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // not the test framework's
    volatile char const got = *static_cast<const volatile char*>(address);
    _exit(static_cast<int>(got) & 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("far memory faults when the host touches it, and its operations do not") {
  FarBackend far;
  Buffer const buffer(far, 4096);
  TensorView const x(buffer.data(), DType::f32, {8});
  far.zero(x);
  CHECK(far.sum(x) == 0.0);
  CHECK(signal_of_reading(far.near(x).data) == 0);
  CHECK(signal_of_reading(x.data) == SIGSEGV);
}

TEST_CASE("far tensors keep the laws of a communicator over threads, at every size of the stage") {
  // Of 4,000 and 30,000 bytes: a piece less, whole pieces, and one element more of either.
  test::Lengths const around{{0, 1, 3, 999, 1000, 1001, 7500, 7501, 20001}, 50'000};
  for (int size : {1, 2, 3, 5}) {
    for (std::int64_t const staging : {kStagingBytes, std::int64_t{30000}, std::int64_t{4000}}) {
      CAPTURE(size, staging);
      CHECK_NOTHROW(run_ranks(size, [&](int, Communicator& world) {
        FarBackend far;
        auto const staged = stage_through_host(world, far, staging);
        test::check_communicator(*staged, far, staging < kStagingBytes ? around : test::Lengths{});
      }));
    }
  }
}

TEST_CASE("an element at a time is staged where there is room for no more") {
  CHECK_NOTHROW(run_ranks(3, [](int rank, Communicator& world) {
    FarBackend far;
    Buffer const buffer(far, 4096);
    TensorView const x(buffer.data(), DType::f32, {5});
    std::vector<float> values(5, static_cast<float>(rank));
    far.upload(x, values.data());
    auto const staged = stage_through_host(world, far, 1);
    staged->all_reduce(x, ReduceOp::sum);
    far.download(values.data(), x);
    if (values != std::vector<float>(5, 3.0f)) throw std::runtime_error("a wrong sum");
  }));
}

TEST_CASE("memory that the host reaches is not staged") {
  auto const world = make_single_communicator();
  auto const cpu = make_cpu_backend(1);
  CHECK(stage_through_host(*world, *cpu)->transport() == "thread");
  FarBackend far;
  CHECK(stage_through_host(*world, far)->transport() == "thread, staged");
}

TEST_CASE("a rank that fails frees peers that wait with staged tensors") {
  auto const body = [](int rank, Communicator& world) {
    FarBackend far;
    auto const staged = stage_through_host(world, far);
    if (rank == 1) throw IoError("the disk is gone");
    Buffer const buffer(far, 4096);
    staged->all_reduce({buffer.data(), DType::f32, {8}}, ReduceOp::sum);
  };
  CHECK_THROWS_WITH(run_ranks(3, body), "the disk is gone");
}
