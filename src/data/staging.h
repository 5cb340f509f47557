// A hidden folder next to the final names: shards appear in the output directory all together or
// not at all.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace copus::detail {

// The shards (train-*.bin, val-*.bin) that stand in `folder`.
std::vector<std::filesystem::path> shards_in(const std::filesystem::path& folder);

class Staging {
 public:
  explicit Staging(const std::string& out);  // makes `out` where it is missing; throws IoError
  ~Staging();  // removes whatever was not published, and `out` if it is new
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::string folder() const { return folder_.string(); }
  // Removes old shards and moves the staged ones to their place.
  void publish();

 private:
  std::filesystem::path out_, folder_;
  std::vector<std::filesystem::path> created_;  // directories made for `out`, outermost first
};

}  // namespace copus::detail
