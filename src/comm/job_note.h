// How a job's first process hands a few bytes to the others where nothing connects them yet: by a
// file that all of them see, such as one of a cluster's shared file system.
#pragma once
#include <chrono>
#include <string>

namespace copus {

// Whole or not at all, in place of what may lie there. Throws IoError.
void leave_note(const std::string& path, const std::string& note);
// The note, once it is there; throws CommError, naming the file, where it is not in time.
std::string await_note(const std::string& path, std::chrono::milliseconds limit);
// Once everyone has read it.
void remove_note(const std::string& path) noexcept;

}  // namespace copus
