#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "copus/backend/machine.h"

namespace copus {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// "MemAvailable:   12345 kB"
std::int64_t system_available() {
  std::ifstream in("/proc/meminfo");
  for (std::string key; in >> key;) {
    std::int64_t kib = 0;
    if (key == "MemAvailable:" && in >> kib) return kib * 1024;
    std::getline(in, key);
  }
  return kUnknown;
}

// The number in a file; "max", or no such file, is no limit.
std::int64_t number_in(const std::string& path) {
  std::ifstream in(path);
  std::int64_t number = 0;
  return in >> number ? number : kUnknown;
}

// File pages that are booked as used and would be given up first.
std::int64_t cached_files(const std::string& folder) {
  std::ifstream in(folder + "/memory.stat");
  std::int64_t bytes = 0;
  for (std::string key; in >> key >> bytes;) {
    if (key == "inactive_file") return bytes;
  }
  return 0;
}

// What the control group (version 2) leaves.
std::int64_t group_available() {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  if (!std::getline(in, line) || line.rfind("0::", 0) != 0) return kUnknown;
  std::string const folder = "/sys/fs/cgroup" + line.substr(3);
  std::int64_t const limit = number_in(folder + "/memory.max");
  std::int64_t const used = number_in(folder + "/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  return std::max<std::int64_t>(0, limit - used + cached_files(folder));
}

}  // namespace

std::int64_t available_memory_bytes() {
  return std::min(system_available(), group_available());
}

}  // namespace copus
