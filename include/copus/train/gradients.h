// What happens to a step's gradients between the last backward and the optimizer: the sums over
// ranks, in one place.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/mesh.h"
#include "copus/parallel/params.h"

namespace copus {

// A stretch of the flat buffers that this rank updates, and where its master, m and v lie.
struct Owned {
  std::int64_t flat = 0, state = 0, size = 0;  // elements
};
// Whole buckets without ZeRO; this rank's piece of each, one behind the other in the state buffers,
// with it. A tied copy is nobody's.
std::vector<Owned> owned_stretches(const FlatLayout& flat, const Layout& layout, int dp_rank);
// Whether master, m and v are cut over the data-parallel group.
inline bool state_is_cut(const Layout& layout) {
  return layout.zero > 0 && layout.dp > 1;
}

class GradientSync {
 public:
  // `tied_buffer`: room for the embedding's gradient on the first of several stages, else empty.
  GradientSync(const ModelConfig& model, const std::vector<Param>& table, const FlatLayout& flat,
               Mesh& mesh, Backend& backend, const TensorView& tied_buffer);

  // Sums `gradients` over tp where it is partial, adds the last stage's part of a tied embedding,
  // then sums over dp: everywhere without ZeRO, in the owned pieces alone with it.
  void reduce(const TensorView& gradients);
  // After the update: the other pieces' weights from their owners, and the tied copy from the first
  // stage.
  void gather(const TensorView& weights);

 private:
  // A parameter whose gradient is partial over tp, and the group that shares it.
  struct Partial {
    std::int64_t offset = 0, size = 0;
    Communicator* group = nullptr;
  };
  void move_tied(const TensorView& flat, int from, int to, const TensorView& landing);

  const FlatLayout& flat_;
  Mesh& mesh_;
  Backend& backend_;
  TensorView tied_buffer_;
  std::vector<Partial> partials_;
  const LocalParam* tied_ = nullptr;  // on the first and last of several stages
};

}  // namespace copus
