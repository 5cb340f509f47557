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
#include "copus/state/checkpoint_draft.h"
#include "copus/state/hf.h"
#include "state/checkpoint_names.h"
#include "state/checkpoint_state.h"
#include "state/files.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

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
  try {
    rename_path(temporary, link);
  } catch (const IoError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(folder);
}

// "step-00000100.damaged", or with a number behind it. Returns the new path.
std::string set_aside(const std::string& path) {
  std::string aside = path + ".damaged";
  std::error_code error;
  for (int n = 2; fs::exists(aside, error); ++n) aside = fmt::format("{}.damaged-{}", path, n);
  rename_path(path, aside);
  sync_directory(fs::path(path).parent_path());
  return aside;
}

// By presence and sizes: reading every older checkpoint after each save would take too long.
bool looks_whole(const std::string& directory) {
  try {
    FileSums sums;
    parse_state(directory, sums);
    return std::all_of(sums.begin(), sums.end(), [&](const auto& file) {
      return file_problem(directory, file.first, file.second, Depth::sizes).empty();
    });
  } catch (const ConfigError&) {
    return false;
  } catch (const IoError&) {
    return false;
  }
}

// All older than the `keep` newest that are whole go. One that is not counts for nothing: a disk
// that has damaged one must not cost a good one as well.
std::vector<std::string> prune(const std::string& folder, std::int64_t step, std::int64_t keep) {
  std::vector<std::string> warnings;
  std::int64_t kept = 0;
  for (const auto& [old_step, name] : checkpoints_newest_first(folder)) {
    if (old_step > step) continue;  // what a resume passed over as damaged
    if (kept < keep) {
      kept += looks_whole(folder + "/" + name) ? 1 : 0;
      continue;
    }
    try {
      remove_checkpoint(folder + "/" + name);
    } catch (const IoError& error) {
      warnings.emplace_back(error.what());
    }
  }
  return warnings;
}

nlohmann::json index_of(const ModelConfig& model, const std::vector<CheckpointPart>& parts) {
  std::vector<Param> const table = parameter_table(model);
  nlohmann::json map = nlohmann::json::object();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (int param : parts[i].params) {
      map[hf_place(model, table[static_cast<std::size_t>(param)]).name] =
          model_file_name(i, parts.size());
    }
  }
  return {{"metadata", {{"total_size", parameter_count(model) * size_of(DType::f32)}}},
          {"weight_map", std::move(map)}};
}

// What the ranks have written must be what this one sees.
void check_visible(const std::string& folder, const std::string& name, const FileSum& sum) {
  std::error_code error;
  auto const size = fs::file_size(folder + "/" + name, error);
  if (error) {
    throw IoError(fmt::format(
        "{}/{}: written by another rank and not to be seen here: run_dir must lie on a file system "
        "that all hosts share",
        folder, name));
  }
  if (static_cast<std::int64_t>(size) != sum.bytes) {
    throw IoError(
        fmt::format("{}/{}: holds {} bytes, {} were written", folder, name, size, sum.bytes));
  }
}

}  // namespace

std::string model_file_name(std::size_t part, std::size_t parts) {
  return parts == 1 ? "model.safetensors"
                    : fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, parts);
}
std::string optimizer_file_name(std::size_t part) {
  return fmt::format("optimizer-{:05}.safetensors", part + 1);
}

struct CheckpointDraft::Place {
  std::string folder, name;
  TemporaryTree tree;

  Place(std::string in, std::string called, std::string draft)
      : folder(std::move(in)), name(std::move(called)), tree(std::move(draft)) {}
};

CheckpointDraft::CheckpointDraft(const std::string& run_dir, std::int64_t step) {
  std::string const folder = run_dir + "/" + kCheckpointFolder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(fmt::format("cannot create {}: {}", folder, error.message()));
  sync_directory(run_dir);  // the folder's own name
  remove_leftovers(folder);
  std::string const name = checkpoint_name(step);
  place_ = std::make_unique<Place>(folder, name, draft_path(run_dir, step));
}
CheckpointDraft::~CheckpointDraft() = default;

std::string CheckpointDraft::draft_path(const std::string& run_dir, std::int64_t step) {
  return run_dir + "/" + kCheckpointFolder + "/" + checkpoint_name(step) + kTemporarySuffix;
}

SavedCheckpoint CheckpointDraft::publish(const ModelConfig& model, const Counters& counters,
                                         const std::vector<CheckpointPart>& parts,
                                         const std::vector<PartSums>& written,
                                         const TokenizerIdentity& tokenizer, std::int64_t keep,
                                         const PlannerMemory& planner) {
  COPUS_CHECK(keep >= 1, "the checkpoint being written is kept");
  TemporaryTree& tree = place_->tree;
  FileSums sums;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sums[model_file_name(i, parts.size())] = {written[i].model_bytes, written[i].model_hash};
    sums[optimizer_file_name(i)] = {written[i].optimizer_bytes, written[i].optimizer_hash};
  }
  for (const auto& [file, sum] : sums) check_visible(tree.path(), file, sum);
  if (parts.size() > 1) {
    std::string const name = "model.safetensors.index.json";
    sums[name] = write_text_file(tree.file(name), index_of(model, parts).dump(2) + "\n");
  }
  nlohmann::json config = to_hf_config(model);
  if (tokenizer.end_of_text) {
    config["bos_token_id"] = config["eos_token_id"] = *tokenizer.end_of_text;
  }
  sums["config.json"] = write_text_file(tree.file("config.json"), config.dump(2) + "\n");
  CheckpointSummary const summary{model, counters, planner, true, tokenizer.id, 0, tokenizer.data};
  std::int64_t bytes =
      write_text_file(tree.file(kStateFile), state_text(make_state(summary, sums))).bytes;
  for (const auto& [file, sum] : sums) bytes += sum.bytes;
  sync_directory(tree.path());

  put_in_place(tree, place_->folder, place_->name);
  // From here on it is there, whatever else fails.
  SavedCheckpoint saved{place_->folder + "/" + place_->name, bytes, {}};
  try {
    move_latest(place_->folder, place_->name);
  } catch (const IoError& error) {
    saved.warnings.emplace_back(error.what());
  }
  std::vector<std::string> const left = prune(place_->folder, counters.step, keep);
  saved.warnings.insert(saved.warnings.end(), left.begin(), left.end());
  return saved;
}

std::vector<std::string> settle_checkpoints(const FoundCheckpoint& found, std::int64_t keep) {
  fs::path const path = found.directory;
  std::string const folder = path.parent_path(), name = path.filename();
  std::vector<std::string> said;
  auto const attempt = [&](auto&& body) {
    try {
      body();
    } catch (const IoError& error) {
      said.emplace_back(error.what());
    }
  };
  for (const FoundCheckpoint::PassedOver& other : found.rejected)
    attempt([&] {
      said.push_back(fmt::format("{}: passed over, and set aside as {}", other.directory,
                                 set_aside(other.directory)));
    });
  attempt([&] {
    std::error_code error;
    // A run killed between a checkpoint's two renames left the link behind.
    if (fs::read_symlink(folder + "/" + kLatestLink, error) != name) move_latest(folder, name);
  });
  for (const auto& [step, of] : checkpoints_newest_first(folder)) {
    if (of != name) continue;
    std::vector<std::string> const left = prune(folder, step, keep);
    said.insert(said.end(), left.begin(), left.end());
  }
  return said;
}

}  // namespace copus
