// The noise scale's norms inside a step: at any layout what one rank sees with batches that small.
#include <catch2/catch.hpp>
#include <cstring>
#include <mutex>

#include "support/layout_run.h"
#include "support/single_rank.h"

using namespace copus;
using copus::test::Reference;

namespace {

Config measuring(const Reference& reference, std::int64_t micro) {
  Config config = reference.config(micro);
  config.adapt.mode = AdaptMode::log;
  config.gns.every_steps = 1;
  return config;
}

// The squared norm of the mean gradient of `count` windows from `first` on: a step of its own on
// one rank.
double square_of(const Reference& reference, std::int64_t first, std::int64_t count) {
  auto const backend = make_cpu_backend(1);
  test::SingleRank rank;
  Config config = reference.config(1);
  config.batch.max = 16;
  Trainer trainer(config, *rank.world, Layout{}, 1, *backend);
  trainer.read_weights(HfModel(reference.directory, config.model));
  trainer.state().counters.samples = first;
  double const norm = trainer.step(test::samples_of(reference), count).grad_norm;
  return norm * norm;
}

NormPoint mean_of(const Reference& reference, std::int64_t parts, std::int64_t apart,
                  std::int64_t size) {
  NormPoint point{0.0, 1.0 / static_cast<double>(size), static_cast<double>(parts)};
  for (std::int64_t d = 0; d < parts; ++d)
    point.square += square_of(reference, d * apart, size) / static_cast<double>(parts);
  return point;
}

// What the first step (of 8 windows) must measure, from steps of one rank.
StepNorms expected_norms(const Reference& reference, std::int64_t dp, std::int64_t micro) {
  StepNorms norms;
  std::int64_t const share = 8 / dp;
  if (share > micro) norms.first = mean_of(reference, dp, share, micro);
  if (dp > 1) norms.local = mean_of(reference, dp, share, share);
  norms.whole = mean_of(reference, 1, 8, 8);
  return norms;
}

GnsReading first_step(const Reference& reference, const Layout& layout, std::int64_t micro) {
  GnsReading reading;
  run_ranks(layout.world(), [&](int rank, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(measuring(reference, micro), world, layout, micro, *backend);
    trainer.read_weights(HfModel(reference.directory, reference.config(1).model));
    StepRecord const record = trainer.step(test::samples_of(reference), 8);
    if (rank == 0) reading = record.gns.value();
  });
  return reading;
}

}  // namespace

TEST_CASE(
    "G2, G3: a step's raw pair is that of one rank's batches, at any layout, counting all once",
    "[noise]") {
  std::vector<Layout> const layouts = {
      {1, 1, 1},       {1, 2, 1, 1, 0},       {1, 2, 1, 1, 0, true}, {1, 1, 2, 1, 0},
      {1, 2, 2, 1, 0}, {1, 4, 1, 1, 0, true}, {2, 1, 1, 1, 0},       {2, 1, 1, 1, 1},
      {2, 2, 1, 1, 1}, {2, 2, 1, 1, 0, true}, {2, 1, 2, 1, 1},       {2, 2, 2, 1, 1, true},
      {4, 1, 1, 1, 1}, {8, 1, 1, 1, 1},       {1, 1, 2, 2, 0}};
  int compared = 0;
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    std::map<std::pair<int, std::int64_t>, StepNorms> known;
    for (const Layout& layout : layouts) {
      for (std::int64_t micro : {1, 2, 4}) {
        if (!test::legal(reference, layout, micro) || layout.dp * micro >= 8) continue;
        auto const key = std::pair(layout.dp, micro);
        if (known.count(key) == 0) known[key] = expected_norms(reference, layout.dp, micro);
        LineFit const right = fit_line(known[key]).value();
        GnsReading const got = first_step(reference, layout, micro);
        CAPTURE(name, to_string(layout), layout.sequence_parallel, micro);
        // Differences of norms of which each is right to the steps' own 1e-6.
        double const scale = known[key].whole.square + std::abs(right.trace);
        CHECK(std::abs(got.trace_step.value() - right.trace) < 1e-5 * scale);
        CHECK(std::abs(got.signal_step.value() - right.signal) < 1e-5 * scale);
        ++compared;
      }
    }
  }
  CHECK(compared > 100);
}

TEST_CASE("G10: measuring the noise scale changes no bit of training, on any layout", "[noise]") {
  for (const char* name : {"llama-tied", "gpt2"}) {
    Reference const reference(name);
    for (Layout const& layout :
         {Layout{}, Layout{2, 2, 1, 1, 1, true}, Layout{1, 2, 2, 1, 0}, Layout{2, 1, 2, 1, 0}}) {
      std::vector<std::vector<float>> seen;
      for (AdaptMode mode : {AdaptMode::off, AdaptMode::log}) {
        std::vector<float> bits;
        std::mutex mutex;
        run_ranks(layout.world(), [&](int rank, Communicator& world) {
          Config config = measuring(reference, 1);
          config.adapt.mode = mode;
          auto const backend = make_cpu_backend(1);
          Trainer trainer(config, world, layout, 1, *backend);
          trainer.read_weights(HfModel(reference.directory, config.model));
          int measured = 0;
          for (int s = 0; s < 4; ++s)
            measured += trainer.step(test::samples_of(reference), 8).gns.has_value() ? 1 : 0;
          std::lock_guard const lock(mutex);
          CHECK(measured == (mode == AdaptMode::log ? 4 : 0));
          if (rank != 0) return;
          auto const master = trainer.state().master.span<float>();
          bits.assign(master.begin(), master.end());
        });
        seen.push_back(bits);
      }
      CAPTURE(name, to_string(layout));
      REQUIRE(seen[0].size() == seen[1].size());
      CHECK(std::memcmp(seen[0].data(), seen[1].data(), seen[0].size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("the noise scale is measured every gns.every_steps, and one micro-batch in all says so",
          "[noise]") {
  Reference const reference("qwen2");
  Config config = measuring(reference, 2);
  config.gns.every_steps = 3;
  auto const backend = make_cpu_backend(1);
  test::SingleRank rank;
  Trainer trainer(config, *rank.world, Layout{}, 2, *backend);
  trainer.draw_weights(1);
  for (int step = 1; step <= 7; ++step) {
    StepRecord const record = trainer.step(test::samples_of(reference), 8);
    CHECK(record.gns.has_value() == (step % 3 == 0));
  }
  trainer.step(test::samples_of(reference), 2);
  StepRecord const alone = trainer.step(test::samples_of(reference), 2);
  REQUIRE(alone.gns.has_value());
  CHECK(alone.gns->state == GnsState::unresolved);
  CHECK(alone.gns->reason.find("one micro-batch") != std::string::npos);
}

TEST_CASE(
    "G4, G8: switches carry the noise scale's memory, on idle ranks too; skipped steps do not "
    "enter it",
    "[noise]") {
  Reference const reference("llama-gqa");
  std::mutex mutex;
  run_ranks(4, [&](int, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(measuring(reference, 1), world, {1, 1, 1}, 1, *backend);
    trainer.read_weights(HfModel(reference.directory, reference.config(1).model));
    for (int s = 0; s < 3; ++s) trainer.step(test::samples_of(reference), 8);
    GnsHistory const before = trainer.state().counters.gns;
    SwitchRequest request;
    request.layout = {2, 2, 1, 1, 1};
    SwitchRecord const there = trainer.switch_to(request);
    GnsHistory const after = trainer.state().counters.gns;
    trainer.step(test::samples_of(reference), 8);
    GnsHistory const next = trainer.state().counters.gns;
    for (float& weight : trainer.state().master.span<float>())
      weight = std::numeric_limits<float>::quiet_NaN();
    trainer.take_master();
    StepRecord const skipped = trainer.step(test::samples_of(reference), 8);
    std::lock_guard const lock(mutex);
    CHECK(there.refused == "");
    CHECK(before.estimates == 3);
    CHECK((after.trace == before.trace && after.signal == before.signal && after.estimates == 3 &&
           after.weight == before.weight));
    CHECK(next.estimates == 4);
    CHECK(!skipped.skip_reason.empty());
    CHECK(!skipped.gns.has_value());
    CHECK(trainer.state().counters.gns == next);
  });
}
