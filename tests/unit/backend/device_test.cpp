#include "copus/backend/device.h"

#include <catch2/catch.hpp>

using namespace copus;

namespace {

CudaFacts two_gpus() {
  CudaFacts facts;
  facts.built = true;
  facts.oldest_capability = 80;
  facts.runtime = 13000;
  facts.driver = 13010;
  facts.gpus = {{0, "NVIDIA H100 80GB HBM3", "00000000:17:00.0", 85'000'000'000, 90},
                {1, "NVIDIA H100 80GB HBM3", "00000000:2A:00.0", 85'000'000'000, 90}};
  return facts;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each reason for which a GPU cannot be used is said by its own name") {
  CudaFacts facts = two_gpus();
  CHECK(gpu_problem(facts, 0) == "");
  CHECK(gpu_problem(facts, 1) == "");
  CHECK(says(gpu_problem(facts, 2), "there is no GPU 2: this process sees 2"));

  facts.gpus[1].capability = 75;
  facts.gpus[1].name = "Tesla T4";
  CHECK(gpu_problem(facts, 0) == "");
  std::string const old_gpu = gpu_problem(facts, 1);
  CHECK(says(old_gpu, "Tesla T4 has compute capability 7.5"));
  CHECK(says(old_gpu, "code for 8.0 and newer"));
  CHECK(says(old_gpu, "-DCOPUS_CUDA_ARCHITECTURES=75"));

  facts.gpus.clear();
  CHECK(says(gpu_problem(facts, 0), "shows no device"));
  CHECK(says(gpu_problem(facts, 0), "CUDA_VISIBLE_DEVICES"));
  facts.failure = "unknown error";
  CHECK(says(gpu_problem(facts, 0), "does not answer: unknown error"));
  facts.driver_too_old = true;
  facts.driver = 12040;
  std::string const old_driver = gpu_problem(facts, 0);
  CHECK(says(old_driver, "the NVIDIA driver is for CUDA 12.4"));
  CHECK(says(old_driver, "built with CUDA 13.0"));
  facts.driver = 0;
  CHECK(gpu_problem(facts, 0) == "this machine has no NVIDIA driver");
  CHECK(gpu_problem(CudaFacts{}, 0) == "this program was built without CUDA");
}

TEST_CASE("ranks of a host take its GPUs in turn") {
  CudaFacts facts = two_gpus();
  CHECK(gpu_of_rank(facts, 0) == 0);
  CHECK(gpu_of_rank(facts, 1) == 1);
  CHECK(gpu_of_rank(facts, 2) == 0);
  CHECK(gpu_of_rank(facts, 7) == 1);
  facts.gpus.resize(1);  // a launcher showed each rank its own
  CHECK(gpu_of_rank(facts, 5) == 0);
  CHECK(gpu_of_rank(CudaFacts{}, 5) == 0);
}

TEST_CASE("a GPU is described by name, bus, memory, architecture, driver and runtime") {
  CHECK(describe(two_gpus(), 1) ==
        "NVIDIA H100 80GB HBM3 (00000000:2A:00.0, 79.2 GiB, sm_90), driver for CUDA 13.1, runtime "
        "13.0");
}

TEST_CASE("two ranks on one GPU of one host are found, and told what to type") {
  std::vector<RankPlace> ranks{{"a", "17"}, {"a", "2A"}, {"b", "17"}, {"b", "2A"}};
  CHECK(sharing_problem(ranks) == "");
  ranks.push_back({"b", "17"});
  ranks.push_back({"b", "17"});
  std::string const text = sharing_problem(ranks);
  CHECK(says(text, "ranks 2 and 4 share GPU 17 of b"));
  CHECK(says(text, "NCCL takes one rank a GPU"));
  CHECK(says(text, "these 6 ranks are on 4 GPUs"));
  CHECK(says(text, "mpirun -n 4 copus"));
  CHECK(says(text, "--ranks 4"));
  CHECK(ranks_beside(ranks, 0) == 1);
  CHECK(ranks_beside(ranks, 2) == 3);
  CHECK(ranks_beside(ranks, 5) == 3);
  ranks[3].pci = "";
  CHECK(says(sharing_problem(ranks), "rank 3 computes on the CPU"));
}

TEST_CASE("what this machine's driver says is taken as it is") {
  CudaFacts const facts = cuda_facts();
  if (facts.gpus.empty()) {
    CHECK(gpu_problem(facts, 0) != "");
  } else {
    CHECK(facts.driver > 0);
    CHECK(facts.gpus.front().memory_bytes > 0);
    CHECK(facts.gpus.front().pci != "");
  }
}
