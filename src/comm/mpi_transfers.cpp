#include "comm/mpi_transfers.h"

#include <chrono>
#include <exception>
#include <utility>

#include "comm/mpi_calls.h"

namespace copus {
namespace {

// Between two looks under compute: what 10 Gbit/s bring meanwhile still fits into a socket's
// buffers, and a look is a few microseconds of the processor that computes.
constexpr std::chrono::microseconds kLookEvery{100};
constexpr std::chrono::milliseconds kLastWait{500};  // of a failed rank, for a message under way

}  // namespace

class MpiTransfers::Followed final : public Transfer {
 public:
  Followed(MpiTransfers& all, std::vector<MPI_Request> requests, std::size_t receives)
      : all_(all), requests_(std::move(requests)), receives_(receives) {}
  ~Followed() override {
    std::lock_guard const lock(all_.mutex_);
    std::erase(all_.under_way_, this);
    if (over_) return;
    // The rank has failed, and the job ends; but first it says why, so MPI must not write to memory
    // that is about to go. A peer that lives ends these soon, one that waits too never.
    for (std::size_t i = 0; i < receives_; ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    }
    auto const until = std::chrono::steady_clock::now() + kLastWait;
    while (!look() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(kLookEvery);
    for (MPI_Request& request : requests_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
  Followed(const Followed&) = delete;
  Followed& operator=(const Followed&) = delete;

  void wait() override {
    constexpr int kBusyLooks = 200;
    for (int looks = 0; !ask(); ++looks) {
      if (looks < kBusyLooks) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  // Whether it is over; under the lock.
  bool look() {
    if (over_) return true;
    int done = 0;
    try {
      MPI_CHECK(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                            MPI_STATUSES_IGNORE));
    } catch (const CommError&) {
      failure_ = std::current_exception();
      done = 1;
    }
    return over_ = done != 0;
  }

 private:
  bool ask() {
    std::lock_guard const lock(all_.mutex_);
    if (look()) std::erase(all_.under_way_, this);
    return over_;
  }

  MpiTransfers& all_;
  std::vector<MPI_Request> requests_;
  std::size_t receives_;
  bool over_ = false;
  std::exception_ptr failure_;
};

MpiTransfers::~MpiTransfers() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<Transfer> MpiTransfers::follow(std::vector<MPI_Request> requests,
                                               std::size_t receives) {
  auto followed = std::make_unique<Followed>(*this, std::move(requests), receives);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  bool first = false;
  {
    std::lock_guard const lock(mutex_);
    if (!followed->look()) {
      first = under_way_.empty();
      under_way_.push_back(followed.get());
    }
  }
  if (first) changed_.notify_all();
  return followed;
}

void MpiTransfers::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !under_way_.empty(); });
    if (stop_) return;
    std::erase_if(under_way_, [](Followed* transfer) { return transfer->look(); });
    lock.unlock();
    std::this_thread::sleep_for(kLookEvery);
    lock.lock();
  }
}

}  // namespace copus
