#include "data/staging.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "copus/core/error.h"

namespace copus::detail {

namespace fs = std::filesystem;

std::vector<fs::path> shards_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string const name = it->path().filename().string();
    bool const part = name.rfind("train-", 0) == 0 || name.rfind("val-", 0) == 0;
    if (part && it->path().extension() == ".bin") found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Staging::Staging(const std::string& out)
    : out_(fs::absolute(out)), folder_(out_ / fmt::format(".prepare-{}", ::getpid())) {
  for (fs::path missing = folder_.parent_path(); !missing.empty() && !fs::exists(missing);
       missing = missing.parent_path()) {
    created_.insert(created_.begin(), missing);
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    std::string const reason = error.message();
    for (auto it = created_.rbegin(); it != created_.rend(); ++it) fs::remove(*it, error);
    throw IoError(fmt::format("{}: cannot create: {}", folder_.string(), reason));
  }
}

Staging::~Staging() {
  std::error_code ignored;  // a destructor can only try
  fs::remove_all(folder_, ignored);
  for (auto it = created_.rbegin(); it != created_.rend(); ++it) fs::remove(*it, ignored);
}

void Staging::publish() {
  try {
    for (const fs::path& old : shards_in(out_)) fs::remove(old);
    for (const fs::path& shard : shards_in(folder_)) fs::rename(shard, out_ / shard.filename());
  } catch (const fs::filesystem_error& e) {
    throw IoError(fmt::format("{}: cannot move the shards here: {}", out_.string(), e.what()));
  }
  created_.clear();
}

}  // namespace copus::detail
