// Which device and which transport ranks agree on, from what each of them sees.
#include "copus/comm/rank_device.h"

#include <catch2/catch.hpp>
#include <mutex>

#include "copus/comm/broadcast.h"
#include "copus/comm/gather_texts.h"
#include "copus/comm/nccl.h"

using namespace copus;

namespace {

CudaFacts gpus(int count) {
  CudaFacts facts;
  facts.built = true;
  facts.oldest_capability = 80;
  facts.runtime = facts.driver = 13000;
  for (int i = 0; i < count; ++i) {
    facts.gpus.push_back(
        {i, "NVIDIA H100 80GB HBM3", "00000000:0" + std::to_string(i) + ":00.0", 85LL << 30, 90});
  }
  return facts;
}

// What each of `ranks` ranks on one host comes to; rank r sees facts_of(r).
template <class FactsOf>
std::vector<RankDevice> chosen(int ranks, DeviceChoice device, TransportChoice transport,
                               const FactsOf& facts_of) {
  std::vector<RankDevice> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](int rank, Communicator& world) {
    all[static_cast<std::size_t>(rank)] =
        choose_device(world, {device, transport, rank}, facts_of(rank));
  });
  return all;
}

bool says(const std::vector<std::string>& texts, const std::string& part) {
  return texts.size() == 1 && texts[0].find(part) != std::string::npos;
}

bool with_nccl() {
  return nccl_problem().empty();
}

}  // namespace

TEST_CASE("ranks as threads take one GPU each, and share where there are fewer") {
  auto const each =
      chosen(4, DeviceChoice::cuda, TransportChoice::automatic, [](int) { return gpus(4); });
  for (int r = 0; r < 4; ++r) {
    const RankDevice& device = each[static_cast<std::size_t>(r)];
    CHECK(device.on_gpu);
    CHECK(device.gpu == r);
    CHECK(device.sharing == 1);
    CHECK(device.ranks_here == 4);
    CHECK(device.nccl == with_nccl());
    CHECK(device.problems == std::vector<std::string>{});
    CHECK(device.words.find("NVIDIA H100") == 0);
  }
  auto const shared =
      chosen(4, DeviceChoice::cuda, TransportChoice::automatic, [](int) { return gpus(1); });
  for (const RankDevice& device : shared) {
    CHECK(device.on_gpu);
    CHECK(device.gpu == 0);
    CHECK(device.sharing == 4);
    CHECK_FALSE(device.nccl);
    CHECK(device.problems == std::vector<std::string>{});
    CHECK(says(device.notes, "through the host's memory (thread), not by NCCL"));
  }
}

TEST_CASE("transport: thread stages although each rank has a GPU of its own") {
  for (const RankDevice& device :
       chosen(2, DeviceChoice::automatic, TransportChoice::thread, [](int) { return gpus(2); })) {
    CHECK(device.on_gpu);
    CHECK_FALSE(device.nccl);
    CHECK(device.notes == std::vector<std::string>{});
  }
}

TEST_CASE(
    "transport: nccl is refused for ranks on one GPU, and on the CPU, with what is accepted") {
  for (const RankDevice& device :
       chosen(2, DeviceChoice::cuda, TransportChoice::nccl, [](int) { return gpus(1); })) {
    CHECK_FALSE(device.nccl);
    CHECK(says(device.problems, "accepted here: thread, auto"));
    if (with_nccl()) {
      CHECK(says(device.problems, "transport: nccl: ranks 0 and 1 share GPU 00000000:00:00.0"));
      CHECK(says(device.problems, "--ranks 1"));
    } else {
      CHECK(says(device.problems, "transport: nccl: this program was built without NCCL"));
    }
  }
  for (const RankDevice& device :
       chosen(2, DeviceChoice::cpu, TransportChoice::nccl, [](int) { return gpus(2); })) {
    CHECK_FALSE(device.on_gpu);
    CHECK(says(device.problems, "transport: nccl: the ranks compute on the CPU"));
  }
}

TEST_CASE("one rank without a GPU keeps all of them on the CPU, or is named where cuda was asked") {
  auto const facts_of = [](int rank) { return rank == 2 ? CudaFacts{} : gpus(3); };
  for (const RankDevice& device :
       chosen(3, DeviceChoice::automatic, TransportChoice::automatic, facts_of)) {
    CHECK_FALSE(device.on_gpu);
    CHECK_FALSE(device.nccl);
    CHECK(device.sharing == 3);
    CHECK(says(device.notes, "rank 2 on "));
    CHECK(device.problems == std::vector<std::string>{});
  }
  auto const asked = chosen(3, DeviceChoice::cuda, TransportChoice::automatic, facts_of);
  CHECK(asked[0].problems == std::vector<std::string>{});
  CHECK(says(asked[2].problems,
             "device: cuda: this program was built without CUDA; accepted "
             "here: cpu, auto"));
}

TEST_CASE("transport: mpi without a launcher is refused") {
  auto const device =
      chosen(1, DeviceChoice::cpu, TransportChoice::mpi, [](int) { return CudaFacts{}; });
  CHECK(says(device[0].problems, "transport: mpi: no launcher started this process"));
}

TEST_CASE("texts and values reach every rank as they were, whatever their length") {
  std::mutex mutex;
  run_ranks(3, [&](int rank, Communicator& world) {
    std::string const mine(static_cast<std::size_t>(rank * 100), static_cast<char>('a' + rank));
    std::vector<std::string> const all = gather_texts(world, mine);
    std::string const text = broadcast_text(world, rank == 2 ? "seven b" : "no", 2);
    std::string const none = broadcast_text(world, rank == 1 ? "" : "no", 1);
    struct Odd {
      char letters[11];
    } odd{};
    if (rank == 1) std::copy_n("elevenbytes", 11, odd.letters);
    broadcast_value(world, odd, 1);
    std::lock_guard const lock(mutex);
    CHECK(all == std::vector<std::string>{"", std::string(100, 'b'), std::string(127, 'c')});
    CHECK(text == "seven b");
    CHECK(none == "");
    CHECK(std::string(odd.letters, 11) == "elevenbytes");
  });
}
