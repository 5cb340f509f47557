#include "copus/state/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "state_fixture.h"
#include "support/small_disk.h"
#include "whole_rank.h"

using namespace copus;
using namespace copus::test;
namespace fs = std::filesystem;

namespace {

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
