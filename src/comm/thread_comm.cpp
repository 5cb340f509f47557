// Ranks as threads of one process: peers read each other's memory directly. Also the group of one,
// and run_ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "comm/reduce.h"
#include "comm/thread_group.h"
#include "copus/comm/communicator.h"
#include "copus/core/error.h"

namespace copus {
namespace {

// An empty tensor may have no address.
void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

class ThreadTransfer final : public Transfer {
 public:
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, int rank, std::span<const Parcel> sends,
                 std::span<const Parcel> receives)
      : group_(std::move(group)) {
    for (const Parcel& p : sends) add({true, rank, p.peer, p.lane, p.data});
    for (const Parcel& p : receives) add({false, p.peer, rank, p.lane, p.data});
    for (; posted_ < sides_.size(); ++posted_) group_->post(sides_[posted_]);
  }
  ~ThreadTransfer() override {
    for (std::size_t i = 0; i < posted_; ++i) group_->take_back(sides_[i]);
  }
  ThreadTransfer(const ThreadTransfer&) = delete;
  ThreadTransfer& operator=(const ThreadTransfer&) = delete;

  void wait() override {
    for (Envelope& side : sides_) {
      group_->wait_over(side);
      COPUS_CHECK(side.outgoing || side.data.bytes() == side.other_bytes,
                  fmt::format("rank {} expects {} bytes from {}, which sent {}", side.to,
                              side.data.bytes(), side.from, side.other_bytes));
    }
  }

 private:
  void add(Envelope side) {
    COPUS_CHECK(side.data.contiguous(), "messages are contiguous");
    sides_.push_back(std::move(side));
  }
  std::shared_ptr<ThreadGroup> group_;
  std::vector<Envelope> sides_;
  std::size_t posted_ = 0;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string transport() const override { return "thread"; }

  void all_reduce(TensorView x, ReduceOp op) override { reduce_everywhere(x, op, "all_reduce"); }
  void all_reduce(std::span<double> values, ReduceOp op) override {
    gather_and_fold(values.data(), values.size(), op, "all_reduce of scalars");
  }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    gather_and_fold(values.data(), values.size(), op, "all_reduce of integers");
  }
  void reduce_scatter(TensorView out, const TensorView& x) override;
  void all_gather(TensorView out, const TensorView& x) override;
  void broadcast(TensorView x, int root) override;
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override {
    ThreadTransfer(group_, rank_, sends, receives).wait();
  }
  bool can_start() const override { return true; }
  std::unique_ptr<Transfer> start(std::span<const Parcel> sends,
                                  std::span<const Parcel> receives) override {
    return std::make_unique<ThreadTransfer>(group_, rank_, sends, receives);
  }
  void barrier() override {
    if (size() == 1) return;
    group_->enter(rank_, {.operation = "barrier"});
    group_->leave();
  }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void check_alive() const override { group_->check_alive(); }
  void abort(const std::string& reason) noexcept override { group_->news()->abort(reason); }

 private:
  void reduce_everywhere(TensorView x, ReduceOp op, const char* name);
  template <class T>
  void gather_and_fold(T* values, std::size_t count, ReduceOp op, const char* name);
  std::vector<void*> addresses() const {
    std::vector<void*> all;
    for (int r = 0; r < size(); ++r) all.push_back(group_->of(r).data);
    return all;
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

void ThreadCommunicator::reduce_everywhere(TensorView x, ReduceOp op, const char* name) {
  COPUS_CHECK(x.contiguous(), "collectives take contiguous tensors");
  if (size() == 1) return;
  group_->enter(rank_, {.operation = name, .data = x.data, .bytes = x.bytes()});
  // Each rank folds one stretch, in rank order, and writes it back to everybody: nobody else
  // touches that stretch.
  std::int64_t const n = x.numel(), begin = n * rank_ / size(), end = n * (rank_ + 1) / size();
  fold_into_all(addresses(), x.dtype, op, begin, end);
  group_->leave();
}

template <class T>
void ThreadCommunicator::gather_and_fold(T* values, std::size_t count, ReduceOp op,
                                         const char* name) {
  if (size() == 1) return;
  group_->enter(
      rank_,
      {.operation = name, .data = values, .bytes = static_cast<std::int64_t>(count * sizeof(T))});
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<const T*>(group_->of(0).data)[i];
    for (int r = 1; r < size(); ++r)
      result[i] = fold(result[i], static_cast<const T*>(group_->of(r).data)[i], op);
  }
  group_->leave();
  std::copy(result.begin(), result.end(), values);
}

void ThreadCommunicator::reduce_scatter(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && x.numel() == out.numel() * size() &&
                  out.dtype == x.dtype,
              "reduce_scatter takes size() equal pieces");
  if (size() == 1) {
    if (out.data != x.data) copy_bytes(out.data, x.data, x.bytes());
    return;
  }
  group_->enter(rank_, {.operation = "reduce_scatter", .data = x.data, .bytes = x.bytes()});
  fold_to(out.data, addresses(), x.dtype, out.numel() * rank_, out.numel());
  group_->leave();
}

void ThreadCommunicator::all_gather(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && out.numel() == x.numel() * size() &&
                  out.dtype == x.dtype,
              "all_gather makes size() equal pieces");
  group_->enter(rank_, {.operation = "all_gather", .data = x.data, .bytes = x.bytes()});
  for (int i = 0; i < size(); ++i) {
    int const r =
        (rank_ + i) % size();  // everybody starts with its own: no two read one peer at once
    auto* const to = static_cast<std::byte*>(out.data) + x.bytes() * r;
    if (to != group_->of(r).data) copy_bytes(to, group_->of(r).data, x.bytes());
  }
  group_->leave();
}

void ThreadCommunicator::broadcast(TensorView x, int root) {
  COPUS_CHECK(x.contiguous() && root >= 0 && root < size(),
              "broadcast takes a contiguous tensor and a rank of the group");
  if (size() == 1) return;
  group_->enter(rank_, {.operation = "broadcast", .data = x.data, .bytes = x.bytes()});
  if (rank_ != root) copy_bytes(x.data, group_->of(root).data, x.bytes());
  group_->leave();
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  group_->enter(rank_, {.operation = "split", .argument = color, .key = key});
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (group_->of(r).argument == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return group_->of(a).key < group_->of(b).key; });
  auto const leader = color < 0 ? members.end() : members.begin();
  if (leader != members.end() && *leader == rank_) {
    auto made = std::make_shared<ThreadGroup>(static_cast<int>(members.size()), group_->news());
    group_->news()->enroll(made);
    group_->born[static_cast<std::size_t>(rank_)] = std::move(made);
  }
  group_->leave();
  group_->enter(rank_, {.operation = "split, second half"});
  std::unique_ptr<Communicator> mine;
  if (color >= 0) {
    auto const place = std::find(members.begin(), members.end(), rank_) - members.begin();
    mine = std::make_unique<ThreadCommunicator>(
        group_->born[static_cast<std::size_t>(members.front())], static_cast<int>(place));
  }
  group_->leave();
  group_->born[static_cast<std::size_t>(rank_)].reset();
  return mine;
}

std::shared_ptr<ThreadGroup> make_world(int size) {
  auto news = std::make_shared<AbortNews>();
  auto group = std::make_shared<ThreadGroup>(size, news);
  news->enroll(group);
  return group;
}

}  // namespace

std::unique_ptr<Transfer> Communicator::start(std::span<const Parcel>, std::span<const Parcel>) {
  detail::check_failed("can_start()", "only some transports start messages", __FILE__, __LINE__);
}

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<ThreadCommunicator>(make_world(1), 0);
}

namespace {

// What a rank's end says of the cause: an empty ConfigError leaves the telling to another rank, a
// CommError follows from another's failure.
bool is_cause(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const ConfigError& e) {
    return !e.problems().empty();
  } catch (const CommError&) {
    return false;
  } catch (...) {
    return true;
  }
}

void rethrow_cause(const std::vector<std::exception_ptr>& failures) {
  for (const std::exception_ptr& failure : failures) {
    if (failure && is_cause(failure)) std::rethrow_exception(failure);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

void run_ranks(int size, const std::function<void(int, Communicator&)>& body) {
  std::shared_ptr<ThreadGroup> const world = make_world(size);
  std::vector<std::exception_ptr> failures(
      static_cast<std::size_t>(size));  // each rank writes its own
  auto const rank_body = [&](int rank) {
    ThreadCommunicator communicator(world, rank);
    try {
      body(rank, communicator);
    } catch (const std::exception& e) {
      failures[static_cast<std::size_t>(rank)] = std::current_exception();
      communicator.abort(fmt::format("rank {} failed: {}", rank, e.what()));
    } catch (...) {
      failures[static_cast<std::size_t>(rank)] = std::current_exception();
      communicator.abort(fmt::format("rank {} failed", rank));
    }
  };
  std::vector<std::thread> threads;
  std::string missing;  // why not all could be started
  try {
    for (int rank = 1; rank < size; ++rank) threads.emplace_back(rank_body, rank);
  } catch (const std::system_error& e) {
    missing = e.what();
    world->news()->abort(missing);  // the started ones wait for ranks that never come
  }
  if (missing.empty()) rank_body(0);
  for (std::thread& thread : threads) thread.join();
  if (!missing.empty()) {
    throw ConfigError(
        fmt::format("--ranks {}: only {} could be started as threads of this process ({}); "
                    "accepted: fewer, or mpirun -n {} over more hosts",
                    size, threads.size() + 1, missing, size));
  }
  rethrow_cause(failures);
}

}  // namespace copus
