// Jobs on a queue's own thread: their order, who waits for what, and failures.
#include <catch2/catch.hpp>
#include <latch>
#include <stdexcept>
#include <vector>

#include "copus/comm/collective_queue.h"

using namespace copus;

TEST_CASE("waiting for one job does not wait for those behind it") {
  std::latch gate(1);
  std::vector<int> done;
  CollectiveQueue queue;
  std::uint64_t const first = queue.submit([&] { done.push_back(1); });
  std::uint64_t const second = queue.submit([&] {
    gate.wait();
    done.push_back(2);
  });
  CHECK(second == first + 1);
  queue.wait_for(first);  // would never return if it waited for the second
  gate.count_down();
  queue.wait_for(second);
  CHECK(done == std::vector<int>{1, 2});
  queue.wait_for(first);  // long done
}

TEST_CASE("a job that fails is told to whoever waits, once, and those behind it do not run") {
  bool ran = false;
  std::latch gate(1);
  CollectiveQueue queue;
  queue.submit([&] {
    gate.wait();
    throw std::runtime_error("the peer is gone");
  });
  std::uint64_t const behind = queue.submit([&] { ran = true; });
  gate.count_down();
  CHECK_THROWS_WITH(queue.wait_for(behind), "the peer is gone");
  CHECK_NOTHROW(queue.wait_for(behind));
  CHECK_FALSE(ran);
  queue.wait_for(queue.submit([&] { ran = true; }));
  CHECK(ran);
}
