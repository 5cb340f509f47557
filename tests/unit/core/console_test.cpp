#include "copus/core/console.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>

using namespace copus;

namespace {

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    for (int const end : ends)
      if (end >= 0) ::close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // All that was written, until none is left.
  std::string drain() const {
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(n));
    return text;
  }
  void leave() {
    ::close(ends[0]);
    ends[0] = -1;
  }
};

}  // namespace

TEST_CASE("lines that nobody reads are dropped whole, and the next one that is read counts them") {
  Pipe pipe;
  Console console(pipe.ends[1]);
  std::string const line(999, 'x');
  int written = 0;
  while (console.write(line + "\n")) ++written;  // a console that waited for ever would hang here
  CHECK(written > 0);
  CHECK_FALSE(console.write("second\n"));
  CHECK_FALSE(console.write_now("live"));  // of the moment: nobody misses it
  std::string const before = pipe.drain();
  CHECK(before.size() == static_cast<std::size_t>(written) * 1000);
  CHECK(console.write("third\n"));
  CHECK(console.write("fourth\n"));
  CHECK(pipe.drain() ==
        "warning: 2 lines are missing here: stderr was not read, or had no room\nthird\nfourth\n");
}

TEST_CASE("a line longer than a pipe takes at once comes whole where somebody reads") {
  // A socket, for a buffer of any size.
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  std::string const line = std::string(20'000, 'y') + "\n";
  CHECK(Console(ends[1]).write(line));
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  CHECK(text == line);
}

TEST_CASE("a reader that has left, and a full disk, end nothing") {
  Pipe pipe;
  pipe.leave();
  Console console(pipe.ends[1]);
  CHECK_FALSE(console.write("a line\n"));  // SIGPIPE would end this process
  CHECK_FALSE(console.write_now("another"));
  int const full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(full >= 0);
  CHECK_FALSE(Console(full).write("a line\n"));
  ::close(full);
  CHECK_FALSE(Console(full).write("to what is closed\n"));
}
