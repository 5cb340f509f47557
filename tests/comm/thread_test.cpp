// Ranks as threads: the suite, and what happens when one of them fails.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <stdexcept>
#include <thread>

#include "comm/conformance.h"
#include "comm/thread_group.h"
#include "copus/core/error.h"

using namespace copus;

TEST_CASE("threads keep the laws of a communicator at every size") {
  for (int size : {1, 2, 3, 5}) {
    CAPTURE(size);
    CHECK_NOTHROW(run_ranks(size, [](int, Communicator& world) {
      auto const memory = make_cpu_backend(1);
      test::check_communicator(world, *memory);
    }));
  }
}

TEST_CASE("a group of one does nothing and needs no peers") {
  auto const alone = make_single_communicator();
  auto const memory = make_cpu_backend(1);
  CHECK_NOTHROW(test::check_communicator(*alone, *memory));
}

TEST_CASE(
    "C5: a rank that fails frees its peers from whatever they wait in, and the cause is what the "
    "caller sees") {
  for (int where = 0; where < 7; ++where) {
    CAPTURE(where);
    std::atomic<int> freed{0};
    auto const body = [&](int rank, Communicator& world) {
      auto const group = world.split(rank % 2, rank);
      if (rank == 3) throw IoError("the disk is gone");
      std::vector<float> x(1000, 1.0f), y(4000);
      TensorView const view(x.data(), DType::f32, {1000});
      try {
        if (where == 0) world.barrier();
        if (where == 1) world.all_reduce(view, ReduceOp::sum);
        if (where == 2) world.all_gather(TensorView(y.data(), DType::f32, {4000}), view);
        if (where == 3) {
          Parcel const receive{3, view};
          world.exchange({}, {&receive, 1});
        }
        if (where == 4) {
          Parcel const send{3, view};
          world.exchange({&send, 1}, {});
        }
        Parcel const parcel{3, view, 1};
        if (where == 5) world.start({}, {&parcel, 1})->wait();
        if (where == 6) world.start({&parcel, 1}, {})->wait();
      } catch (const CommError& e) {
        // Catch's assertions are for one thread at a time.
        if (std::string(e.what()).find("rank 3 failed: the disk is gone") != std::string::npos)
          ++freed;
        throw;
      }
    };
    CHECK_THROWS_WITH(run_ranks(4, body), "the disk is gone");
    CHECK(freed == 3);
  }
}

TEST_CASE("a rank that an abort frees from a collective does not count in the next meeting") {
  // The later the abort, the surer the rank waits by then.
  for (int round = 0; round < 200; ++round) {
    auto const news = std::make_shared<AbortNews>();
    auto const group = std::make_shared<ThreadGroup>(2, news);
    news->enroll(group);
    std::thread waiting(
        [&] { CHECK_THROWS_AS(group->enter(0, {.operation = "barrier"}), CommError); });
    for (int i = 0; i < 5 * round; ++i) std::this_thread::yield();
    news->abort("the disk is gone");
    waiting.join();
    // Two that leave are met by each other. Were one counted already, the first would go alone and
    // the second wait for ever.
    std::thread other([&] { group->leave(); });
    group->leave();
    other.join();
  }
}

TEST_CASE(
    "a rank that fails takes back the messages it has under way, and its peers go on to throw") {
  std::atomic<int> freed{0};
  auto const body = [&](int rank, Communicator& world) {
    std::vector<float> x(1000, static_cast<float>(rank)), y(1000, -1.0f);
    Parcel const send{1 - rank, {x.data(), DType::f32, {1000}}, 2};
    Parcel const receive{1 - rank, {y.data(), DType::f32, {1000}}, 2};
    auto const first = world.start({&send, 1}, {&receive, 1});
    first->wait();
    if (y[999] != static_cast<float>(1 - rank)) throw std::runtime_error("a message got lost");
    if (rank == 1) {
      auto const lost = world.start({}, {&receive, 1});
      auto const never_met = world.start({&send, 1}, {});
      world.barrier();
      // Both buffers end here, before anybody hears of it.
      throw IoError("the disk is gone");
    }
    world.barrier();
    try {
      // One of the two would be met if its other side were still on show.
      while (true) world.check_alive();
    } catch (const CommError&) {
      auto const late = world.start({&send, 1}, {&receive, 1});
      try {
        late->wait();
      } catch (const CommError&) {
        ++freed;
      }
      throw;
    }
  };
  CHECK_THROWS_WITH(run_ranks(2, body), "the disk is gone");
  CHECK(freed == 1);
}

TEST_CASE("a message of another size than the receiver expects is told to the receiver") {
  auto const body = [](int rank, Communicator& world) {
    std::vector<float> x(8);
    Parcel const parcel{1 - rank, {x.data(), DType::f32, {rank == 0 ? 8 : 4}}};
    if (rank == 0) world.exchange({&parcel, 1}, {});
    if (rank == 1) world.exchange({}, {&parcel, 1});
  };
  CHECK_THROWS_WITH(run_ranks(2, body), Catch::Contains("expects 16 bytes from 0, which sent 32"));
}

TEST_CASE("a rank that waits outside of the calls is told of an abort") {
  auto const body = [](int rank, Communicator& world) {
    world.check_alive();
    auto const group = world.split(0, rank);
    world.barrier();
    if (rank == 1) throw IoError("the disk is gone");
    // As one that polls a device would.
    while (true) {
      group->check_alive();
      std::this_thread::yield();
    }
  };
  CHECK_THROWS_WITH(run_ranks(2, body), "the disk is gone");
}

TEST_CASE("ranks that enter different collectives, or sizes, are told so") {
  auto const mixed = [](int rank, Communicator& world) {
    std::vector<float> x(8);
    if (rank == 0) {
      world.all_reduce(TensorView(x.data(), DType::f32, {8}), ReduceOp::sum);
    } else {
      world.barrier();
    }
  };
  CHECK_THROWS_AS(run_ranks(2, mixed), CommError);
  auto const sizes = [](int rank, Communicator& world) {
    std::vector<float> x(8);
    world.all_reduce(TensorView(x.data(), DType::f32, {rank == 0 ? 8 : 4}), ReduceOp::sum);
  };
  CHECK_THROWS_AS(run_ranks(2, sizes), CommError);
}

TEST_CASE("C1, C4: many splits and their ends leave nothing behind") {
  CHECK_NOTHROW(run_ranks(3, [](int rank, Communicator& world) {
    for (int i = 0; i < 200; ++i) {
      auto const group = world.split(i % 2, rank);
      group->barrier();
    }
  }));
}
