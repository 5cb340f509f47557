// Which checkpoint a run goes on from, and what becomes of the others.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "copus/state/checkpoint_draft.h"
#include "whole_rank.h"

using namespace copus;
using namespace copus::test;
namespace fs = std::filesystem;

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
