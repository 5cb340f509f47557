// Branched checks: what they measure are runs, and of the run itself they change nothing.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "copus/train/branched_check.h"
#include "support/layout_run.h"
#include "unit/data/shard_support.h"

using namespace copus;
using copus::test::Reference;

namespace {

constexpr std::int64_t kMicro = 2;
const Layout kLayouts[] = {{1, 1, 1, 1, 0}, {2, 2, 1, 1, 1}, {1, 1, 2, 1, 0}};

Config checking(const Reference& reference) {
  Config config = reference.config(kMicro);
  config.batch.max = 32;
  config.adapt.mode = AdaptMode::log;
  config.gns.every_steps = 1;
  return config;
}

// The reference's text as evaluation data.
struct Losses {
  test::TempFolder folder;
  Log log{0, false};
  EvalSet data;

  explicit Losses(const Reference& reference)
      : data((test::write_shard(folder / "val-0.bin", reference.tokens),
              std::vector<DataSource>{{folder / "val-0.bin"}}),
             reference.seq_len(), 257, 40 * reference.seq_len(), "", log) {}
};

CheckRequest tried(std::int64_t samples = 32) {
  CheckRequest request;
  request.batches = {8, 16, 32};
  request.samples = samples;
  return request;
}

// What a rank holds, and knows.
struct Held {
  std::vector<float> values;
  Counters counters;
  std::uint64_t weights = 0;

  explicit Held(Trainer& trainer)
      : counters(trainer.state().counters), weights(trainer.weight_hash()) {
    if (!trainer.active()) return;
    for (const TensorView& view : {trainer.state().master, trainer.state().m, trainer.state().v}) {
      auto const part = view.span<float>();
      values.insert(values.end(), part.begin(), part.end());
    }
  }
  bool operator==(const Held& other) const {
    return counters == other.counters && weights == other.weights &&
           values.size() == other.values.size() &&
           (values.empty() ||
            std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0);
  }
};

// `body` on each of four ranks, those beyond the layout idle, with a trainer after three steps.
template <class Body>
void after_three_steps(const Reference& reference, const Config& config, const Layout& layout,
                       const Body& body) {
  run_ranks(4, [&](int rank, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, layout, kMicro, *backend);
    trainer.read_weights(HfModel(reference.directory, config.model));
    for (int s = 0; s < 3; ++s) trainer.step(test::samples_of(reference), 8);
    body(rank, trainer);
  });
}

}  // namespace

TEST_CASE("a run with a branched check is the run without it, bit for bit, at any layout",
          "[check]") {
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    Losses const losses(reference);
    for (const Layout& layout : kLayouts) {
      for (Precision const precision : {Precision::fp32, Precision::bf16}) {
        Config config = checking(reference);
        config.train.precision = precision;
        config.model.dropout = 0.1;
        std::mutex mutex;
        std::optional<Held> without[4];
        double loss = 0.0;
        after_three_steps(reference, config, layout, [&](int rank, Trainer& trainer) {
          StepRecord const record = trainer.step(test::samples_of(reference), 8);
          Held held(trainer);
          std::lock_guard const lock(mutex);
          without[rank] = std::move(held);
          if (rank == 0) loss = record.loss;
        });
        after_three_steps(reference, config, layout, [&](int rank, Trainer& trainer) {
          Held const before(trainer);
          CheckRun const run =
              branched_check(trainer, test::samples_of(reference), losses.data, tried());
          Held const after(trainer);
          StepRecord const record = trainer.step(test::samples_of(reference), 8);
          Held const later(trainer);
          std::lock_guard const lock(mutex);
          CAPTURE(name, to_string(layout), static_cast<int>(precision), rank);
          CHECK((run.refused.empty() && !run.stopped));
          CHECK(after == before);
          CHECK(record.loss == loss);
          CHECK(later == *without[rank]);
        });
      }
    }
  }
}

TEST_CASE("each branch of a check is the run at its batch over the same samples", "[check]") {
  Reference const reference("llama-tied");
  Losses const losses(reference);
  for (const Layout& layout : kLayouts) {
    Config config = checking(reference);
    config.batch_rule.lr = LrRule::sqrt;
    std::mutex mutex;
    after_three_steps(reference, config, layout, [&](int rank, Trainer& trainer) {
      double const from = trainer.evaluate(losses.data, nullptr).loss;
      CheckRun const run =
          branched_check(trainer, test::samples_of(reference), losses.data, tried());
      std::lock_guard const lock(mutex);
      REQUIRE(run.check.branches.size() == 3);
      if (rank != 0) return;
      CHECK(run.check.from_loss == from);
      CHECK(run.check.branches[0].progress == 1.0);
      for (const Branch& branch : run.check.branches) {
        double const kappa = static_cast<double>(branch.batch) / 8.0;
        CHECK(branch.steps == 32 / branch.batch);
        CHECK(branch.lr == Approx(config.optimizer.lr * std::sqrt(kappa)));
        CHECK(branch.progress ==
              Approx((from - branch.loss) / (from - run.check.branches[0].loss)));
        CHECK(branch.error > 0.0);
      }
    });
    for (std::size_t i = 0; i < 3; ++i) {
      double checked = 0.0;
      after_three_steps(reference, config, layout, [&](int rank, Trainer& trainer) {
        CheckRun const run =
            branched_check(trainer, test::samples_of(reference), losses.data, tried());
        std::int64_t const batch = tried().batches[i];
        for (std::int64_t step = 0; step < 32 / batch; ++step)
          trainer.step(test::samples_of(reference), batch);
        double const loss = trainer.evaluate(losses.data, nullptr).loss;
        if (rank != 0) return;
        checked = run.check.branches[i].loss;
        CHECK(loss == checked);
      });
      CHECK(checked > 0.0);
    }
  }
}

TEST_CASE("where one rank has no room for the state's copy no rank branches", "[check]") {
  Reference const reference("llama-gqa");
  Losses const losses(reference);
  std::mutex mutex;
  after_three_steps(reference, checking(reference), kLayouts[1], [&](int rank, Trainer& trainer) {
    Held const before(trainer);
    CheckRequest request = tried();
    // Of the three buffers one.
    request.free_bytes = rank == 2 ? trainer.state().master.bytes() : std::int64_t{1} << 40;
    CheckRun const run = branched_check(trainer, test::samples_of(reference), losses.data, request);
    Held const after(trainer);
    std::lock_guard const lock(mutex);
    CHECK_THAT(run.refused, Catch::Contains("rank 2: the state's copy takes"));
    CHECK(run.check.branches.empty());
    CHECK(after == before);
  });
}

TEST_CASE("a rank that is asked to stop ends the check on all, and the state is as it was",
          "[check]") {
  Reference const reference("llama-gqa");
  Losses const losses(reference);
  // In the first evaluation, in a branch's step, in the evaluation after it.
  for (int const looks : {1, 13, 20}) {
    std::mutex mutex;
    after_three_steps(reference, checking(reference), kLayouts[1], [&](int rank, Trainer& trainer) {
      Held const before(trainer);
      int seen = 0;
      CheckRequest request = tried(64);
      request.stop = [&] { return rank == 3 && ++seen >= looks; };
      CheckRun const run =
          branched_check(trainer, test::samples_of(reference), losses.data, request);
      Held const after(trainer);
      std::lock_guard const lock(mutex);
      CAPTURE(looks, rank);
      CHECK(run.stopped);
      CHECK(after == before);
    });
  }
}

TEST_CASE("branches that diverge end there, have no loss, and leave the state as it was",
          "[check]") {
  Reference const reference("gpt2");
  Losses const losses(reference);
  Config config = checking(reference);
  std::mutex mutex;
  after_three_steps(reference, config, kLayouts[0], [&](int rank, Trainer& trainer) {
    Held const before(trainer);
    // The second step of the branch at 16 finds weights that are not numbers.
    std::int64_t const start = trainer.state().counters.samples;
    float* const weight = trainer.active() ? trainer.state().master.ptr<float>() : nullptr;
    SampleSource const poisoned = [&](std::int64_t index, std::span<std::int32_t> inputs,
                                      std::span<std::int32_t> targets) {
      reference.sample(index % 64, inputs, targets);
      const Counters& now = trainer.state().counters;
      if (weight != nullptr && now.samples == start + 16 && now.step == 4)
        std::fill_n(weight, 1 << 10, std::nanf(""));
    };
    CheckRun const run = branched_check(trainer, poisoned, losses.data, tried());
    Held const after(trainer);
    std::lock_guard const lock(mutex);
    CHECK(after == before);
    if (rank != 0) return;
    REQUIRE(run.check.branches.size() == 3);
    CHECK(std::isfinite(run.check.branches[0].loss));
    CHECK(std::isnan(run.check.branches[1].loss));
    CHECK(run.check.branches[1].steps == 2);
    CHECK(std::isfinite(run.check.branches[2].loss));
  });
}

TEST_CASE("a check tries twice and four times the batch, as far as they are allowed", "[check]") {
  Reference const reference("llama-gqa");
  Config config = checking(reference);
  std::int64_t const length = config.model.seq_len;
  auto const request = [&](std::int64_t batch, std::int64_t left = -1) {
    return check_request(config, kLayouts[1], kMicro, batch, left);
  };
  CHECK(request(8).batches == std::vector<std::int64_t>{8, 16, 32});
  CHECK(request(8).samples == 16 * 32);
  CHECK(request(8).refused.empty());
  CHECK(request(12).batches == std::vector<std::int64_t>{12, 24});
  CHECK(request(12).samples == 16 * 24);
  CHECK_THAT(request(20).refused, Catch::Contains("than 20") && Catch::Contains("batch.max 32"));
  CHECK(request(8, 16 * 32).refused.empty());
  CHECK_THAT(request(8, 16 * 32 - 1).refused, Catch::Contains("data.epochs leaves 511"));
  // Given tokens are rounded up to whole steps of the largest batch.
  config.adapt.check_tokens = 33 * length;
  CHECK(request(8).samples == 64);
  config.adapt.check_tokens = 1;
  CHECK(request(8).samples == 32);
}
