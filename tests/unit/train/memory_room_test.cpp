// A run that does not fit its GPU is told before anything is reserved, and what would fit.
#include "train/memory_room.h"

#include <catch2/catch.hpp>

#include "copus/core/config_io.h"
#include "copus/train/engine.h"

using namespace copus;

namespace {

Config gpt2(std::int64_t batch, std::int64_t micro) {
  Config config;
  config.model = model_preset("gpt2-124m");
  config.model.seq_len = 1024;
  config.batch.sequences = batch;
  config.batch.micro = micro;
  return config;
}

std::int64_t needed(const Config& config, const Layout& layout, std::int64_t micro) {
  return engine_memory(config, layout, micro, 0, AttentionLibrary::none).total() +
         kDeviceReserveBytes;
}

std::string problem_of(const Config& config, const Layout& layout, std::int64_t micro, int rank,
                       std::int64_t free_bytes) {
  return memory_problem(config, layout, micro, rank, free_bytes, AttentionLibrary::none);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a run that fits to the byte is let through, one byte less is not") {
  Config const config = gpt2(8, 8);
  std::int64_t const bytes = needed(config, {}, 8);
  CHECK(problem_of(config, {}, 8, 0, bytes) == "");
  std::string const problem = problem_of(config, {}, 8, 0, bytes - 1);
  CHECK(says(problem, "batch.micro: 8: a rank needs "));
  CHECK(says(problem, "Memory (planned, reserved once)"));
  CHECK(says(problem, "adam_m"));
}

TEST_CASE("what would fit is the largest micro-batch, and as little recomputation as that takes") {
  Config const config = gpt2(8, 8);
  CHECK(says(problem_of(config, {}, 8, 0, needed(config, {}, 4)), "batch.micro 4 fits"));
  CHECK(says(problem_of(config, {}, 8, 0, needed(config, {}, 1)), "batch.micro 1 fits"));
  Config full = config;
  full.parallel.recompute = Recompute::full;
  std::int64_t const least = needed(full, {}, 1);
  CHECK(says(problem_of(config, {}, 8, 0, least),
             "batch.micro 1 with parallel.recompute \"full\" fits"));
  CHECK(says(problem_of(config, {}, 8, 0, least - 1), "more ranks are needed"));
}

TEST_CASE("ZeRO-1 is offered where the optimizer's share is what does not fit") {
  Config const config = gpt2(8, 1);
  Layout const plain{4, 1, 1, 1, 0}, cut{4, 1, 1, 1, 1};
  Config full = config;
  full.parallel.recompute = Recompute::full;
  std::int64_t const bytes = needed(full, cut, 1);
  REQUIRE(bytes < needed(full, plain, 1));
  CHECK(says(problem_of(config, plain, 1, 0, bytes), "parallel.zero 1"));
}

TEST_CASE("a rank that idles needs nothing") {
  CHECK(problem_of(gpt2(8, 8), {}, 8, 1, 0) == "");
}

TEST_CASE("the workspace of the device's attention library is part of what has to fit") {
  Config config = gpt2(8, 8);
  config.train.precision = Precision::bf16;
  auto const total = [&](AttentionLibrary library) {
    return engine_memory(config, {}, 8, 0, library).total() + kDeviceReserveBytes;
  };
  std::int64_t const with = total(AttentionLibrary::cudnn), without = total(AttentionLibrary::none);
  REQUIRE(with > without);
  CHECK(memory_problem(config, {}, 8, 0, with, AttentionLibrary::cudnn) == "");
  std::string const problem = memory_problem(config, {}, 8, 0, without, AttentionLibrary::cudnn);
  CHECK(says(problem, "  attention "));
  CHECK(says(problem, "batch.micro 4 fits"));
  // fp32 does not go by the library.
  config.train.precision = Precision::fp32;
  CHECK(total(AttentionLibrary::cudnn) == total(AttentionLibrary::none));
}
