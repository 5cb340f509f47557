#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

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
constexpr std::string_view kStepPrefix = "step-";
constexpr const char* kConfigFile = "config.json";
constexpr std::string_view kOptimizerPrefix = "optimizer-";

// Streams the part of one logical tensor that a rank holds into its flat buffer.
void load_box(const Param& param, const StateBox& to, StateBuffer buffer, const BoxReader& read,
              const FlatWriter& write, std::vector<float>& stage) {
  const Box& held = to.box;
  if (held.empty()) return;
  std::int64_t const stride = to.row_stride, width = held.size[1];
  std::int64_t const step = std::max<std::int64_t>(1, kStagedElements / width);
  for (std::int64_t row = 0; row < held.size[0]; row += step) {
    std::int64_t const rows = std::min(step, held.size[0] - row);
    stage.resize(static_cast<std::size_t>(rows * width));
    read(param, {{held.begin[0] + row, held.begin[1]}, {rows, width}}, stage);
    if (width == stride) {
      write(buffer, to.offset + row * stride, stage);
      continue;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      write(buffer, to.offset + (row + r) * stride,
            std::span<const float>(stage).subspan(static_cast<std::size_t>(r * width),
                                                  static_cast<std::size_t>(width)));
    }
  }
}

// A box of a rank's flat buffers as flat_layout lays them out.
StateBox box_of(const LocalParam& local) {
  return {local.param, local.box, local.offset, local.local_size[1], local.counted};
}

// The moments of all optimizer files of a checkpoint.
class Moments {
 public:
  Moments(const std::string& directory, const FileSums& sums, const std::vector<Param>& table)
      : directory_(directory) {
    for (const auto& [name, sum] : sums) {
      if (name.rfind(kOptimizerPrefix, 0) != 0) continue;
      files_.push_back(SafetensorsFile::open(directory + "/" + name));
      for (const auto& [tensor, entry] : files_.back().tensors()) {
        file_of_[tensor] = files_.size() - 1;
      }
    }
    check(table);
  }

  void read(const Param& param, const char* suffix, const Box& box, std::span<float> out) const {
    std::string const name = param.name + suffix;
    const SafetensorsFile& file = files_[file_of_.at(name)];
    if (box.size[1] == param.size[1]) {
      file.read_f32(name, box.begin[0] * param.size[1], out);
      return;
    }
    auto const width = static_cast<std::size_t>(box.size[1]);
    for (std::int64_t row = 0; row < box.size[0]; ++row) {
      file.read_f32(name, (box.begin[0] + row) * param.size[1] + box.begin[1],
                    out.subspan(static_cast<std::size_t>(row) * width, width));
    }
  }

 private:
  void check(const std::vector<Param>& table) const {
    std::vector<std::string> problems;
    std::size_t used = 0;
    for (const Param& p : table) {
      std::vector<std::int64_t> const shape =
          p.dims == 1 ? std::vector{p.size[1]} : std::vector{p.size[0], p.size[1]};
      for (const char* suffix : {".m", ".v"}) {
        auto const found = file_of_.find(p.name + suffix);
        if (found == file_of_.end()) {
          problems.push_back(fmt::format("{}: tensor \"{}{}\" is missing from the optimizer files",
                                         directory_, p.name, suffix));
          continue;
        }
        ++used;
        const TensorEntry& entry = files_[found->second].tensors().at(found->first);
        if (entry.dtype != "F32" || entry.shape != shape) {
          problems.push_back(fmt::format(
              "{}: tensor \"{}\" is {} [{}]; the model makes it F32 [{}]", directory_, found->first,
              entry.dtype, fmt::join(entry.shape, ", "), fmt::join(shape, ", ")));
        }
      }
    }
    if (used != file_of_.size()) {
      problems.push_back(fmt::format("{}: the optimizer files hold {} tensors, the model has {}",
                                     directory_, file_of_.size(), 2 * table.size()));
    }
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }

  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;
};

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::vector<std::pair<std::int64_t, std::string>> checkpoints_newest_first(
    const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string const name = entry.path().filename();
    std::string const digits = name.substr(std::min(kStepPrefix.size(), name.size()));
    bool const named = name.rfind(kStepPrefix, 0) == 0 && digits.size() >= 8 &&
                       digits.size() <= 18 &&
                       digits.find_first_not_of("0123456789") == std::string::npos;
    if (named && entry.is_directory(error)) found.emplace_back(std::stoll(digits), name);
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

FlatWriter host_writer(const TrainState& state) {
  return [state](StateBuffer buffer, std::int64_t offset, std::span<const float> elements) {
    const TensorView& view = buffer == StateBuffer::master ? state.master
                             : buffer == StateBuffer::m    ? state.m
                                                           : state.v;
    auto const to = view.span<float>().subspan(static_cast<std::size_t>(offset), elements.size());
    std::copy(elements.begin(), elements.end(), to.begin());
  };
}

FlatWriter backend_writer(Backend& backend, const TrainState& state) {
  return
      [&backend, state](StateBuffer buffer, std::int64_t offset, std::span<const float> elements) {
        const TensorView& view = buffer == StateBuffer::master ? state.master
                                 : buffer == StateBuffer::m    ? state.m
                                                               : state.v;
        backend.upload(view.slice(0, offset, static_cast<std::int64_t>(elements.size())),
                       elements.data());
      };
}

CheckpointSummary read_checkpoint_summary(const std::string& directory) {
  FileSums sums;
  return parse_state(directory, sums);
}

std::vector<std::string> checkpoint_problems(const std::string& directory) {
  std::vector<std::string> problems;
  try {
    FileSums sums;
    parse_state(directory, sums);
    // Cheap checks first: a short file need not be read to be refused.
    for (Depth const depth : {Depth::sizes, Depth::contents}) {
      for (const auto& [name, sum] : sums) {
        std::string problem = file_problem(directory, name, sum, depth);
        if (!problem.empty()) problems.push_back(std::move(problem));
      }
      if (!problems.empty()) break;
    }
  } catch (const ConfigError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  } catch (const IoError& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

namespace {

// What may not be opened is no damage: whoever may, or the file system when it is back, finds it
// whole. A disk's own failure is.
void require_readable(const std::string& directory) {
  std::error_code error;
  fs::directory_iterator const entries(directory, error);
  if (error) throw IoError(fmt::format("cannot read {}: {}", directory, error.message()));
  for (const fs::directory_entry& entry : entries) {
    if (!entry.is_regular_file(error)) continue;
    int const fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
      ::close(fd);
    } else if (errno != EIO && errno != ENOENT) {
      throw_io_error("cannot read", entry.path());
    }
  }
  try {
    read_state(directory);
  } catch (const OtherFormat&) {
    throw;
  } catch (const ConfigError&) {
    // Damage, which is told with the rest of it.
  } catch (const IoError&) {
  }
}

}  // namespace

FoundCheckpoint newest_complete(const std::string& run_dir) {
  std::string const folder = run_dir + "/" + kCheckpointFolder;
  FoundCheckpoint found;
  // By number and not by `latest`: a run killed between the two renames has a newer one.
  for (const auto& [step, name] : checkpoints_newest_first(folder)) {
    std::string const directory = folder + "/" + name;
    require_readable(directory);
    std::vector<std::string> problems = checkpoint_problems(directory);
    if (problems.empty()) {
      found.directory = directory;
      break;
    }
    found.rejected.push_back({directory, std::move(problems)});
  }
  return found;
}

std::string newest_described(const std::string& run_dir) {
  std::string const folder = run_dir + "/" + kCheckpointFolder;
  for (const auto& [step, name] : checkpoints_newest_first(folder)) {
    std::string const directory = folder + "/" + name;
    try {
      FileSums sums;
      parse_state(directory, sums);
      auto const config = sums.find(kConfigFile);
      if (config != sums.end() &&
          file_problem(directory, kConfigFile, config->second, Depth::contents).empty()) {
        return directory;
      }
    } catch (const ConfigError&) {
      // Said where a complete one is looked for.
    } catch (const IoError&) {
    }
  }
  return "";
}

void load_model_weights(const std::string& directory, const FlatModel& model,
                        const FlatWriter& write) {
  std::vector<std::string> problems =
      model_differences(read_hf_config(directory), model.config, directory);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  HfModel const file(directory, model.config);
  BoxReader const read = [&](const Param& param, const Box& box, std::span<float> out) {
    file.read(param, box, out);
  };
  std::vector<float> stage;
  for (const LocalParam& local : model.layout.params) {
    const Param& param = model.table[static_cast<std::size_t>(local.param)];
    load_box(param, box_of(local), StateBuffer::master, read, write, stage);
  }
}

namespace {

CheckpointSummary summary_with_optimizer(const std::string& directory, FileSums& sums) {
  CheckpointSummary summary = parse_state(directory, sums);
  if (!summary.has_optimizer) {
    throw ConfigError(fmt::format(
        "{}: holds weights alone; name it as model.from to start a run from them", directory));
  }
  return summary;
}

}  // namespace

StateShard shard_of(const FlatModel& model) {
  StateShard shard;
  shard.numel = model.layout.state_numel;
  for (const LocalParam& local : model.layout.params) {
    if (local.offset < model.layout.state_numel) shard.boxes.push_back(box_of(local));
  }
  return shard;
}

Counters load_train_state(const std::string& directory, const FlatModel& model,
                          const FlatWriter& write) {
  FileSums sums;
  summary_with_optimizer(directory, sums);
  for (const auto& [name, sum] : sums) {
    std::string problem = file_problem(directory, name, sum, Depth::contents);
    if (!problem.empty()) throw ConfigError(std::move(problem));
  }
  return load_train_state(directory, model.config, shard_of(model), write);
}

Counters load_train_state(const std::string& directory, const ModelConfig& model,
                          const StateShard& shard, const FlatWriter& write) {
  FileSums sums;
  CheckpointSummary const summary = summary_with_optimizer(directory, sums);
  std::vector<std::string> problems =
      model_differences(read_hf_config(directory), model, directory);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  std::vector<Param> const table = parameter_table(model);
  Moments const moments(directory, sums, table);
  HfModel const weights(directory, model, Depth::sizes);
  std::vector<float> stage;
  for (const StateBox& held : shard.boxes) {
    const Param& param = table[static_cast<std::size_t>(held.param)];
    for (StateBuffer const buffer : {StateBuffer::master, StateBuffer::m, StateBuffer::v}) {
      load_box(
          param, held, buffer,
          [&](const Param& p, const Box& box, std::span<float> out) {
            if (buffer == StateBuffer::master) {
              weights.read(p, box, out);
            } else {
              moments.read(p, buffer == StateBuffer::m ? ".m" : ".v", box, out);
            }
          },
          write, stage);
    }
  }
  Counters counters = summary.counters;
  // The noise scale is one of sequences of a length: those of another length have another.
  if (summary.model.seq_len != model.seq_len) counters.gns = {};
  return counters;
}

}  // namespace copus
