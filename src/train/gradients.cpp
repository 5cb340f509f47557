#include "copus/train/gradients.h"

#include "train/stopwatch.h"

namespace copus {
namespace {

bool is_norm(Role role) {
  return role == Role::norm1 || role == Role::norm1_bias || role == Role::norm2 ||
         role == Role::norm2_bias || role == Role::final_norm || role == Role::final_norm_bias;
}

bool is_kv(Role role) {
  return role == Role::k || role == Role::v || role == Role::k_bias || role == Role::v_bias;
}

}  // namespace

std::vector<Owned> owned_stretches(const FlatLayout& flat, const Layout& layout, int dp_rank) {
  std::vector<Owned> owned;
  std::int64_t state = 0;
  for (const Bucket& bucket : flat.buckets) {
    if (bucket.tied_copy) continue;
    Bucket const mine = state_is_cut(layout) ? owned_piece(bucket, layout, dp_rank) : bucket;
    owned.push_back({mine.offset, state_is_cut(layout) ? state : mine.offset, mine.size});
    state += mine.size;
  }
  return owned;
}

GradientSync::GradientSync(const ModelConfig& model, const std::vector<Param>& table,
                           const FlatLayout& flat, const Mesh& mesh, Backend& backend,
                           const TensorView& gradients, const TensorView& tied_buffer)
    : flat_(flat),
      mesh_(mesh),
      backend_(backend),
      gradients_(gradients),
      tied_buffer_(tied_buffer),
      layer_of_(flat.buckets.size()) {
  for (const LocalParam& local : flat.params) {
    const Param& param = table[static_cast<std::size_t>(local.param)];
    layer_of_[static_cast<std::size_t>(local.bucket)] = bucket_layer(model, param);
    // tp: a norm saw this rank's rows alone. kv replicas: each copy served its own query heads.
    if (is_norm(param.role) && mesh.layout().sequence_parallel) {
      partials_.push_back({local.offset, local.numel(), local.bucket, &mesh.tp()});
    } else if (is_kv(param.role) && local.replicas > 1) {
      partials_.push_back({local.offset, local.numel(), local.bucket, &mesh.kv_replicas()});
    }
  }
  if (model.tie_embeddings && mesh.layout().pp > 1) tied_ = flat.find(table, Role::embed, -1);
}

bool GradientSync::waits_for_tied(const Bucket& bucket) const {
  return tied_ != nullptr && mesh_.coord().pp == 0 && tied_->offset >= bucket.offset &&
         tied_->offset < bucket.offset + bucket.size;
}

void GradientSync::start(std::int64_t layer) {
  for (std::size_t b = 0; b < flat_.buckets.size(); ++b) {
    const Bucket& bucket = flat_.buckets[b];
    if (layer_of_[b] != layer || bucket.tied_copy) continue;
    for (const Partial& partial : partials_) {
      if (partial.bucket != static_cast<int>(b)) continue;
      partial.group->all_reduce(gradients_.slice(0, partial.offset, partial.size), ReduceOp::sum);
    }
    if (!waits_for_tied(bucket)) reduce(bucket);
  }
}

void GradientSync::reduce(const Bucket& bucket) {
  if (mesh_.dp().size() == 1) return;
  TensorView const whole = gradients_.slice(0, bucket.offset, bucket.size);
  backend_.synchronize();  // the queue's thread reads what this one has computed
  // dp: the same shard's gradients of other samples. All its ranks run the same backward order.
  if (state_is_cut(mesh_.layout())) {
    Bucket const mine = owned_piece(bucket, mesh_.layout(), mesh_.coord().dp);
    TensorView const piece = gradients_.slice(0, mine.offset, mine.size);
    queue_.submit([this, piece, whole] { mesh_.dp().reduce_scatter(piece, whole); });
  } else {
    queue_.submit([this, whole] { mesh_.dp().all_reduce(whole, ReduceOp::sum); });
  }
}

void GradientSync::move_tied(const TensorView& flat, int from, int to, const TensorView& landing) {
  if (tied_ == nullptr) return;
  // pp: first and last stage hold the two uses of one embedding.
  int const here = mesh_.coord().pp;
  if (here == from) {
    Parcel const parcel{to, flat.slice(0, tied_->offset, tied_->numel())};
    mesh_.pp().exchange({&parcel, 1}, {});
  } else if (here == to) {
    Parcel const parcel{from, landing};
    mesh_.pp().exchange({}, {&parcel, 1});
  }
}

void GradientSync::finish() {
  move_tied(gradients_, mesh_.layout().pp - 1, 0, tied_buffer_);
  if (tied_ != nullptr && mesh_.coord().pp == 0) {
    TensorView const mine = gradients_.slice(0, tied_->offset, tied_->numel());
    backend_.add(mine, mine, tied_buffer_);
    for (const Bucket& bucket : flat_.buckets) {
      if (waits_for_tied(bucket)) reduce(bucket);
    }
  }
  Stopwatch const watch(exposed_seconds_);
  queue_.wait();
}

void GradientSync::gather(const TensorView& weights) {
  if (state_is_cut(mesh_.layout())) {
    Stopwatch const watch(exposed_seconds_);
    for (const Bucket& bucket : flat_.buckets) {
      if (bucket.tied_copy) continue;
      Bucket const mine = owned_piece(bucket, mesh_.layout(), mesh_.coord().dp);
      // dp: each owner's updated piece to those that compute with it.
      mesh_.dp().all_gather(weights.slice(0, bucket.offset, bucket.size),
                            weights.slice(0, mine.offset, mine.size));
    }
  }
  if (tied_ != nullptr) {
    move_tied(weights, 0, mesh_.layout().pp - 1, weights.slice(0, tied_->offset, tied_->numel()));
  }
}

}  // namespace copus
