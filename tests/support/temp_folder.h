// A folder of a test's own, gone at its end.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "copus/core/error.h"

namespace copus::test {

struct TempFolder {
  std::string path;
  TempFolder() {
    path = (std::filesystem::temp_directory_path() / "copus-test-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) throw IoError("no temporary folder");
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

}  // namespace copus::test
