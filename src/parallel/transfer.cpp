#include "copus/parallel/transfer.h"

#include <algorithm>
#include <array>
#include <map>

namespace copus {
namespace {

struct Holder {
  int rank = 0;
  std::int64_t offset = 0, stride = 0;
};

// A box that the old layout keeps in one piece, and who has it. Shards of one parameter are either
// the same box or disjoint (replicas have equal flat layouts, so ZeRO cuts them alike), hence the
// sources of a parameter cover it exactly once.
struct Source {
  Box box;
  std::vector<Holder> holders;  // by rank
  std::int64_t reach = 0;       // the last row's end of this and all sources before it
};

// By parameter, each parameter's by first row.
using Sources = std::vector<std::vector<Source>>;

void sort_by_row(std::vector<Source>& sources) {
  // The begin of a box is its own among the disjoint boxes of a parameter.
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.box.begin < b.box.begin; });
  std::int64_t reach = 0;
  for (Source& source : sources) {
    reach = std::max(reach, source.box.begin[0] + source.box.size[0]);
    source.reach = reach;
  }
}

// The stretch of a parameter's sources outside which none shares a row with `wanted`: under ZeRO
// most lie outside, and asking each would cost the square of the ranks.
std::span<const Source> near(const std::vector<Source>& sources, const Box& wanted) {
  std::int64_t const begin = wanted.begin[0], end = begin + wanted.size[0];
  auto const first = std::partition_point(
      sources.begin(), sources.end(), [&](const Source& source) { return source.reach <= begin; });
  auto const last = std::partition_point(
      first, sources.end(), [&](const Source& source) { return source.box.begin[0] < end; });
  return {first, last};
}

Sources sources_of(std::span<const StateShard> shards) {
  Sources sources;
  std::map<std::array<std::int64_t, 5>, std::size_t> known;  // (param, box) to its place
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    for (const StateBox& held : shards[rank].boxes) {
      auto const param = static_cast<std::size_t>(held.param);
      if (sources.size() <= param) sources.resize(param + 1);
      const Box& box = held.box;
      auto const [place, is_new] =
          known.try_emplace({held.param, box.begin[0], box.begin[1], box.size[0], box.size[1]},
                            sources[param].size());
      if (is_new) sources[param].push_back({box, {}, 0});
      sources[param][place->second].holders.push_back(
          {static_cast<int>(rank), held.offset, held.row_stride});
    }
  }
  for (std::vector<Source>& of_param : sources) sort_by_row(of_param);
  return sources;
}

// The destination itself where it can, else the one with least to send so far (the first of
// equals).
const Holder& choose(const Source& source, int to, const std::vector<std::int64_t>& load) {
  const Holder* best = nullptr;
  for (const Holder& holder : source.holders) {
    if (holder.rank == to) return holder;
    if (best == nullptr ||
        load[static_cast<std::size_t>(holder.rank)] < load[static_cast<std::size_t>(best->rank)]) {
      best = &holder;
    }
  }
  return *best;
}

// Where the first element of `part` lies, `part` being inside `whole`, which begins at `offset`.
std::int64_t offset_in(const Box& whole, std::int64_t offset, std::int64_t stride,
                       const Box& part) {
  return offset + (part.begin[0] - whole.begin[0]) * stride + part.begin[1] - whole.begin[1];
}

std::int64_t elements(const std::vector<Copy>& copies, bool local) {
  std::int64_t sum = 0;
  for (const Copy& copy : copies) {
    if ((copy.from == copy.to) == local) sum += copy.box.numel();
  }
  return sum;
}

}  // namespace

std::int64_t TransferPlan::sent_elements() const {
  return elements(copies, false);
}
std::int64_t TransferPlan::local_elements() const {
  return elements(copies, true);
}

TransferPlan transfer_plan(std::span<const StateShard> before, std::span<const StateShard> after) {
  Sources const sources = sources_of(before);
  std::vector<std::int64_t> load(before.size());  // elements to send, by rank
  TransferPlan plan;
  std::size_t boxes = 0;
  for (const StateShard& shard : after) boxes += shard.boxes.size();
  plan.copies.reserve(2 * boxes);
  for (std::size_t rank = 0; rank < after.size(); ++rank) {
    int const to = static_cast<int>(rank);
    for (const StateBox& wanted : after[rank].boxes) {
      for (const Source& source :
           near(sources[static_cast<std::size_t>(wanted.param)], wanted.box)) {
        Box const part = intersect(wanted.box, source.box);
        if (part.empty()) continue;
        const Holder& from = choose(source, to, load);
        if (from.rank != to) load[static_cast<std::size_t>(from.rank)] += part.numel();
        plan.copies.push_back(
            {.param = wanted.param,
             .box = part,
             .from = from.rank,
             .to = to,
             .from_offset = offset_in(source.box, from.offset, from.stride, part),
             .from_stride = from.stride,
             .to_offset = offset_in(wanted.box, wanted.offset, wanted.row_stride, part),
             .to_stride = wanted.row_stride});
      }
    }
  }
  return plan;
}

TransferPlan transfer_plan(const ModelConfig& model, const Layout& before, const Layout& after) {
  return transfer_plan(state_shards(model, before), state_shards(model, after));
}

RankTransfer rank_transfer(const TransferPlan& plan, int rank) {
  RankTransfer mine;
  for (const Copy& copy : plan.copies) {
    if (copy.from == rank && copy.to == rank) {
      mine.local.push_back(copy);
    } else if (copy.from == rank) {
      mine.sends.push_back(copy);
    } else if (copy.to == rank) {
      mine.recvs.push_back(copy);
    }
  }
  return mine;
}

}  // namespace copus
