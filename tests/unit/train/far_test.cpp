// Training on memory that the host cannot touch, as on a GPU: every place of the trainer that
// reaches for a tensor itself would fault. Numbers are the CPU's, bit for bit.
#include <catch2/catch.hpp>
#include <functional>
#include <mutex>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/train/evaluator.h"
#include "copus/train/generator.h"
#include "support/far_backend.h"
#include "support/layout_run.h"
#include "train/run_checkpoint.h"
#include "unit/data/shard_support.h"

using namespace copus;
using copus::test::FarBackend;
using copus::test::MakeBackend;
using copus::test::Reference;
using copus::test::StepNumbers;

namespace {

std::unique_ptr<Backend> far() {
  return std::make_unique<FarBackend>();
}

StepNumbers run(const Reference& reference, const std::vector<Layout>& layouts, Precision precision,
                const MakeBackend& make) {
  int ranks = 1;
  for (const Layout& layout : layouts) ranks = std::max(ranks, layout.world());
  StepNumbers numbers;
  run_ranks(ranks, [&](int rank, Communicator& world) {
    StepNumbers mine =
        test::run_reference(world, reference, layouts, 1, Trainer::kKeptMeshes, precision, make);
    if (rank == 0) numbers = std::move(mine);
  });
  return numbers;
}

void compare(const char* name, const std::vector<Layout>& layouts, Precision precision) {
  Reference const reference(name);
  StepNumbers const there = run(reference, layouts, precision, far),
                    here = run(reference, layouts, precision, test::one_thread);
  CAPTURE(name, to_string(layouts.front()), layouts.size());
  CHECK(there.losses == here.losses);
  CHECK(there.norms == here.norms);
  CHECK(there.after == here.after);
  REQUIRE(there.switches.size() == here.switches.size());
  for (std::size_t i = 0; i < there.switches.size(); ++i) {
    CHECK(there.switches[i].refused == "");
    CHECK(there.switches[i].state_hash == here.switches[i].state_hash);
  }
}

// A trainer on far memory, and the ranks it goes by.
struct FarTrainer {
  FarBackend backend;
  std::unique_ptr<Communicator> ranks;
  Trainer trainer;
  FarTrainer(const Config& config, Communicator& world, const Layout& layout)
      : ranks(stage_through_host(world, backend)), trainer(config, *ranks, layout, 1, backend) {}
};

// Two steps on memory of `make`. What `note` takes of each at rank 0; `ended` sees every rank's
// backend afterwards.
std::vector<double> two_steps(
    const Reference& reference, const Config& config, const Layout& layout, const MakeBackend& make,
    const std::function<void(const StepRecord&, std::vector<double>&)>& note,
    const std::function<void(const Backend&)>& ended = [](const Backend&) {}) {
  std::vector<double> seen;
  run_ranks(layout.world(), [&](int rank, Communicator& world) {
    auto const backend = make();
    auto const ranks = stage_through_host(world, *backend);
    Trainer trainer(config, *ranks, layout, 1, *backend);
    trainer.read_weights(HfModel(reference.directory, config.model));
    for (int s = 0; s < 2; ++s) {
      StepRecord const record = trainer.step(test::samples_of(reference), 8);
      if (rank == 0) note(record, seen);
    }
    ended(*backend);
  });
  return seen;
}

}  // namespace

TEST_CASE("every way to cut a model trains on far memory with the CPU's numbers, bit for bit",
          "[far]") {
  for (const char* name : test::kReferenceNames) {
    for (const Layout& layout : std::vector<Layout>{{1, 1, 1},
                                                    {1, 2, 1, 1, 0, true},
                                                    {2, 2, 1, 1, 1},
                                                    {2, 1, 2, 1, 1},
                                                    {1, 2, 2, 1, 0},
                                                    {1, 1, 2, 1, 0}})
      compare(name, {layout}, Precision::fp32);
  }
  compare("llama-gqa", {{2, 2, 1, 1, 1, true}}, Precision::bf16);
  compare("llama-tied", {{1, 1, 2, 2, 0}}, Precision::fp32);
  compare("qwen2", {{1, 8, 1, 1, 0}}, Precision::fp32);  // kv heads on several ranks
}

TEST_CASE("the workspace of attention lies over nothing that a step still needs", "[far]") {
  for (const char* name : {"llama-gqa", "qwen2"}) {
    Reference const reference(name);
    for (const Layout& layout :
         std::vector<Layout>{{1, 1, 1}, {1, 2, 2, 1, 0, true}, {2, 1, 2, 1, 1}, {1, 1, 2, 1, 0}}) {
      for (Recompute const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Config config = reference.config(1);
        config.train.precision = Precision::bf16;
        config.parallel.recompute = recompute;
        auto const note = [](const StepRecord& record, std::vector<double>& seen) {
          seen.insert(seen.end(), {record.loss, record.grad_norm});
        };
        auto const spoiled = [](const Backend& backend) {
          if (dynamic_cast<const FarBackend&>(backend).spoiled() > 0) return;
          throw InternalError("no workspace was cut");
        };
        CAPTURE(name, to_string(layout), name_of(recompute));
        CHECK(two_steps(reference, config, layout, far, note, spoiled) ==
              two_steps(reference, config, layout, test::one_thread, note));
      }
    }
  }
}

TEST_CASE("a ring of switches on far memory moves, proves and keeps the state", "[far][switch]") {
  for (const char* name : test::kReferenceNames)
    compare(name, test::ring_of_layouts(), Precision::fp32);
  // Engines side by side, both with a workspace for attention.
  compare("llama-gqa", test::ring_of_layouts(), Precision::bf16);
}

TEST_CASE("the noise scale is measured on far memory as on the CPU", "[far][noise]") {
  Reference const reference("llama-tied");
  Config config = reference.config(1);
  config.adapt.mode = AdaptMode::log;
  config.gns.every_steps = 1;
  for (const Layout& layout : std::vector<Layout>{{2, 2, 1, 1, 1, true}, {2, 1, 2, 1, 0}}) {
    auto const note = [](const StepRecord& record, std::vector<double>& seen) {
      seen.push_back(record.gns.value().trace_step.value());
    };
    CAPTURE(to_string(layout));
    CHECK(two_steps(reference, config, layout, far, note) ==
          two_steps(reference, config, layout, test::one_thread, note));
  }
}

TEST_CASE("checkpoints are written from far memory and read into it, at any layout", "[far]") {
  Reference const reference("llama-gqa");
  Config const config = reference.config(1);
  test::TempFolder const folder;
  for (bool wait : {true, false}) {
    for (const Layout& written : std::vector<Layout>{{1, 1, 1}, {2, 2, 1, 1, 1}, {1, 2, 2, 1, 0}}) {
      std::string const run_dir =
          folder / (to_string(written) + (wait ? ", waited for" : ", not waited for"));
      std::uint64_t hash = 0;
      run_ranks(written.world(), [&](int rank, Communicator& world) {
        FarTrainer far(config, world, written);
        far.trainer.read_weights(HfModel(reference.directory, config.model));
        far.trainer.step(test::samples_of(reference), 8);
        CheckpointWriter writer(run_dir, {"bytes", 256}, 1);
        std::string problem = writer.start(far.trainer, wait);
        if (problem.empty()) problem = writer.finish(far.trainer.world()).problem;
        if (!problem.empty()) throw IoError(problem);
        std::uint64_t const mine = far.trainer.weight_hash();
        if (rank == 0) hash = mine;
      });
      std::string const directory = newest_complete(run_dir).directory;
      CAPTURE(run_dir);
      REQUIRE(directory != "");
      // Steps from what was read, on far memory and on the CPU.
      std::vector<double> losses;
      Layout const read{1, 2, 2, 1, 0, true};
      std::uint64_t far_hash = 0;
      run_ranks(read.world(), [&](int rank, Communicator& world) {
        FarTrainer far(config, world, read);
        load_run(directory, config.model, far.trainer);
        std::uint64_t const mine = far.trainer.weight_hash();
        double const loss = far.trainer.step(test::samples_of(reference), 8).loss;
        if (rank != 0) return;
        far_hash = mine;
        losses.push_back(loss);
      });
      run_ranks(read.world(), [&](int rank, Communicator& world) {
        auto const backend = make_cpu_backend(1);
        Trainer trainer(config, world, read, 1, *backend);
        load_run(directory, config.model, trainer);
        double const loss = trainer.step(test::samples_of(reference), 8).loss;
        if (rank == 0) losses.push_back(loss);
      });
      CHECK(far_hash == hash);
      CHECK(losses[0] == losses[1]);
    }
  }
}

TEST_CASE("evaluation and generation on far memory give the CPU's numbers", "[far]") {
  Reference const reference("qwen2");
  ModelConfig model = read_hf_config(reference.directory);
  model.seq_len = reference.seq_len();
  test::TempFolder const folder;
  test::write_shard(folder / "val-00000.bin", reference.tokens, model.vocab);
  Log log(0, false);
  EvalSet const data({{folder.path, 1.0}}, model.seq_len, model.vocab, 0, "", log);
  std::vector<double> losses;
  for (const MakeBackend& make : {MakeBackend(far), MakeBackend(test::one_thread)}) {
    run_ranks(2, [&](int rank, Communicator& world) {
      auto const backend = make();
      auto const ranks = stage_through_host(world, *backend);
      double const loss =
          evaluate_checkpoint(reference.directory, model, data, *ranks, *backend, nullptr).loss;
      if (rank == 0) losses.push_back(loss);
    });
  }
  CHECK(losses[0] == losses[1]);
  std::vector<float> logits[2];
  std::vector<std::int32_t> const text(reference.tokens.begin(), reference.tokens.begin() + 9);
  int which = 0;
  for (const MakeBackend& make : {MakeBackend(far), MakeBackend(test::one_thread)}) {
    auto const backend = make();
    Generator generator(reference.directory, model, model.seq_len, *backend);
    std::span<const float> const got = generator.logits_after(text);
    logits[which++].assign(got.begin(), got.end());
  }
  CHECK(logits[0] == logits[1]);
}
