#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "copus/core/error.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "copus/state/safetensors.h"
#include "state/checkpoint_names.h"
#include "state/checkpoint_state.h"
#include "state/model_writer.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

// A box of a logical tensor out of the rank's flat buffer.
void read_box(const FlatModel& model, const FlatReader& read, StateBuffer buffer,
              const Param& param, const Box& box, std::span<float> out) {
  const LocalParam* const local = model.layout.find(model.table, param.role, param.layer);
  COPUS_CHECK(local != nullptr && local->box.size == param.size,
              "one rank that holds the whole model writes a checkpoint: " + param.name);
  std::int64_t const stride = local->local_size[1];
  std::int64_t const start = local->offset + box.begin[0] * stride + box.begin[1];
  if (box.size[1] == stride || box.size[0] == 1) {
    read(buffer, start, out);
    return;
  }
  auto const count = static_cast<std::size_t>(box.size[1]);
  for (std::int64_t row = 0; row < box.size[0]; ++row) {
    read(buffer, start + row * stride, out.subspan(static_cast<std::size_t>(row) * count, count));
  }
}

FileSum write_optimizer_file(const std::string& path, const FlatModel& model,
                             const FlatReader& read) {
  std::vector<SafetensorsWriter::Item> items;
  for (const Param& p : model.table) {
    std::vector<std::int64_t> const shape =
        p.dims == 1 ? std::vector{p.size[1]} : std::vector{p.size[0], p.size[1]};
    items.push_back({p.name + ".m", shape});
    items.push_back({p.name + ".v", shape});
  }
  SafetensorsWriter writer(path, items, {});
  std::vector<float> stage;
  for (const Param& p : model.table) {
    for (StateBuffer const buffer : {StateBuffer::m, StateBuffer::v}) {
      for_row_blocks(p, [&](std::int64_t first, std::int64_t rows) {
        stage.resize(static_cast<std::size_t>(rows * p.size[1]));
        read_box(model, read, buffer, p, {{first, 0}, {rows, p.size[1]}}, stage);
        writer.append(stage);
      });
    }
  }
  writer.finish();
  return {writer.file_bytes(), writer.file_hash()};
}

// What killed runs left half-written or half-removed.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kTemporarySuffix) fs::remove_all(entry.path(), error);
  }
}

// A directory is renamed before its files go, so that nobody meets half of it under its name.
void remove_checkpoint(const std::string& path) {
  std::string const doomed = path + ".old" + kTemporarySuffix;
  rename_path(path, doomed);
  std::error_code error;
  fs::remove_all(doomed, error);
  if (error) throw IoError(fmt::format("cannot remove {}: {}", doomed, error.message()));
}

// Gives the finished tree its name. A checkpoint of the same step (written before a resume from an
// older one) is exchanged for it in one step, and goes with the temporary name.
void put_in_place(TemporaryTree& tree, const std::string& folder, const std::string& name) {
  std::string const final_path = folder + "/" + name;
  std::error_code error;
  if (!fs::exists(final_path, error)) {
    rename_path(tree.path(), final_path);
    tree.keep();
  } else if (::renameat2(AT_FDCWD, tree.path().c_str(), AT_FDCWD, final_path.c_str(),
                         RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) throw_io_error("cannot replace", final_path);
    remove_checkpoint(final_path);  // a file system that cannot exchange
    rename_path(tree.path(), final_path);
    tree.keep();
  }
  sync_directory(folder);
}

void move_latest(const std::string& folder, const std::string& name) {
  std::string const link = folder + "/" + kLatestLink;
  std::string const temporary = link + kTemporarySuffix;
  ::unlink(temporary.c_str());
  if (::symlink(name.c_str(), temporary.c_str()) != 0) throw_io_error("cannot link", temporary);
  rename_path(temporary, link);
  sync_directory(folder);
}

std::vector<std::string> prune(const std::string& folder, std::int64_t step, std::int64_t keep) {
  std::vector<std::string> warnings;
  std::int64_t kept = 0;
  for (const auto& [old_step, name] : checkpoints_newest_first(folder)) {
    // Beyond this step: what a resume passed over as damaged. They count for nothing here.
    if (old_step > step || ++kept <= keep) continue;
    try {
      remove_checkpoint(folder + "/" + name);
    } catch (const IoError& error) {
      warnings.emplace_back(error.what());
    }
  }
  return warnings;
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

SavedCheckpoint save_checkpoint(const std::string& run_dir, const FlatModel& model,
                                const Counters& counters, const FlatReader& read,
                                const TokenizerIdentity& tokenizer, std::int64_t keep) {
  COPUS_CHECK(keep >= 1, "the checkpoint being written is kept");
  std::string const folder = run_dir + "/" + kCheckpointFolder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(fmt::format("cannot create {}: {}", folder, error.message()));
  remove_leftovers(folder);

  std::string const name = checkpoint_name(counters.step);
  TemporaryTree tree(folder + "/" + name + kTemporarySuffix);
  FileSums sums;
  sums["model.safetensors"] =
      write_model_file(tree.file("model.safetensors"), model.config, model.table,
                       [&](const Param& param, const Box& box, std::span<float> out) {
                         read_box(model, read, StateBuffer::master, param, box, out);
                       });
  sums["optimizer-00001.safetensors"] =
      write_optimizer_file(tree.file("optimizer-00001.safetensors"), model, read);
  nlohmann::json config = to_hf_config(model.config);
  if (tokenizer.end_of_text) {
    config["bos_token_id"] = config["eos_token_id"] = *tokenizer.end_of_text;
  }
  sums["config.json"] = write_text_file(tree.file("config.json"), config.dump(2) + "\n");
  CheckpointSummary const summary{model.config, counters, true, tokenizer.id, 0};
  std::int64_t bytes =
      write_text_file(tree.file(kStateFile), state_text(make_state(summary, sums))).bytes;
  for (const auto& [file, sum] : sums) bytes += sum.bytes;
  sync_directory(tree.path());

  put_in_place(tree, folder, name);
  move_latest(folder, name);
  return {folder + "/" + name, bytes, prune(folder, counters.step, keep)};
}

}  // namespace copus
