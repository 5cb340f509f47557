// Ranks as processes over MPI. Small reductions are the library's; large ones are rings of our own
// in chunks, which Open MPI 4.1's own large reductions in shared memory were measured to fall
// behind.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi_calls.h"
#include "comm/mpi_transfers.h"
#include "comm/reduce.h"
#include "copus/comm/communicator.h"
#include "copus/comm/mpi.h"
#include "copus/core/console.h"
#include "copus/core/error.h"
#include "copus/core/printable.h"

namespace copus {
namespace {

// From here on a ring of our own is faster than the library's reductions.
constexpr std::int64_t kRingBytes = std::int64_t{1} << 19;
// What one ring message holds: small enough that a neighbour starts early, large enough that
// messages cost nothing.
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 18;

// Waits, and moves the library's messages on meanwhile. Open MPI's own wait keeps its core busy,
// which another rank, or this one's computing, may need: after a moment this one sleeps between
// looks.
void wait_for(std::span<MPI_Request> requests) {
  constexpr int kBusyLooks = 200;
  for (int looks = 0;; ++looks) {
    int done = 0;
    MPI_CHECK(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                          MPI_STATUSES_IGNORE));
    if (done != 0) return;
    if (looks < kBusyLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

MPI_Op op_of(ReduceOp op) {
  return op == ReduceOp::sum ? MPI_SUM : (op == ReduceOp::max ? MPI_MAX : MPI_MIN);
}

// A stretch of bytes that one rank of a ring owns.
struct Piece {
  std::int64_t begin = 0, count = 0;  // elements
};

// Bytes to work in that only ever become more, and hold nothing from one use to the next.
class Room {
 public:
  std::byte* at_least(std::int64_t bytes) {
    if (bytes > bytes_) {
      bytes_ = 0;
      data_.reset();  // never both
      data_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  std::int64_t bytes_ = 0;
  std::unique_ptr<std::byte[]> data_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, std::int64_t piece_bytes)
      : comm_(comm), piece_bytes_(piece_bytes) {
    MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
    MPI_CHECK(MPI_Comm_size(comm_, &size_));
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return "mpi"; }

  void all_reduce(TensorView x, ReduceOp op) override;
  // Rank 0 adds up and everybody gets its bits: what is decided from them is decided alike.
  void all_reduce(std::span<double> values, ReduceOp op) override {
    int const count = static_cast<int>(values.size());
    if (rank_ == 0) {
      MPI_CHECK(MPI_Reduce(MPI_IN_PLACE, values.data(), count, MPI_DOUBLE, op_of(op), 0, comm_));
    } else {
      MPI_CHECK(MPI_Reduce(values.data(), nullptr, count, MPI_DOUBLE, op_of(op), 0, comm_));
    }
    MPI_CHECK(MPI_Bcast(values.data(), count, MPI_DOUBLE, 0, comm_));
  }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                            MPI_UINT64_T, op_of(op), comm_));
  }
  void library_all_reduce(TensorView x) {
    COPUS_CHECK(x.contiguous() && x.dtype == DType::f32 && x.bytes() <= std::int64_t{1} << 30,
                "one MPI_Allreduce of f32");
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data, static_cast<int>(x.numel()), MPI_FLOAT, MPI_SUM,
                            comm_));
  }
  void reduce_scatter(TensorView out, const TensorView& x) override;
  void all_gather(TensorView out, const TensorView& x) override;
  void broadcast(TensorView x, int root) override;
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override {
    std::vector<MPI_Request> requests;
    post(requests, sends, receives);
    wait_for(requests);
  }
  bool can_start() const override { return true; }
  std::unique_ptr<Transfer> start(std::span<const Parcel> sends,
                                  std::span<const Parcel> receives) override {
    std::vector<MPI_Request> requests;
    std::size_t const incoming = post(requests, sends, receives);
    return transfers_.follow(std::move(requests), incoming);
  }
  void barrier() override { MPI_CHECK(MPI_Barrier(comm_)); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void check_alive() const override {}
  void abort(const std::string& reason) noexcept override {
    char host[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    MPI_Get_processor_name(host, &length);
    standard_error().write(fmt::format("rank {} of {} on {} ends the job: {}\n", rank_, size_, host,
                                       printable(reason)));
    MPI_Abort(comm_, 1);
  }

 private:
  // Receives, then sends; how many of the requests are receives.
  std::size_t post(std::vector<MPI_Request>& requests, std::span<const Parcel> sends,
                   std::span<const Parcel> receives);
  // Sends bytes to the next rank of the ring and receives as many from the one before, chunk by
  // chunk; `arrived` is called with each chunk as it comes in.
  template <class Arrived>
  void pass_on(const std::byte* send, std::int64_t send_bytes, std::byte* receive,
               std::int64_t receive_bytes, Arrived&& arrived);
  // The first half of a ring all-reduce: afterwards rank r holds the sum of piece r. `x` is
  // overwritten.
  void ring_reduce(std::byte* x, DType dtype, ReduceOp op, const std::vector<Piece>& pieces,
                   std::byte* landing);
  // The second half: everybody gets every piece.
  void ring_gather(std::byte* x, DType dtype, const std::vector<Piece>& pieces);
  // A copy of a bf16 tensor in fp32, valid until the next call: what is summed travels so, because
  // a partial sum rounded at each hop would depend on the number of ranks.
  TensorView widened(const TensorView& x) {
    auto* const wide = reinterpret_cast<float*>(wide_.at_least(x.numel() * size_of(DType::f32)));
    widen(wide, x.ptr<Bf16>(), x.numel());
    return {wide, DType::f32, {x.numel()}};
  }

  MPI_Comm comm_;
  std::int64_t piece_bytes_;  // MPI counts are int: larger messages go in pieces
  int rank_ = 0, size_ = 1;
  Room landing_, other_landing_, wide_;
  MpiTransfers transfers_;
};

template <class Arrived>
void MpiCommunicator::pass_on(const std::byte* send, std::int64_t send_bytes, std::byte* receive,
                              std::int64_t receive_bytes, Arrived&& arrived) {
  int const next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
  std::vector<MPI_Request> incoming, outgoing;
  for (std::int64_t at = 0; at < receive_bytes; at += kChunkBytes) {
    incoming.emplace_back();
    MPI_CHECK(MPI_Irecv(receive + at, static_cast<int>(std::min(kChunkBytes, receive_bytes - at)),
                        MPI_BYTE, before, 0, comm_, &incoming.back()));
  }
  for (std::int64_t at = 0; at < send_bytes; at += kChunkBytes) {
    outgoing.emplace_back();
    MPI_CHECK(MPI_Isend(send + at, static_cast<int>(std::min(kChunkBytes, send_bytes - at)),
                        MPI_BYTE, next, 0, comm_, &outgoing.back()));
  }
  std::int64_t at = 0;
  for (MPI_Request& request : incoming) {
    wait_for({&request, 1});
    std::int64_t const bytes = std::min(kChunkBytes, receive_bytes - at);
    arrived(at, bytes);
    at += bytes;
  }
  wait_for(outgoing);
}

void MpiCommunicator::ring_reduce(std::byte* x, DType dtype, ReduceOp op,
                                  const std::vector<Piece>& pieces, std::byte* landing) {
  std::int64_t const width = size_of(dtype);
  // In step s a rank passes on piece (rank - s - 1), so that piece r ends, complete, at rank r.
  for (int s = 0; s + 1 < size_; ++s) {
    const Piece& out = pieces[static_cast<std::size_t>((rank_ - s - 1 + 2 * size_) % size_)];
    const Piece& in = pieces[static_cast<std::size_t>((rank_ - s - 2 + 2 * size_) % size_)];
    std::byte* const mine = x + in.begin * width;
    pass_on(x + out.begin * width, out.count * width, landing, in.count * width,
            [&](std::int64_t at, std::int64_t bytes) {
              fold_to_first(mine + at, landing + at, dtype, op, bytes / width);
            });
  }
}

void MpiCommunicator::ring_gather(std::byte* x, DType dtype, const std::vector<Piece>& pieces) {
  std::int64_t const width = size_of(dtype);
  for (int s = 0; s + 1 < size_; ++s) {
    const Piece& out = pieces[static_cast<std::size_t>((rank_ - s + size_) % size_)];
    const Piece& in = pieces[static_cast<std::size_t>((rank_ - s - 1 + size_) % size_)];
    pass_on(x + out.begin * width, out.count * width, x + in.begin * width, in.count * width,
            [](std::int64_t, std::int64_t) {});
  }
}

std::vector<Piece> equal_pieces(std::int64_t n, int size) {
  std::vector<Piece> pieces;
  for (int r = 0; r < size; ++r)
    pieces.push_back({n * r / size, n * (r + 1) / size - n * r / size});
  return pieces;
}

void MpiCommunicator::all_reduce(TensorView x, ReduceOp op) {
  COPUS_CHECK(x.contiguous(), "collectives take contiguous tensors");
  if (size_ == 1 || x.numel() == 0) return;
  if (x.dtype == DType::bf16) {
    TensorView const wide = widened(x);
    all_reduce(wide, op);
    round_to(x.ptr<Bf16>(), wide.ptr<float>(), x.numel());
    return;
  }
  COPUS_CHECK(x.dtype == DType::f32 || x.dtype == DType::i32, "reductions are of f32, bf16, i32");
  auto* const data = static_cast<std::byte*>(x.data);
  if (x.bytes() < kRingBytes) {
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(x.numel()),
                            x.dtype == DType::f32 ? MPI_FLOAT : MPI_INT32_T, op_of(op), comm_));
    return;
  }
  std::vector<Piece> const pieces = equal_pieces(x.numel(), size_);
  std::byte* const landing = landing_.at_least((x.numel() / size_ + 1) * size_of(x.dtype));
  ring_reduce(data, x.dtype, op, pieces, landing);
  ring_gather(data, x.dtype, pieces);
}

void MpiCommunicator::reduce_scatter(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && x.numel() == out.numel() * size_ &&
                  out.dtype == x.dtype,
              "reduce_scatter takes size() equal pieces");
  if (x.numel() == 0) return;
  if (x.dtype == DType::bf16) {
    TensorView const wide = widened(x), own = wide.slice(0, out.numel() * rank_, out.numel());
    reduce_scatter(own, wide);
    round_to(out.ptr<Bf16>(), own.ptr<float>(), out.numel());
    return;
  }
  COPUS_CHECK(x.dtype == DType::f32 || x.dtype == DType::i32, "reductions are of f32, bf16, i32");
  auto const* const data = static_cast<const std::byte*>(x.data);
  if (size_ == 1) {
    if (out.data != x.data) std::memcpy(out.data, data, static_cast<std::size_t>(x.bytes()));
    return;
  }
  // Partial sums go round the ring and each rank adds its own to what has come in, so the input
  // stays as it was. `out` may lie in it, and is written when its own part has been added.
  std::vector<Piece> const pieces = equal_pieces(x.numel(), size_);
  std::int64_t const width = size_of(x.dtype);
  std::byte* landing[2] = {landing_.at_least(out.bytes()),
                           size_ > 2 ? other_landing_.at_least(out.bytes()) : nullptr};
  const std::byte* sums =
      data + pieces[static_cast<std::size_t>((rank_ + size_ - 1) % size_)].begin * width;
  for (int s = 0; s + 1 < size_; ++s) {
    const Piece& in = pieces[static_cast<std::size_t>((rank_ - s - 2 + 2 * size_) % size_)];
    std::byte* const coming = landing[s % 2];
    pass_on(sums, out.bytes(), coming, out.bytes(), [&](std::int64_t at, std::int64_t bytes) {
      fold_to_first(coming + at, data + in.begin * width + at, x.dtype, ReduceOp::sum,
                    bytes / width);
    });
    sums = coming;
  }
  std::memcpy(out.data, sums, static_cast<std::size_t>(out.bytes()));
}

void MpiCommunicator::all_gather(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && out.numel() == x.numel() * size_ &&
                  out.dtype == x.dtype,
              "all_gather makes size() equal pieces");
  auto* const all = static_cast<std::byte*>(out.data);
  std::byte* const mine = all + x.bytes() * rank_;
  if (x.bytes() == 0) return;
  if (mine != x.data) std::memmove(mine, x.data, static_cast<std::size_t>(x.bytes()));
  ring_gather(all, x.dtype, equal_pieces(out.numel(), size_));
}

void MpiCommunicator::broadcast(TensorView x, int root) {
  COPUS_CHECK(x.contiguous() && root >= 0 && root < size_,
              "broadcast takes a contiguous tensor and a rank of the group");
  auto* const data = static_cast<std::byte*>(x.data);
  for (std::int64_t at = 0; at < x.bytes(); at += piece_bytes_) {
    MPI_CHECK(MPI_Bcast(data + at, static_cast<int>(std::min(piece_bytes_, x.bytes() - at)),
                        MPI_BYTE, root, comm_));
  }
}

std::size_t MpiCommunicator::post(std::vector<MPI_Request>& requests, std::span<const Parcel> sends,
                                  std::span<const Parcel> receives) {
  // Runs call(address, bytes, request) for each piece.
  auto const in_pieces = [&](const Parcel& parcel, const auto& call) {
    auto* const data = static_cast<std::byte*>(parcel.data.data);
    for (std::int64_t at = 0; at < parcel.data.bytes(); at += piece_bytes_) {
      requests.emplace_back();
      call(data + at, static_cast<int>(std::min(piece_bytes_, parcel.data.bytes() - at)),
           &requests.back());
    }
  };
  for (const Parcel& p : receives) {
    in_pieces(p, [&](std::byte* data, int bytes, MPI_Request* request) {
      MPI_CHECK(MPI_Irecv(data, bytes, MPI_BYTE, p.peer, 1 + p.lane, comm_, request));
    });
  }
  std::size_t const incoming = requests.size();
  for (const Parcel& p : sends) {
    in_pieces(p, [&](std::byte* data, int bytes, MPI_Request* request) {
      MPI_CHECK(MPI_Isend(data, bytes, MPI_BYTE, p.peer, 1 + p.lane, comm_, request));
    });
  }
  return incoming;
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &made));
  if (made == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(made, piece_bytes_);
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw CommError(
        fmt::format("this MPI gives thread level {}, Copus needs MPI_THREAD_MULTIPLE ({})",
                    provided, static_cast<int>(MPI_THREAD_MULTIPLE)));
  }
}

MpiSession::~MpiSession() {
  MPI_Finalize();
}

void library_all_reduce(Communicator& ranks, TensorView x) {
  auto* const mpi = dynamic_cast<MpiCommunicator*>(&ranks);
  COPUS_CHECK(mpi != nullptr, "MPI_Allreduce is between MPI's ranks");
  mpi->library_all_reduce(x);
}

std::unique_ptr<Communicator> MpiSession::world(std::int64_t piece_bytes) {
  MPI_Comm world = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  return std::make_unique<MpiCommunicator>(world, piece_bytes);
}

namespace {

// (rank, size) among the ranks of this host.
std::pair<int, int> on_this_host() {
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0, local = 0, size = 1;
  MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
  MPI_CHECK(MPI_Comm_rank(node, &local));
  MPI_CHECK(MPI_Comm_size(node, &size));
  MPI_Comm_free(&node);
  return {local, size};
}

}  // namespace

int MpiSession::local_rank() const {
  return on_this_host().first;
}
int MpiSession::local_size() const {
  return on_this_host().second;
}
bool MpiSession::processors_differ(int mine) const {
  return mine < static_cast<int>(std::thread::hardware_concurrency()) ||
         mine < sysconf(_SC_NPROCESSORS_ONLN);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find(','));
}

bool built_with_mpi() {
  return true;
}

}  // namespace copus
