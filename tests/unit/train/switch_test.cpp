// Switches between two steps: the same run as without them, or nothing at all.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "copus/parallel/state_shard.h"
#include "copus/train/metrics.h"
#include "support/layout_run.h"

using namespace copus;
using copus::test::Reference;
using copus::test::StepNumbers;

namespace {

// The address sanitizer keeps what is freed, to find uses of it.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kFreedMemoryReturns = false;
#else
constexpr bool kFreedMemoryReturns = true;
#endif

SwitchRequest to(const Layout& layout, std::int64_t micro = 1) {
  SwitchRequest request;
  request.layout = layout;
  request.micro = micro;
  return request;
}

// The bits of what a rank holds, in the order of its buffers.
std::vector<float> bits_of(Trainer& trainer) {
  std::vector<float> all;
  if (!trainer.active()) return all;
  for (const TensorView& view : {trainer.state().master, trainer.state().m, trainer.state().v}) {
    auto const part = view.span<float>();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::int64_t entries(const char* folder) {
  std::int64_t n = 0;
  for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}

// Elements of one buffer that each rank has to receive, by looking at every element of every rank.
std::int64_t missing_elements(const ModelConfig& model, const Layout& before, const Layout& after) {
  using Element = std::pair<int, std::int64_t>;
  std::vector<Param> const table = parameter_table(model);
  auto const held = [&](const Layout& layout, int rank) {
    std::set<Element> elements;
    for (const StateBox& part : state_shard(model, layout, rank).boxes) {
      const Box& box = part.box;
      for (std::int64_t r = box.begin[0]; r < box.begin[0] + box.size[0]; ++r) {
        for (std::int64_t c = box.begin[1]; c < box.begin[1] + box.size[1]; ++c)
          elements.insert(
              {part.param, r * table[static_cast<std::size_t>(part.param)].size[1] + c});
      }
    }
    return elements;
  };
  std::int64_t missing = 0;
  for (int rank = 0; rank < after.world(); ++rank) {
    std::set<Element> const old = held(before, rank);
    for (const Element& element : held(after, rank)) missing += old.count(element) == 0 ? 1 : 0;
  }
  return missing;
}

}  // namespace

TEST_CASE("G8, S12: a ring of seven layouts gives the reference's losses and norms at every step",
          "[switch]") {
  for (const char* name : test::kReferenceNames) {
    for (std::size_t kept : {std::size_t{2}, std::size_t{0}}) {
      Reference const reference(name);
      CAPTURE(name, kept);
      std::mutex mutex;
      run_ranks(4, [&](int, Communicator& world) {
        StepNumbers const numbers =
            test::run_reference(world, reference, test::ring_of_layouts(), 1, kept);
        std::lock_guard const lock(mutex);
        CHECK(numbers.switches.size() == 7);
        CHECK(test::deviations(reference, numbers) == std::vector<std::string>{});
      });
    }
  }
}

TEST_CASE(
    "R10, R12, R13, R15, G9: from any layout to any other, to and fro, no bit of the state changes",
    "[switch]") {
  std::vector<Layout> const layouts = {
      {1, 1, 1},       {2, 2, 1, 1, 1},       {1, 2, 2, 1, 0, true}, {3, 1, 1, 1, 1},
      {1, 4, 1, 1, 0}, {1, 1, 2, 1, 1},       {1, 1, 3, 1, 0},       {5, 1, 1, 1, 1},
      {2, 1, 2, 1, 1}, {1, 1, 2, 2, 0, true}, {7, 1, 1, 1, 1}};
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    Config const config = reference.config(1);
    std::vector<Layout> legal;
    for (const Layout& layout : layouts) {
      if (illegal_reasons(config.model, layout, 0, 1).empty()) legal.push_back(layout);
    }
    REQUIRE(legal.size() >= 9);
    std::mutex mutex;
    run_ranks(7, [&](int rank, Communicator& world) {
      auto const backend = make_cpu_backend(1);
      Trainer trainer(config, world, legal.front(), 1, *backend);
      trainer.read_weights(HfModel(reference.directory, config.model));
      for (int s = 0; s < 2; ++s) trainer.step(test::samples_of(reference), 8);
      for (const Layout& a : legal) {
        SwitchRecord const here = trainer.switch_to(to(a));
        std::vector<float> const before = bits_of(trainer);
        std::uint64_t hash = 0;
        for (const Layout& b : legal) {
          SwitchRecord const there = trainer.switch_to(to(b)), back = trainer.switch_to(to(a));
          std::lock_guard const lock(mutex);
          CAPTURE(name, rank, to_string(a), to_string(b));
          CHECK((here.refused.empty() && there.refused.empty() && back.refused.empty()));
          CHECK(there.state_hash == back.state_hash);
          CHECK((hash == 0 || hash == there.state_hash));
          hash = there.state_hash;
          CHECK(same_bits(bits_of(trainer), before));
        }
      }
    });
  }
}

TEST_CASE("what a switch sends is what the new shards hold and the old did not", "[switch]") {
  Reference const reference("llama-tied");
  Config const config = reference.config(1);
  std::vector<Layout> const ring = test::ring_of_layouts();
  std::mutex mutex;
  run_ranks(4, [&](int, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, ring.front(), 1, *backend);
    trainer.draw_weights(1);
    for (std::size_t i = 1; i < ring.size(); ++i) {
      SwitchRecord const record = trainer.switch_to(to(ring[i]));
      std::lock_guard const lock(mutex);
      CAPTURE(to_string(ring[i - 1]), to_string(ring[i]));
      CHECK(record.bytes_moved == 3 * 4 * missing_elements(config.model, ring[i - 1], ring[i]));
    }
    SwitchRecord const nowhere = trainer.switch_to(to(ring.back()));
    std::lock_guard const lock(mutex);
    CHECK(nowhere.bytes_moved == 0);
  });
}

TEST_CASE(
    "a failure in any phase on any rank leaves the old layout training, bit for bit, and says why",
    "[switch]") {
  Reference const reference("qwen2");
  Config const config = reference.config(1);
  Layout const old{2, 2, 1, 1, 1}, other{1, 2, 2, 1, 0, true}, smaller{2, 1, 1, 1, 0};
  std::vector<double> plain;
  run_ranks(4, [&](int rank, Communicator& world) {
    StepNumbers const numbers = test::run_reference(world, reference, {old}, 1);
    if (rank == 0) plain = numbers.losses;
  });
  std::mutex mutex;
  for (const Layout& target : {other, smaller}) {
    run_ranks(4, [&](int rank, Communicator& world) {
      auto const backend = make_cpu_backend(1);
      Trainer trainer(config, world, old, 1, *backend);
      trainer.read_weights(HfModel(reference.directory, config.model));
      std::vector<double> losses;
      auto const attempt = [&](SwitchPhase phase, int failing) {
        std::vector<float> const before = bits_of(trainer);
        SwitchRequest request = to(target);
        request.on_phase = [&](SwitchPhase now) {
          if (now == phase && rank == failing) throw std::runtime_error("made to fail");
        };
        SwitchRecord const record = trainer.switch_to(request);
        std::lock_guard const lock(mutex);
        CAPTURE(name_of(phase), failing, rank);
        CHECK(record.refused == fmt::format("{}: rank {}: made to fail", name_of(phase), failing));
        CHECK(trainer.layout() == old);
        CHECK(same_bits(bits_of(trainer), before));
      };
      for (int s = 0; s < 8; ++s) {
        for (SwitchPhase phase : {SwitchPhase::plan, SwitchPhase::mesh, SwitchPhase::allocate,
                                  SwitchPhase::exchange, SwitchPhase::verify}) {
          if (s == static_cast<int>(phase) + 1)
            for (int failing = 0; failing < 4; ++failing) attempt(phase, failing);
        }
        losses.push_back(trainer.step(test::samples_of(reference), 8).loss);
      }
      // And it is none the worse for it.
      SwitchRecord const at_last = trainer.switch_to(to(target));
      std::lock_guard const lock(mutex);
      CHECK(losses == plain);
      CHECK(at_last.refused.empty());
    });
  }
}

TEST_CASE("state that arrives other than it was is noticed, and the old layout goes on",
          "[switch]") {
  Reference const reference("llama-tied");
  Config const config = reference.config(1);
  std::mutex mutex;
  run_ranks(4, [&](int rank, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, {4, 1, 1, 1, 1}, 1, *backend);
    trainer.draw_weights(1);
    trainer.step(test::samples_of(reference), 8);
    SwitchRequest request = to({1, 1, 4});
    request.on_phase = [&](SwitchPhase now) {
      // One of rank 1's moments differs from what the peers have received.
      if (now == SwitchPhase::verify && rank == 1) trainer.state().m.ptr<float>()[3] += 1.0f;
    };
    SwitchRecord const record = trainer.switch_to(request);
    std::lock_guard const lock(mutex);
    CAPTURE(record.refused);
    CHECK(record.refused.find("verify: rank 0: ") == 0);
    CHECK(record.refused.find("(m) did not arrive as it was") != std::string::npos);
    CHECK(trainer.layout() == Layout{4, 1, 1, 1, 1});
  });
}

TEST_CASE("a switch that cannot fit, or cannot be, is refused with the figures", "[switch]") {
  Reference const reference("llama-tied");
  Config const config = reference.config(1);
  std::mutex mutex;
  run_ranks(4, [&](int, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, {2, 2, 1, 1, 1}, 1, *backend);
    trainer.draw_weights(1);
    SwitchRequest request = to({1, 1, 1});  // rank 0 needs a larger arena
    request.free_bytes = 1 << 20;
    SwitchRecord const record = trainer.switch_to(request);
    SwitchRecord const absurd = trainer.switch_to(to({8, 1, 1, 1, 1}));
    SwitchRecord const illegal = trainer.switch_to(to({1, 3, 1}));
    std::lock_guard const lock(mutex);
    CAPTURE(record.refused, absurd.refused, illegal.refused);
    CHECK(record.refused.find("allocate: rank 0: no room for dp 1 x tp 1 x pp 1") == 0);
    CHECK(record.refused.find("1.00 MiB are free") != std::string::npos);
    CHECK(absurd.refused.find("plan: rank 0: dp 8 x tp 1 x pp 1, zero 1 needs 8 ranks") == 0);
    CHECK(illegal.refused.find("plan: rank 0: ") == 0);
    CHECK(trainer.layout() == Layout{2, 2, 1, 1, 1});
  });
}

TEST_CASE(
    "C1-C4, G8: fifty random switches keep the hash, the samples, memory, descriptors and threads",
    "[switch]") {
  Reference const reference("llama-gqa");
  Config const config = reference.config(1);
  std::vector<Layout> const layouts = test::ring_of_layouts();
  if (!kFreedMemoryReturns) WARN("memory is not looked at: this is the address sanitizer's build");
  for (std::size_t kept : {Trainer::kKeptMeshes, std::size_t{0}}) {
    std::mutex mutex;
    run_ranks(4, [&](int rank, Communicator& world) {
      auto const backend = make_cpu_backend(1);
      Trainer trainer(config, world, layouts.front(), 1, *backend, kept);
      trainer.draw_weights(1);
      std::vector<std::int64_t> drawn;
      SampleSource const samples = [&](std::int64_t index, std::span<std::int32_t> inputs,
                                       std::span<std::int32_t> targets) {
        drawn.push_back(index);
        reference.sample(index % reference.windows(), inputs, targets);
      };
      RngStream const dice = stream_of({9, RngPurpose::test, 0, 0});
      std::int64_t threads = 0, descriptors = 0, memory = 0;
      for (std::uint64_t i = 0; i < 50; ++i) {
        std::size_t const next = random_bits(dice, i) % layouts.size();
        SwitchRecord const there = trainer.switch_to(to(layouts[next]));
        drawn.clear();
        std::int64_t const position = trainer.state().counters.samples;
        trainer.step(samples, 8);
        SwitchRecord const same = trainer.switch_to(to(layouts[next]));
        {
          std::lock_guard const lock(mutex);
          CAPTURE(i, to_string(layouts[next]));
          CHECK((there.refused.empty() && same.refused.empty()));
          CHECK(there.state_hash != same.state_hash);  // a step lies between
          CHECK(trainer.state().counters.samples == position + 8);
          if (trainer.active()) {
            std::int64_t const share = 8 / trainer.layout().dp;
            REQUIRE(static_cast<std::int64_t>(drawn.size()) == share);
            for (std::int64_t k = 0; k < share; ++k)
              CHECK(drawn[static_cast<std::size_t>(k)] ==
                    position + trainer.mesh().coord().dp * share + k);
          }
        }
        world.barrier();
        if (rank == 0 && i == 9) {
          threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
          memory = peak_memory_bytes();
        }
        if (rank == 0 && i == 49) {
          std::lock_guard const lock(mutex);
          // A rank's queue thread comes with its first sum over dp, perhaps later than here.
          CHECK(std::abs(entries("/proc/self/task") - threads) <= 4);
          CHECK(entries("/proc/self/fd") == descriptors);
          // The peak after ten switches holds: allocators keep a few MiB.
          if (kFreedMemoryReturns) CHECK(peak_memory_bytes() - memory < (8 << 20));
        }
        world.barrier();
      }
    });
  }
}

TEST_CASE("micro-batch, batch, virtual stages and ZeRO change together with the layout",
          "[switch]") {
  Reference const reference("llama-tied");
  Config config = reference.config(2);
  config.batch.max = 16;
  SampleSource const samples = test::samples_of(reference);
  struct Part {
    Layout layout;
    std::int64_t micro, batch;
  };
  std::vector<Part> const parts = {{{1, 1, 1}, 4, 8},
                                   {{2, 1, 2, 2, 1}, 2, 16},
                                   {{1, 2, 2, 1, 0}, 1, 4},
                                   {{4, 1, 1, 1, 1}, 1, 12},
                                   {{1, 1, 2, 2, 0}, 4, 8}};
  std::vector<double> single, switching;
  run_ranks(1, [&](int, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, Layout{}, 1, *backend);
    trainer.draw_weights(3);
    for (const Part& part : parts) {
      StepRecord const record = trainer.step(samples, part.batch);
      single.insert(single.end(), {record.loss, record.grad_norm});
    }
  });
  run_ranks(4, [&](int rank, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, parts.front().layout, parts.front().micro, *backend);
    trainer.draw_weights(3);
    for (const Part& part : parts) {
      SwitchRecord const there = trainer.switch_to(to(part.layout, part.micro));
      StepRecord const record = trainer.step(samples, part.batch);
      if (rank == 0) {
        CHECK(there.refused == "");
        switching.insert(switching.end(), {record.loss, record.grad_norm});
      }
    }
  });
  REQUIRE(switching.size() == single.size());
  for (std::size_t i = 0; i < single.size(); ++i)
    CHECK(switching[i] == Approx(single[i]).epsilon(i % 2 == 0 ? test::kLoss : test::kNorm));
}
