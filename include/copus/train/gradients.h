// What happens to a step's gradients between a layer's backward and the optimizer: the sums over
// ranks, in one place, and the square sums before them that the noise scale is made of.
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

// What the sums need beside the gradients; empty views where the layout has no use for them.
struct GradientBuffers {
  TensorView tied;  // the embedding's gradient from the last stage, on the first of several
  // For the noise scale (noise_scale_buffers); empty where it is not measured.
  TensorView tied_first;  // a tied embedding's gradient after the first micro-batch
  TensorView partial;     // a gradient that is partial over tp
};

class GradientSync {
 public:
  // `gradients`: flat, of this rank's shard. `queue`: the rank's, on whose thread the dp group's
  // sums and gathers run; it outlives this.
  GradientSync(const ModelConfig& model, const std::vector<Param>& table, const FlatLayout& flat,
               const Mesh& mesh, Backend& backend, const TensorView& gradients,
               const GradientBuffers& buffers, CollectiveQueue& queue);
  ~GradientSync();  // waits for what it has submitted
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Before a step of `accumulation` micro-batches. `measure`: take the square sums on the way.
  void begin(std::int64_t accumulation, bool measure);
  // The gradient of a layer (Stage::GradientReady's number) has the parts of micro-batches 0 ..
  // micro. With the last of them: sums what is partial over tp, then starts the bucket's sum over
  // dp, which goes on while earlier layers run backward.
  void layer_ready(std::int64_t micro, std::int64_t layer);
  // After all layers: the tied embedding's other part, and the end of all sums. Without ZeRO every
  // rank then has them, with it the owner of each piece.
  void finish();
  // After the update: starts to fetch the other pieces' weights from their owners, in the order in
  // which a forward reads them, and fetches the tied copy from the first stage.
  void start_gather(const TensorView& weights);
  // Returns when a layer's weights (Stage::GradientReady's number) are there; all of them.
  void await_weights(std::int64_t layer);
  void await_weights();

  // Of the last measured step, over this rank's shard, what it shares with tp or pp peers counted
  // on one of them: of the sum gradient after the first micro-batch, and after the last, before the
  // sum over dp. 0 where the point does not exist (one micro-batch, one data-parallel rank).
  double first_square() const { return first_square_; }
  double local_square() const { return local_square_; }

  // What finish and await_weights have waited for the dp group so far: its time that no computing
  // hid.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  // A parameter whose gradient is partial over tp, and the group that shares it.
  struct Partial {
    std::int64_t offset = 0, size = 0;
    bool counted = false;
    Communicator* group = nullptr;
  };
  struct Stretch {
    std::int64_t offset = 0, size = 0;
  };
  // One bucket's, in the order of the flat layout.
  struct Plan {
    Bucket bucket;
    std::int64_t layer = 0;
    bool waits_for_tied = false;    // its embedding's gradient is not complete on this stage
    std::uint64_t gather = 0;       // the queue's number of the latest
    std::vector<Partial> partials;  // and the group that shares them
    std::vector<Stretch> counted;   // whole gradients that count here: neither partial nor tied
  };
  void count(Plan& plan, const Param& param, const LocalParam& local);
  void move_tied(const TensorView& what, int from, int to, const TensorView& landing);
  void sum_partials(const Plan& plan);
  void reduce(const Plan& plan);
  double square_of(const Plan& plan);
  void measure_first(const Plan& plan);
  void measure_first_tied();

  const Mesh& mesh_;
  Backend& backend_;
  TensorView gradients_;
  GradientBuffers buffers_;
  std::int64_t head_layer_;
  std::vector<Plan> plans_;
  std::vector<std::size_t> forward_order_;  // of plans that are gathered
  const LocalParam* tied_ = nullptr;        // on the first and last of several stages
  std::int64_t accumulation_ = 1;
  bool measure_ = false;
  double first_square_ = 0.0, local_square_ = 0.0;
  double exposed_seconds_ = 0.0;
  std::uint64_t last_gather_ = 0, last_job_ = 0;  // the queue's numbers
  CollectiveQueue& queue_;
};

}  // namespace copus
