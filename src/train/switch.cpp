#include "copus/train/switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "copus/backend/ranges.h"
#include "copus/comm/vote.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/parallel/state_shard.h"
#include "copus/parallel/transfer.h"
#include "copus/state/move_state.h"
#include "copus/state/state_hash.h"
#include "copus/train/trainer.h"
#include "train/stopwatch.h"

namespace copus {

const char* name_of(SwitchPhase phase) {
  constexpr const char* kNames[kSwitchPhases] = {"plan",     "mesh",   "allocate",
                                                 "exchange", "verify", "swap"};
  return kNames[static_cast<int>(phase)];
}

// What the phases hand on.
struct Trainer::SwitchWork {
  const SwitchRequest& request;
  SwitchRecord& record;
  StateShard before, after;  // this rank's
  RankTransfer transfer;
  MemoryPlan memory;
  std::optional<Mesh> mesh;
  std::unique_ptr<Engine> engine;

  void enter(SwitchPhase phase) const {
    if (request.on_phase) request.on_phase(phase);
  }
};

std::string Trainer::plan_switch(SwitchWork& work) {
  work.enter(SwitchPhase::plan);
  const Layout& to = work.request.layout;
  std::vector<std::string> const illegal =
      illegal_reasons(config_.model, to, 0, work.request.micro);
  if (!illegal.empty()) return illegal.front();
  if (to.world() > world_->size()) {
    return fmt::format("{} needs {} ranks, the world has {}", to_string(to), to.world(),
                       world_->size());
  }
  work.before = state_shard(config_.model, layout(), world_->rank());
  work.after = state_shard(config_.model, to, world_->rank());
  work.transfer = rank_transfer(transfer_plan(config_.model, layout(), to), world_->rank());
  bool const stays = world_->rank() < to.world();
  int const pp = stays ? coord_of(to, world_->rank()).pp : 0;
  work.memory = engine_memory(config_, to, work.request.micro, pp, backend_.attention_library());
  return "";
}

// The new engine, its state still empty: where it can at the other end of the old one's buffer,
// whose gradients and activations are dead between steps.
std::string Trainer::allocate_switch(SwitchWork& work) {
  work.enter(SwitchPhase::allocate);
  SwitchRecord& record = work.record;
  std::int64_t const held = active() ? engine_->arena().buffer()->bytes() : 0;
  record.peak_bytes = held + kMoveStagingBytes;
  if (!work.mesh->active()) return "";
  record.in_place = active() && engine_->has_room_for(work.memory);
  if (!record.in_place) record.peak_bytes += work.memory.total();
  std::int64_t const asked = record.peak_bytes - held, free = work.request.free_bytes;
  if (free >= 0 && asked > free) {
    auto const bytes = [](std::int64_t n) { return human_bytes(static_cast<double>(n)); };
    return fmt::format("no room for {} beside {}: {} more are needed ({} in all), {} are free",
                       to_string(work.request.layout), to_string(layout()), bytes(asked),
                       bytes(record.peak_bytes), bytes(free));
  }
  std::int64_t const bytes = work.memory.total();
  Arena::End const other =
      active() && engine_->arena().end() == Arena::End::low ? Arena::End::high : Arena::End::low;
  work.engine = std::make_unique<Engine>(
      config_, *work.mesh, work.request.micro, backend_,
      record.in_place ? Arena(engine_->arena().buffer(), bytes, other) : Arena(backend_, bytes),
      *queue_);
  // Padding is 0 in every layout, and no copy writes it.
  const TrainState& fresh = work.engine->state();
  for (const TensorView& buffer : {fresh.master, fresh.m, fresh.v}) backend_.zero(buffer);
  return "";
}

std::string Trainer::move_for_switch(SwitchWork& work) {
  TrainState const fresh = work.engine ? work.engine->state() : TrainState{};
  MovedBytes const moved = move_state(*world_, backend_, work.transfer, state_, fresh,
                                      Landing::device, [&] { work.enter(SwitchPhase::exchange); });
  work.record.bytes_moved = moved.sent;
  work.record.bytes_local = moved.local;
  return "";
}

// Every copy of every tensor in the new layout against the one in the old.
std::string Trainer::verify_switch(SwitchWork& work) {
  std::string const before_reduction = problem_of([&] {
    work.enter(SwitchPhase::verify);
    return std::string();
  });
  TrainState const fresh = work.engine ? work.engine->state() : TrainState{};
  std::vector<std::uint64_t> sums = hash_state(config_.model, work.before, state_, false, backend_);
  std::size_t const hashes = sums.size(), params = table_.size();
  std::vector<std::uint64_t> const copies =
      hash_state(config_.model, work.after, fresh, true, backend_);
  sums.insert(sums.end(), copies.begin(), copies.end());
  sums.resize(2 * hashes + params + 2);
  for (const StateBox& held : work.after.boxes) {
    sums[2 * hashes + static_cast<std::size_t>(held.param)] +=
        static_cast<std::uint64_t>(held.box.numel());
  }
  sums[2 * hashes + params] = static_cast<std::uint64_t>(work.record.bytes_moved);
  sums[2 * hashes + params + 1] = static_cast<std::uint64_t>(work.record.bytes_local);
  // world: the hashes of the old layout, of all copies in the new one, how many elements those
  // are, and the bytes.
  world_->all_reduce(std::span<std::uint64_t>(sums), ReduceOp::sum);
  work.record.bytes_moved = static_cast<std::int64_t>(sums[2 * hashes + params]);
  work.record.bytes_local = static_cast<std::int64_t>(sums[2 * hashes + params + 1]);
  work.record.state_hash =
      join_hashes({sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(hashes)});
  if (!before_reduction.empty()) return before_reduction;
  for (std::size_t i = 0; i < hashes; ++i) {
    std::size_t const p = i % params;
    auto const numel = static_cast<std::uint64_t>(table_[p].numel());
    std::uint64_t const held = sums[2 * hashes + p];
    if (held % numel != 0 || sums[i] * (held / numel) != sums[hashes + i]) {
      const char* const part[] = {"weights", "m", "v"};
      return fmt::format("{} ({}) did not arrive as it was", table_[p].name, part[i / params]);
    }
  }
  return "";
}

void Trainer::swap_engines(SwitchWork& work) {
  work.enter(SwitchPhase::swap);
  std::unique_ptr<Engine> old = std::move(engine_);
  mesh_ = *work.mesh;
  micro_ = work.request.micro;
  memory_ = work.memory;
  state_.counters.gns.layout_changed();
  adopt(std::move(work.engine));
  if (active()) engine_->take_master();
  old.reset();
}

// Runs the phases; each goes on to the next only if it went well on every rank.
bool Trainer::make_ready(SwitchWork& work) {
  auto const phase = [&](SwitchPhase p, const auto& body) {
    Range const range("switch", name_of(p));
    Stopwatch const watch(work.record.seconds[static_cast<int>(p)]);
    std::string const problem = first_problem(*world_, problem_of(body));
    if (!problem.empty()) work.record.refused = fmt::format("{}: {}", name_of(p), problem);
    return problem.empty();
  };
  auto const fetch_mesh = [&] {
    std::string const problem = problem_of([&] {
      work.enter(SwitchPhase::mesh);
      return std::string();
    });
    work.mesh = meshes_.fetch(work.request.layout);  // collective: whatever happened here
    return problem;
  };
  return phase(SwitchPhase::plan, [&] { return plan_switch(work); }) &&
         phase(SwitchPhase::mesh, fetch_mesh) &&
         phase(SwitchPhase::allocate, [&] { return allocate_switch(work); }) &&
         phase(SwitchPhase::exchange, [&] { return move_for_switch(work); }) &&
         phase(SwitchPhase::verify, [&] { return verify_switch(work); });
}

SwitchRecord Trainer::switch_to(const SwitchRequest& request) {
  SwitchRecord record;
  record.from = layout(), record.to = request.layout;
  record.micro_from = micro_, record.micro_to = request.micro;
  double seconds = 0.0;
  Stopwatch const total(seconds);
  // What is fetched late must not land in the new engine's memory.
  if (active()) engine_->await_weights();
  SwitchWork work{request, record, {}, {}, {}, {}, {}, {}};
  if (make_ready(work)) {
    Range const range("switch", name_of(SwitchPhase::swap));
    Stopwatch const watch(record.seconds[static_cast<int>(SwitchPhase::swap)]);
    swap_engines(work);
  } else if (active()) {
    // The new state may have lain over the old engine's constants.
    engine_->prepare();
  }
  record.total_seconds = total.elapsed();
  return record;
}

}  // namespace copus
