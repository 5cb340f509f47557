#include "cli/simulate_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "copus/core/error.h"
#include "state/files.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

// Folders above a path that are not there yet: made for it, and taken away where it fails.
class Parents {
 public:
  explicit Parents(const fs::path& path) {
    for (fs::path missing = path.parent_path(); !missing.empty() && !fs::exists(missing);
         missing = missing.parent_path()) {
      made_.push_back(missing);
    }
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      std::string const reason = error.message();
      remove();
      throw IoError(fmt::format("cannot create {}: {}", path.parent_path().string(), reason));
    }
  }
  ~Parents() { remove(); }
  Parents(const Parents&) = delete;
  Parents& operator=(const Parents&) = delete;

  void keep() { made_.clear(); }

 private:
  void remove() {
    std::error_code ignored;  // a destructor can only try
    for (const fs::path& folder : made_) fs::remove(folder, ignored);
    made_.clear();
  }
  std::vector<fs::path> made_;  // the deepest first
};

// Without links and trailing slashes: what a rename takes the place of.
fs::path real_path(const std::string& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  if (error) real = fs::absolute(path).lexically_normal();
  return real.has_filename() ? real : real.parent_path();
}

}  // namespace

void check_directory_is_free(const std::string& path) {
  std::error_code error;
  fs::path const real = real_path(path);
  fs::file_status const there = fs::status(real, error);
  if (fs::exists(there)) {
    bool const empty_folder = fs::is_directory(there) && fs::is_empty(real, error) && !error;
    if (!empty_folder || real == real.root_path()) {
      throw ConfigError(fmt::format(
          "--out: {} is there already; it takes a directory that is new or empty", path));
    }
    return;
  }
  for (fs::path above = real.parent_path(); above != above.parent_path();
       above = above.parent_path()) {
    fs::file_status const status = fs::status(above, error);
    if (fs::is_directory(status)) return;
    if (fs::exists(status)) {
      throw ConfigError(
          fmt::format("--out: {} cannot lie in {}, which is no directory", path, above.string()));
    }
  }
}

void write_simulation(const std::string& path, const SimulateReport& report) {
  fs::path const real = real_path(path);
  Parents parents(real);
  TemporaryTree tree(real.string() + ".partial", TemporaryTree::Name::unused);
  write_text_file(tree.file("summary.json"), text_of(as_json(report), 2));
  for (Policy policy : {Policy::fixed, Policy::adaptive_batch, Policy::co_adaptive}) {
    write_text_file(tree.file(fmt::format("{}.jsonl", name_of(policy))),
                    record_of(report.simulation.run(policy)));
  }
  rename_path(tree.path(), real.string());
  tree.keep();
  parents.keep();
}

}  // namespace copus
