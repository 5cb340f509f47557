#include "train/run_checkpoint.h"

#include <exception>
#include <type_traits>
#include <utility>

#include "copus/core/error.h"
#include "copus/state/move_state.h"

namespace copus {
namespace {

// The state of the whole model on rank 0, as a run of one rank would hold it; empty on the others.
struct WholeState {
  FlatLayout flat;
  std::vector<float> master, m, v;

  WholeState(const ModelConfig& model, bool here) : flat(flat_layout(model, Layout{}, 0, 0)) {
    if (!here) return;
    for (std::vector<float>* buffer : {&master, &m, &v})
      buffer->resize(static_cast<std::size_t>(flat.state_numel));
  }
  TrainState views(const Counters& counters) {
    auto const view = [](std::vector<float>& x) {
      return TensorView(x.data(), DType::f32, {static_cast<std::int64_t>(x.size())});
    };
    return {view(master), view(m), view(v), counters};
  }
};

// Rank 0 works on files; the others learn whether it went well, and leave the telling to it if not.
void agree(Communicator& world, const std::exception_ptr& failure) {
  double failed = failure ? 1.0 : 0.0;
  world.all_reduce(std::span(&failed, 1), ReduceOp::max);
  if (failure) std::rethrow_exception(failure);
  if (failed > 0.0) throw ConfigError(std::vector<std::string>{});
}

// Rank 0's counters become everybody's.
void share(Communicator& world, Counters& counters) {
  static_assert(std::is_trivially_copyable_v<Counters> && sizeof(Counters) % 4 == 0);
  world.broadcast({&counters, DType::i32, {static_cast<std::int64_t>(sizeof(Counters) / 4)}}, 0);
}

}  // namespace

SavedCheckpoint save_run(const std::string& run_dir, const ModelConfig& model, Trainer& trainer,
                         const TokenizerIdentity& tokenizer, std::int64_t keep) {
  Communicator& world = trainer.world();
  int const rank = world.rank();
  TrainState state = trainer.state();
  bool const several = trainer.layout().world() > 1;
  WholeState whole(model, rank == 0 && several);
  if (several) {
    RankTransfer const transfer =
        rank_transfer(transfer_plan(model, trainer.layout(), Layout{}), rank);
    TrainState const gathered = whole.views(state.counters);
    move_state(world, transfer, state, gathered);
    state = gathered;
  }
  FlatReader const read = several ? host_reader(state) : backend_reader(trainer.backend(), state);
  SavedCheckpoint saved;
  std::exception_ptr failure;
  if (rank == 0) {
    try {
      saved = save_checkpoint(run_dir, {model, trainer.table(), whole.flat}, state.counters, read,
                              tokenizer, keep);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  agree(world, failure);
  return saved;
}

void load_run(const std::string& directory, const ModelConfig& model, Trainer& trainer) {
  Communicator& world = trainer.world();
  int const rank = world.rank();
  bool const several = trainer.layout().world() > 1;
  WholeState whole(model, rank == 0 && several);
  TrainState target = several ? whole.views({}) : trainer.state();
  std::uint64_t const seed = trainer.state().counters.seed;
  Counters counters;
  std::exception_ptr failure;
  if (rank == 0) {
    try {
      counters = load_train_state(
          directory, {model, trainer.table(), whole.flat},
          several ? host_writer(target) : backend_writer(trainer.backend(), target));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  agree(world, failure);
  share(world, counters);
  counters.seed = seed;
  if (several) {
    RankTransfer const transfer =
        rank_transfer(transfer_plan(model, Layout{}, trainer.layout()), rank);
    move_state(world, transfer, target, trainer.state());
  }
  trainer.state().counters = counters;
  trainer.take_master();
}

}  // namespace copus
