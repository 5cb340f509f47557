// What happens to a step's gradients between a layer's last backward and the optimizer: the sums
// over ranks, in one place.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/collective_queue.h"
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
  // `gradients`: flat, of this rank's shard. `tied_buffer`: room for the embedding's gradient on
  // the first of several stages, else empty.
  GradientSync(const ModelConfig& model, const std::vector<Param>& table, const FlatLayout& flat,
               const Mesh& mesh, Backend& backend, const TensorView& gradients,
               const TensorView& tied_buffer);

  // To be called when the gradient of a layer (Stage::GradientReady's number) has its last
  // addition: sums what is partial over tp, then starts the bucket's sum over dp, which goes on
  // while earlier layers run backward.
  void start(std::int64_t layer);
  // After all layers: the tied embedding's other part, and the end of all sums. Without ZeRO every
  // rank then has them, with it the owner of each piece.
  void finish();
  // After the update: the other pieces' weights from their owners, and the tied copy from the first
  // stage.
  void gather(const TensorView& weights);

  // What finish and gather have waited for the dp group so far: its time that no computing hid.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  // A parameter whose gradient is partial over tp, and the group that shares it.
  struct Partial {
    std::int64_t offset = 0, size = 0;
    int bucket = 0;
    Communicator* group = nullptr;
  };
  void move_tied(const TensorView& flat, int from, int to, const TensorView& landing);
  bool waits_for_tied(const Bucket& bucket) const;
  void reduce(const Bucket& bucket);

  const FlatLayout& flat_;
  const Mesh& mesh_;
  Backend& backend_;
  TensorView gradients_, tied_buffer_;
  std::vector<std::int64_t> layer_of_;  // by bucket
  std::vector<Partial> partials_;
  const LocalParam* tied_ = nullptr;  // on the first and last of several stages
  double exposed_seconds_ = 0.0;
  CollectiveQueue queue_;
};

}  // namespace copus
