#include "copus/train/gradients.h"

#include <algorithm>

#include "train/stopwatch.h"

namespace copus {

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
                           const TensorView& gradients, const GradientBuffers& buffers,
                           CollectiveQueue& queue)
    : mesh_(mesh),
      backend_(backend),
      gradients_(gradients),
      buffers_(buffers),
      head_layer_(model.layers),
      queue_(queue) {
  if (model.tie_embeddings && mesh.layout().pp > 1) tied_ = flat.find(table, Role::embed, -1);
  for (const Bucket& bucket : flat.buckets)
    plans_.push_back({.bucket = bucket, .partials = {}, .counted = {}});
  for (const LocalParam& local : flat.params) {
    const Param& param = table[static_cast<std::size_t>(local.param)];
    Plan& plan = plans_[static_cast<std::size_t>(local.bucket)];
    plan.layer = bucket_layer(model, param);
    count(plan, param, local);
  }
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (!plans_[i].bucket.tied_copy) forward_order_.push_back(i);
  }
  std::stable_sort(forward_order_.begin(), forward_order_.end(),
                   [&](std::size_t a, std::size_t b) { return plans_[a].layer < plans_[b].layer; });
}

GradientSync::~GradientSync() {
  try {
    queue_.wait_for(last_job_);
  } catch (const std::exception&) {
    // Told where it was waited for, or by the failure that ends this too.
  }
}

void GradientSync::count(Plan& plan, const Param& param, const LocalParam& local) {
  if (&local == tied_) {
    plan.waits_for_tied = mesh_.coord().pp == 0;
    return;
  }
  if (is_partial_over_tp(mesh_.layout(), param, local)) {
    // What tp splits and yet repeats are kv heads.
    Communicator& group = param.split == Split::none ? mesh_.tp() : mesh_.kv_replicas();
    plan.partials.push_back({local.offset, local.numel(), local.counted, &group});
    return;
  }
  if (!local.counted) return;
  if (!plan.counted.empty() &&
      plan.counted.back().offset + plan.counted.back().size == local.offset) {
    plan.counted.back().size += local.numel();
  } else {
    plan.counted.push_back({local.offset, local.numel()});
  }
}

void GradientSync::begin(std::int64_t accumulation, bool measure) {
  accumulation_ = accumulation;
  measure_ = measure;
  first_square_ = local_square_ = 0.0;
}

void GradientSync::layer_ready(std::int64_t micro, std::int64_t layer) {
  bool const first = micro == 0 && measure_ && accumulation_ > 1;
  bool const last = micro + 1 == accumulation_;
  if (!first && !last) return;
  for (const Plan& plan : plans_) {
    if (plan.layer != layer || plan.bucket.tied_copy) continue;
    if (first) measure_first(plan);
    if (!last) continue;
    sum_partials(plan);
    if (!plan.waits_for_tied) reduce(plan);
  }
  // The last stage's use of a tied embedding is its head.
  bool const embeds = tied_ != nullptr && layer == (mesh_.coord().pp == 0 ? -1 : head_layer_);
  if (first && embeds) {
    backend_.copy(buffers_.tied_first, gradients_.slice(0, tied_->offset, tied_->numel()));
  }
}

void GradientSync::sum_partials(const Plan& plan) {
  for (const Partial& partial : plan.partials) {
    // tp, or its ranks with the same kv heads: each has a part of this gradient.
    partial.group->all_reduce(gradients_.slice(0, partial.offset, partial.size), ReduceOp::sum);
  }
}

double GradientSync::square_of(const Plan& plan) {
  double sum = 0.0;
  for (const Stretch& stretch : plan.counted)
    sum += backend_.square_sum(gradients_.slice(0, stretch.offset, stretch.size));
  return sum;
}

// Out of place: the running sums go on as they are.
void GradientSync::measure_first(const Plan& plan) {
  first_square_ += square_of(plan);
  for (const Partial& partial : plan.partials) {
    TensorView const whole = buffers_.partial.slice(0, 0, partial.size);
    backend_.copy(whole, gradients_.slice(0, partial.offset, partial.size));
    // tp, or its ranks with the same kv heads: as for the whole step.
    partial.group->all_reduce(whole, ReduceOp::sum);
    if (partial.counted) first_square_ += backend_.square_sum(whole);
  }
}

// Both stages kept theirs aside; they meet where the last exchange of the step meets anyway.
void GradientSync::measure_first_tied() {
  move_tied(buffers_.tied_first, mesh_.layout().pp - 1, 0, buffers_.tied);
  if (mesh_.coord().pp != 0) return;
  backend_.add(buffers_.tied, buffers_.tied, buffers_.tied_first);
  if (tied_->counted) first_square_ += backend_.square_sum(buffers_.tied);
}

void GradientSync::reduce(const Plan& plan) {
  if (mesh_.dp().size() == 1) return;
  if (measure_) {
    local_square_ += square_of(plan);
    for (const Partial& partial : plan.partials) {
      if (partial.counted)
        local_square_ += backend_.square_sum(gradients_.slice(0, partial.offset, partial.size));
    }
    if (plan.waits_for_tied && tied_->counted)
      local_square_ += backend_.square_sum(gradients_.slice(0, tied_->offset, tied_->numel()));
  }
  TensorView const whole = gradients_.slice(0, plan.bucket.offset, plan.bucket.size);
  backend_.synchronize();  // the queue's thread reads what this one has computed
  // dp: the same shard's gradients of other samples. All its ranks run the same backward order.
  if (state_is_cut(mesh_.layout())) {
    Bucket const mine = owned_piece(plan.bucket, mesh_.layout(), mesh_.coord().dp);
    TensorView const piece = gradients_.slice(0, mine.offset, mine.size);
    last_job_ = queue_.submit([this, piece, whole] { mesh_.dp().reduce_scatter(piece, whole); });
  } else {
    last_job_ = queue_.submit([this, whole] { mesh_.dp().all_reduce(whole, ReduceOp::sum); });
  }
}

void GradientSync::move_tied(const TensorView& what, int from, int to, const TensorView& landing) {
  // pp: first and last stage hold the two uses of one embedding.
  int const here = mesh_.coord().pp;
  if (here == from) {
    Parcel const parcel{to, what};
    mesh_.pp().exchange({&parcel, 1}, {});
  } else if (here == to) {
    Parcel const parcel{from, landing};
    mesh_.pp().exchange({}, {&parcel, 1});
  }
}

void GradientSync::finish() {
  if (tied_ != nullptr) {
    if (measure_ && accumulation_ > 1) measure_first_tied();
    TensorView const mine = gradients_.slice(0, tied_->offset, tied_->numel());
    move_tied(mine, mesh_.layout().pp - 1, 0, buffers_.tied);
    if (mesh_.coord().pp == 0) backend_.add(mine, mine, buffers_.tied);
    for (const Plan& plan : plans_) {
      if (plan.waits_for_tied) reduce(plan);
    }
  }
  Stopwatch const watch(exposed_seconds_);
  queue_.wait_for(last_job_);
}

void GradientSync::start_gather(const TensorView& weights) {
  if (state_is_cut(mesh_.layout())) {
    backend_.synchronize();  // the queue's thread sends what this one has computed
    for (std::size_t const i : forward_order_) {
      Plan& plan = plans_[i];
      Bucket const mine = owned_piece(plan.bucket, mesh_.layout(), mesh_.coord().dp);
      TensorView const whole = weights.slice(0, plan.bucket.offset, plan.bucket.size);
      TensorView const piece = weights.slice(0, mine.offset, mine.size);
      // dp: each owner's updated piece to those that compute with it.
      plan.gather = last_gather_ = last_job_ =
          queue_.submit([this, whole, piece] { mesh_.dp().all_gather(whole, piece); });
    }
  }
  if (tied_ != nullptr) {
    if (mesh_.coord().pp == 0) await_weights(-1);
    TensorView const copy = weights.slice(0, tied_->offset, tied_->numel());
    move_tied(copy, 0, mesh_.layout().pp - 1, copy);
  }
}

void GradientSync::await_weights(std::int64_t layer) {
  if (last_gather_ == 0) return;
  Stopwatch const watch(exposed_seconds_);
  for (const Plan& plan : plans_) {
    if (plan.layer == layer) queue_.wait_for(plan.gather);
  }
}

void GradientSync::await_weights() {
  if (last_gather_ == 0) return;
  Stopwatch const watch(exposed_seconds_);
  queue_.wait_for(last_gather_);
}

}  // namespace copus
