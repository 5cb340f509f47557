#include "copus/state/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "copus/state/checkpoint_draft.h"
#include "state_fixture.h"
#include "support/small_disk.h"

using namespace copus;
using namespace copus::test;
namespace fs = std::filesystem;

namespace {

// A rank that holds a whole golden model, with arbitrary moments.
struct Rank {
  ModelConfig config;
  std::vector<Param> table;
  FlatLayout layout;
  std::vector<float> master, m, v;
  TrainState state;

  explicit Rank(const std::string& name)
      : config(read_hf_config(golden(name))),
        table(parameter_table(config)),
        layout(flat_layout(config, {}, 0, 0)) {
    auto const n = static_cast<std::size_t>(layout.numel);
    master.resize(n);
    m.resize(n);
    v.resize(n);
    state.master = TensorView(master.data(), DType::f32, {layout.numel});
    state.m = TensorView(m.data(), DType::f32, {layout.numel});
    state.v = TensorView(v.data(), DType::f32, {layout.numel});
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  FlatModel model() const { return {config, table, layout}; }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    for (auto* values : {&master, &m, &v})
      for (float& x : *values) x = static_cast<float>(random()) * 0x1p-32f - 0.5f;
  }
  SavedCheckpoint save(const std::string& run, std::int64_t step, std::int64_t keep = 3) const {
    Counters counters = state.counters;
    counters.step = step;
    return save_checkpoint(run, model(), counters, host_reader(state), {"bytes", 256}, keep);
  }
};

Counters odd_counters() {
  Counters counters{
      7,  123456789012345,          99, 0xFFFFFFFFFFFFFFFEull, 5, 0.1 + 0.2, 1.0 / 3.0, 2, 16,
      {}, {2, 1, 3, 1, 1, 0, 5, 30}};
  // Every number of the noise scale's memory another one.
  GnsHistory& gns = counters.gns;
  gns = {11, 123456789012000, 1, 0.1, 0.2, 0.3, -0.4, {0.5, 0.6}, {0.7, 0.8}, {0.9, 1.1}, 1.2, {}};
  gns.double_count = {13, 1.3, -1.4, 1.5, 1.6};
  return counters;
}

// The temporary names in a run's checkpoints folder.
int leftovers(const std::string& run) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
    count += entry.path().extension() == ".tmp" ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("R23: importing a model and reading it back gives every tensor bit for bit") {
  TempFolder const folder;
  for (const std::string& name : kGolden) {
    INFO(name);
    std::string const out = folder / name;
    import_checkpoint(golden(name), out);
    SafetensorsFile const a = SafetensorsFile::open(golden(name) + "/model.safetensors");
    SafetensorsFile const b = SafetensorsFile::open(out + "/model.safetensors");
    REQUIRE(a.tensors().size() == b.tensors().size());
    for (const auto& [tensor, entry] : a.tensors()) {
      INFO(tensor);
      CHECK(b.tensors().at(tensor).shape == entry.shape);
      CHECK(read_all(a, tensor) == read_all(b, tensor));
    }
    CHECK(read_hf_config(out) == read_hf_config(golden(name)));
    CHECK(nlohmann::json::parse(read_bytes(out + "/config.json")).at("eos_token_id") == 256);
    CHECK(checkpoint_problems(out).empty());
    CHECK(names(problems_of([&] { import_checkpoint(golden(name), out); }), "exists already"));
    Rank rank(name);
    CHECK(names(problems_of([&] { load_train_state(out, rank.model(), host_writer(rank.state)); }),
                "weights alone"));
  }
}

TEST_CASE("R23: weights written from our boxes are the file they were read from") {
  TempFolder const folder;
  for (const std::string& name : kGolden) {
    Rank rank(name);
    load_model_weights(golden(name), rank.model(), host_writer(rank.state));
    std::string const dir = rank.save(folder / name, 1).directory;
    SafetensorsFile const a = SafetensorsFile::open(golden(name) + "/model.safetensors");
    SafetensorsFile const b = SafetensorsFile::open(dir + "/model.safetensors");
    for (const auto& [tensor, entry] : a.tensors())
      CHECK(read_all(a, tensor) == read_all(b, tensor));
  }
}

TEST_CASE("weights that are no numbers are refused on the way in, each tensor with their count") {
  for (const std::string& name : kGolden) {
    INFO(name);
    TempFolder const folder;
    std::string const dir = copy_golden(folder, name), path = dir + "/model.safetensors";
    auto tensors = tensors_of(path);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto& values = tensors[i].values;
      if (i % 2 == 0) continue;
      values.front() = std::numeric_limits<float>::quiet_NaN();
      values.back() = -std::numeric_limits<float>::infinity();
      values[values.size() / 2] = std::numeric_limits<float>::max();  // large, and a number
    }
    write_tensors(path, tensors);
    std::string const text = problems_of([&] { import_checkpoint(dir, folder / "out"); });
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      INFO(tensors[i].name);
      CHECK(names(text, "tensor \"" + tensors[i].name + "\" holds 2 weights that are NaN") ==
            (i % 2 == 1));
    }
    CHECK_FALSE(fs::exists(folder / "out"));
    CHECK_FALSE(fs::exists(folder / "out.tmp"));
  }
}

TEST_CASE("half-precision infinities are counted too") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-tied"), path = dir + "/model.safetensors";
  auto tensors = tensors_of(path);
  tensors[0].values[0] = std::numeric_limits<float>::infinity();
  write_tensors(path, tensors, DType::bf16);
  CHECK(names(problems_of([&] { import_checkpoint(dir, folder / "out"); }),
              "\"" + tensors[0].name + "\" holds 1 weight that is NaN or infinite"));
}

TEST_CASE("a failed import leaves nothing behind") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "gpt2");
  write_bytes(dir + "/model.safetensors", "short");
  CHECK_THROWS_AS(import_checkpoint(dir, folder / "out"), ConfigError);
  {
    SmallDisk const disk(4096);
    CHECK_THROWS_AS(import_checkpoint(golden("gpt2"), folder / "out"), IoError);
  }
  write_bytes(folder / "file", "");
  CHECK_THROWS_AS(import_checkpoint(golden("gpt2"), folder / "file/out"), IoError);
  CHECK_FALSE(fs::exists(folder / "out"));
  CHECK_FALSE(fs::exists(folder / "out.tmp"));
}

TEST_CASE("all of TrainState comes back bit for bit") {
  TempFolder const folder;
  for (const std::string& name : kGolden) {
    Rank a(name), b(name);
    a.fill(3);
    a.state.counters = odd_counters();
    SavedCheckpoint const saved = a.save(folder / name, 7);
    CHECK(saved.directory == newest_complete(folder / name).directory);
    CHECK(fs::read_symlink(folder / (name + "/checkpoints/latest")) == "step-00000007");
    CHECK(load_train_state(saved.directory, b.model(), host_writer(b.state)) == a.state.counters);
    CHECK(a.master == b.master);
    CHECK(a.m == b.m);
    CHECK(a.v == b.v);
    CheckpointSummary const summary = read_checkpoint_summary(saved.directory);
    CHECK(summary.model == a.config);
    CHECK(summary.tokenizer == "bytes");
    CHECK(summary.has_optimizer);
  }
}

TEST_CASE("a checkpoint of another model is refused with every difference named") {
  TempFolder const folder;
  Rank const saved("llama-tied");
  Rank other("qwen2");
  std::string const dir = saved.save(folder.path, 1).directory;
  std::string const text =
      problems_of([&] { load_model_weights(dir, other.model(), host_writer(other.state)); });
  for (const char* key : {"model.family", "model.layers", "model.hidden", "model.rope_theta"})
    CHECK(names(text, key));
}

TEST_CASE("R16: a checkpoint with a missing, short or corrupt part is never chosen") {
  TempFolder const folder;
  Rank rank("llama-tied");
  rank.fill(1);
  std::string const good = rank.save(folder.path, 100).directory;
  std::string const bad = rank.save(folder.path, 200).directory;
  REQUIRE(newest_complete(folder.path).directory == bad);
  for (const char* file :
       {"model.safetensors", "optimizer-00001.safetensors", "config.json", "state.json"}) {
    INFO(file);
    std::string const path = bad + "/" + file, whole = read_bytes(path);
    std::vector<std::string> damaged = {"", whole.substr(0, whole.size() - 1)};
    for (std::size_t const at : {std::size_t{0}, whole.size() / 2, whole.size() - 3}) {
      damaged.push_back(whole);
      damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 1);
    }
    for (const std::string& bytes : damaged) {
      write_bytes(path, bytes);
      FoundCheckpoint const found = newest_complete(folder.path);
      CHECK(found.directory == good);
      REQUIRE_FALSE(found.rejected.empty());
      CHECK(found.rejected[0].directory == bad);
      CHECK(names(found.rejected[0].problems.at(0), path));
      CHECK_THROWS_AS(load_train_state(bad, rank.model(), host_writer(rank.state)), ConfigError);
    }
    fs::remove(path);
    CHECK(newest_complete(folder.path).directory == good);
    write_bytes(path, whole);
  }
  CHECK(newest_complete(folder.path).directory == bad);
}

TEST_CASE("R16: unfinished directories, a stale pointer and no checkpoint at all are survived") {
  TempFolder const folder;
  CHECK(newest_complete(folder / "nowhere").directory.empty());
  Rank rank("llama-tied");
  std::string const first = rank.save(folder.path, 1).directory;
  std::string const checkpoints = folder / "checkpoints";
  fs::copy(first, checkpoints + "/step-00000005.tmp");
  fs::create_directory(checkpoints + "/step-00000009");
  fs::create_directory(checkpoints + "/step-abc");
  CHECK(newest_complete(folder.path).directory == first);
  std::string const second = rank.save(folder.path, 2).directory;
  CHECK(leftovers(folder.path) == 0);
  // Killed between the two renames: `latest` still names the older one.
  fs::remove(checkpoints + "/latest");
  fs::create_symlink("step-00000001", checkpoints + "/latest");
  CHECK(newest_complete(folder.path).directory == second);
}

TEST_CASE(
    "R16: a process killed anywhere in a save leaves the previous checkpoint, and the next save "
    "cleans up") {
  TempFolder const folder;
  Rank rank("gpt2");
  rank.fill(2);
  std::string const first = rank.save(folder.path, 1).directory;
  for (int const survived : {0, 1, 20, 40, 60, 80}) {
    pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int reads = 0;
      auto const read = host_reader(rank.state);
      Counters counters;
      counters.step = 2;
      save_checkpoint(
          folder.path, rank.model(), counters,
          [&](StateBuffer buffer, std::int64_t offset, std::span<float> out) {
            if (reads++ == survived) ::kill(::getpid(), SIGKILL);
            read(buffer, offset, out);
          },
          {}, 3);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    CHECK(leftovers(folder.path) == 1);
    CHECK(newest_complete(folder.path).directory == first);
  }
  std::string const next = rank.save(folder.path, 3).directory;
  CHECK(newest_complete(folder.path).directory == next);
  CHECK(leftovers(folder.path) == 0);
}

TEST_CASE(
    "R16: a full disk, at any size, keeps the previous checkpoint and removes the new one's "
    "files") {
  TempFolder const folder;
  Rank rank("llama-tied");
  std::string const first = rank.save(folder.path, 1).directory;
  auto const whole = static_cast<rlim_t>(fs::file_size(first + "/optimizer-00001.safetensors"));
  for (rlim_t const room : {rlim_t{0}, rlim_t{100}, whole / 2, whole - 1}) {
    {
      SmallDisk const disk(room);
      CHECK_THROWS_AS(rank.save(folder.path, 2), IoError);
    }
    CHECK(leftovers(folder.path) == 0);
    CHECK(newest_complete(folder.path).directory == first);
    CHECK_FALSE(fs::exists(folder / "checkpoints/step-00000002"));
  }
  write_bytes(folder / "file", "");
  CHECK_THROWS_AS(rank.save(folder / "file", 2), IoError);
}

TEST_CASE("an error of whoever supplies the state passes through and removes the temporary files") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  rank.save(folder.path, 1);
  auto const failing = [](StateBuffer buffer, std::int64_t, std::span<float>) {
    if (buffer == StateBuffer::v) throw CudaError("device lost");
  };
  Counters counters;
  counters.step = 2;
  CHECK_THROWS_AS(save_checkpoint(folder.path, rank.model(), counters, failing, {}, 3), CudaError);
  CHECK(leftovers(folder.path) == 0);
}

TEST_CASE("the newest `keep` checkpoints stay, and the one just written always does") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  for (std::int64_t const step : {1, 2, 3, 4}) rank.save(folder.path, step, 2);
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-00000002"));
  CHECK(fs::exists(folder / "checkpoints/step-00000003"));
  CHECK(fs::exists(folder / "checkpoints/step-00000004"));
  // A damaged one from beyond a resume does not push out what the resumed run writes.
  write_bytes(folder / "checkpoints/step-00000004/state.json", "");
  rank.save(folder.path, 3, 1);
  CHECK(names(newest_complete(folder.path).directory, "step-00000003"));
}

TEST_CASE("a link that leads nowhere gives its name to the checkpoint that is to have it") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  rank.save(folder.path, 1);
  fs::create_symlink("step-00000002", folder / "checkpoints/step-00000002");
  std::string const saved = rank.save(folder.path, 2).directory;
  CHECK(newest_complete(folder.path).directory == saved);
  CHECK(fs::symlink_status(saved).type() == fs::file_type::directory);
  CHECK(leftovers(folder.path) == 0);
}

TEST_CASE("a checkpoint that may not be read is not passed over for an older one") {
  TempFolder const folder;
  fs::permissions(folder.path, fs::perms::all);
  Rank const rank("llama-tied");
  rank.save(folder.path, 1);
  std::string const newest = rank.save(folder.path, 2).directory;
  CHECK(newest_complete(folder.path).directory == newest);
  // Root may read everything.
  fs::permissions(newest + "/model.safetensors", fs::perms::none);
  pid_t const child = ::fork();
  if (child == 0) {
    // By a path that leads through no folder of somebody else's.
    if (::chdir(folder.path.c_str()) != 0) ::_exit(8);
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(9);
    try {
      ::_exit(newest_complete(".").directory.empty() ? 1 : 2);
    } catch (const IoError& error) {
      ::_exit(names(error.what(), "model.safetensors") ? 0 : 3);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a checkpoint that is there under its name counts as saved though `latest` cannot move") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  rank.save(folder.path, 1, 1);
  fs::remove(folder / "checkpoints/latest");
  fs::create_directories(folder / "checkpoints/latest/in");
  SavedCheckpoint const saved = rank.save(folder.path, 2, 1);
  REQUIRE(saved.warnings.size() == 1);
  CHECK(names(saved.warnings[0], "latest"));
  CHECK(newest_complete(folder.path).directory == saved.directory);
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-00000001"));
  CHECK(leftovers(folder.path) == 0);
}

TEST_CASE(
    "what a run's end left undone is settled before it goes on: names, `latest`, and `keep`") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  std::string const checkpoints = folder / "checkpoints";
  for (std::int64_t const step : {1, 2, 3, 4}) rank.save(folder.path, step, 9);
  std::string const good = checkpoints + "/step-00000003", bad = checkpoints + "/step-00000004";
  std::string const state = read_bytes(bad + "/state.json");
  for (const char* aside : {".damaged", ".damaged-2"}) {
    write_bytes(bad + "/state.json", "");
    std::vector<std::string> const said = settle_checkpoints(newest_complete(folder.path), 2);
    REQUIRE(said.size() == 1);
    CHECK(names(said[0], "step-00000004" + std::string(aside)));
    CHECK(fs::read_symlink(checkpoints + "/latest") == "step-00000003");
    CHECK_FALSE(fs::exists(checkpoints + "/step-00000001"));
    CHECK(fs::exists(checkpoints + "/step-00000002"));
    // It can be read again: it is not what the run has come to since.
    write_bytes(bad + aside + "/state.json", state);
    CHECK(newest_complete(folder.path).directory == good);
    fs::copy(bad + aside, bad);
  }
  CHECK(newest_complete(folder.path).directory == bad);
  CHECK(settle_checkpoints(newest_complete(folder.path), 2).empty());
  CHECK(fs::read_symlink(checkpoints + "/latest") == "step-00000004");
  CHECK_FALSE(fs::exists(checkpoints + "/step-00000002"));
}

TEST_CASE("whoever reads a checkpoint's model holds its small files against their checksums") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  std::string const saved = rank.save(folder.path, 1).directory;
  CHECK_NOTHROW(check_small_files(saved));
  std::string config = read_bytes(saved + "/config.json");
  config.replace(config.find("rope_theta"), 10, "rope_thetb");
  write_bytes(saved + "/config.json", config);
  CHECK_THROWS_WITH(check_small_files(saved), Catch::Contains("config.json"));
  Config from;
  from.model.from = saved;
  CHECK_THROWS_AS(resolve_model(from), ConfigError);
  // Of a directory without a state.json nothing is known.
  fs::remove(saved + "/state.json");
  CHECK_NOTHROW(check_small_files(saved));
}

TEST_CASE("a damaged checkpoint takes no whole one's place among those that are kept") {
  TempFolder const folder;
  Rank const rank("llama-tied");
  for (std::int64_t const step : {1, 2, 3}) rank.save(folder.path, step, 3);
  write_bytes(folder / "checkpoints/step-00000003/model.safetensors", "short");
  rank.save(folder.path, 4, 2);
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-00000001"));
  CHECK(checkpoint_problems(folder / "checkpoints/step-00000002").empty());
  CHECK(fs::exists(folder / "checkpoints/step-00000003"));
  rank.save(folder.path, 5, 2);
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-00000003"));
  CHECK(checkpoint_problems(folder / "checkpoints/step-00000004").empty());
}

TEST_CASE("a model's sizes come from the newest checkpoint whose small files are as written") {
  TempFolder const folder;
  CHECK(newest_described(folder.path).empty());
  Rank const rank("llama-tied");
  std::string const old = rank.save(folder.path, 1).directory;
  std::string const last = rank.save(folder.path, 2).directory;
  CHECK(newest_described(folder.path) == last);
  write_bytes(last + "/model.safetensors", "");  // left to newest_complete
  CHECK(newest_described(folder.path) == last);
  std::string const config = read_bytes(last + "/config.json");
  write_bytes(last + "/config.json", config + " ");
  CHECK(newest_described(folder.path) == old);
  write_bytes(last + "/config.json", config);
  write_bytes(last + "/state.json", "{}");
  CHECK(newest_described(folder.path) == old);
  fs::remove(old + "/state.json");
  CHECK(newest_described(folder.path).empty());
}

TEST_CASE("saving the same step again replaces it") {
  TempFolder const folder;
  Rank a("llama-tied"), b("llama-tied");
  a.fill(1);
  a.save(folder.path, 5);
  a.fill(2);
  std::string const dir = a.save(folder.path, 5).directory;
  load_train_state(dir, b.model(), host_writer(b.state));
  CHECK(a.master == b.master);
  CHECK(leftovers(folder.path) == 0);
}
