#include <algorithm>

#include "copus/core/error.h"
#include "copus/state/checkpoint.h"
#include "copus/state/checkpoint_draft.h"
#include "copus/state/safetensors.h"
#include "state/model_writer.h"

namespace copus {
namespace {

FileSum write_optimizer_file(const std::string& path, const std::vector<Param>& table,
                             const std::vector<int>& params, const StateReader& read) {
  std::vector<SafetensorsWriter::Item> items;
  for (int index : params) {
    const Param& p = table[static_cast<std::size_t>(index)];
    std::vector<std::int64_t> const shape =
        p.dims == 1 ? std::vector{p.size[1]} : std::vector{p.size[0], p.size[1]};
    items.push_back({p.name + ".m", shape});
    items.push_back({p.name + ".v", shape});
  }
  SafetensorsWriter writer(path, items, {});
  std::vector<float> stage;
  for (int index : params) {
    const Param& p = table[static_cast<std::size_t>(index)];
    for (StateBuffer const buffer : {StateBuffer::m, StateBuffer::v}) {
      for_row_blocks(p, [&](std::int64_t first, std::int64_t rows) {
        stage.resize(static_cast<std::size_t>(rows * p.size[1]));
        read(buffer, index, {{first, 0}, {rows, p.size[1]}}, stage);
        writer.append(stage);
      });
    }
  }
  writer.finish();
  return {writer.file_bytes(), writer.file_hash()};
}

}  // namespace

FlatReader host_reader(const TrainState& state) {
  return [state](StateBuffer buffer, std::int64_t offset, std::span<float> out) {
    const TensorView& view = buffer == StateBuffer::master ? state.master
                             : buffer == StateBuffer::m    ? state.m
                                                           : state.v;
    auto const from =
        view.span<const float>().subspan(static_cast<std::size_t>(offset), out.size());
    std::copy(from.begin(), from.end(), out.begin());
  };
}

FlatReader backend_reader(Backend& backend, const TrainState& state) {
  return [&backend, state](StateBuffer buffer, std::int64_t offset, std::span<float> out) {
    const TensorView& view = buffer == StateBuffer::master ? state.master
                             : buffer == StateBuffer::m    ? state.m
                                                           : state.v;
    backend.download(out.data(), view.slice(0, offset, static_cast<std::int64_t>(out.size())));
  };
}

StateReader shard_reader(const StateShard& shard, FlatReader read) {
  return [boxes = shard.boxes, read = std::move(read)](StateBuffer buffer, int param,
                                                       const Box& box, std::span<float> out) {
    auto const held = std::find_if(boxes.begin(), boxes.end(),
                                   [&](const StateBox& b) { return b.param == param; });
    COPUS_CHECK(held != boxes.end() && intersect(held->box, box) == box,
                "the writer of a part holds its tensors whole");
    std::int64_t const stride = held->row_stride;
    std::int64_t const start = held->offset + (box.begin[0] - held->box.begin[0]) * stride +
                               box.begin[1] - held->box.begin[1];
    if (box.size[1] == stride || box.size[0] == 1) {
      read(buffer, start, out);
      return;
    }
    auto const count = static_cast<std::size_t>(box.size[1]);
    for (std::int64_t row = 0; row < box.size[0]; ++row) {
      read(buffer, start + row * stride, out.subspan(static_cast<std::size_t>(row) * count, count));
    }
  };
}

PartSums write_checkpoint_part(const std::string& folder, const ModelConfig& model,
                               const std::vector<CheckpointPart>& parts, std::size_t index,
                               const StateReader& read) {
  std::vector<Param> const table = parameter_table(model);
  const std::vector<int>& params = parts[index].params;
  std::vector<Param> mine;
  for (int param : params) mine.push_back(table[static_cast<std::size_t>(param)]);
  FileSum const weights =
      write_model_file(folder + "/" + model_file_name(index, parts.size()), model, mine,
                       [&](const Param& param, const Box& box, std::span<float> out) {
                         auto const at = std::find_if(params.begin(), params.end(), [&](int i) {
                           return table[static_cast<std::size_t>(i)].name == param.name;
                         });
                         read(StateBuffer::master, *at, box, out);
                       });
  FileSum const moments =
      write_optimizer_file(folder + "/" + optimizer_file_name(index), table, params, read);
  return {weights.bytes, moments.bytes, weights.hash, moments.hash};
}

SavedCheckpoint save_checkpoint(const std::string& run_dir, const FlatModel& model,
                                const Counters& counters, const FlatReader& read,
                                const TokenizerIdentity& tokenizer, std::int64_t keep) {
  std::vector<CheckpointPart> const parts = checkpoint_parts(model.config, 1);
  CheckpointDraft draft(run_dir, counters.step);
  PartSums const sums =
      write_checkpoint_part(CheckpointDraft::draft_path(run_dir, counters.step), model.config,
                            parts, 0, shard_reader(shard_of(model), read));
  return draft.publish(model.config, counters, parts, {sums}, tokenizer, keep);
}

}  // namespace copus
