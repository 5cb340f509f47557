#include "comm/job_note.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "copus/core/error.h"

namespace copus {

void leave_note(const std::string& path, const std::string& note) {
  std::string const unfinished = path + ".part";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(note.data(), static_cast<std::streamsize>(note.size()));
    file.close();
    if (!file) throw IoError(fmt::format("{}: cannot be written", unfinished));
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error) throw IoError(fmt::format("{}: cannot be written: {}", path, error.message()));
}

std::string await_note(const std::string& path, std::chrono::milliseconds limit) {
  auto const deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    std::ifstream file(path, std::ios::binary);
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (std::chrono::steady_clock::now() > deadline) {
      throw CommError(
          fmt::format("{}: the job's first process has left nothing there in {} s; every process "
                      "of a job without MPI has to see that file",
                      path, std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void remove_note(const std::string& path) noexcept {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace copus
