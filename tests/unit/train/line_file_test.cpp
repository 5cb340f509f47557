#include "train/line_file.h"

#include <catch2/catch.hpp>

#include "support/small_disk.h"
#include "unit/state/state_fixture.h"

using namespace copus;
using copus::test::read_bytes;
using copus::test::SmallDisk;
using copus::test::TempFolder;

TEST_CASE("lines that a full disk refuses wait, and are written whole and in order") {
  TempFolder const here;
  LineFile file(here / "lines");
  file.append("the first");
  CHECK(read_bytes(here / "lines") == "the first\n");
  for (rlim_t const room : {rlim_t{0}, rlim_t{1}, rlim_t{3}, rlim_t{8}}) {
    CAPTURE(room);
    std::string const before = read_bytes(here / "lines");
    {
      SmallDisk const disk(before.size() + room);  // a part of a line may still fit
      file.append("second");
      file.append("third");
      bool const one_fits = room >= sizeof("second");
      CHECK(file.waiting() == std::size_t{one_fits ? 1u : 2u});
      CHECK(file.problem().find("cannot write: ") != std::string::npos);
      CHECK(file.sync() == file.problem());
    }
    file.append("fourth");
    CHECK(file.problem().empty());
    CHECK(file.waiting() == 0);
    CHECK(read_bytes(here / "lines") == before + "second\nthird\nfourth\n");
  }
  CHECK(file.dropped() == 0);
}

TEST_CASE("what waits takes no more memory than it may, and what is dropped is counted") {
  TempFolder const here;
  LineFile file(here / "lines", 30);
  {
    SmallDisk const disk(0);
    for (int i = 0; i < 10; ++i) file.append("line " + std::to_string(i) + "..");
  }
  CHECK(file.waiting() == 3);
  CHECK(file.dropped() == 7);
  CHECK(file.sync().empty());
  CHECK(read_bytes(here / "lines") == "line 0..\nline 1..\nline 2..\n");
  file.append("after");
  CHECK(read_bytes(here / "lines") == "line 0..\nline 1..\nline 2..\nafter\n");
}

TEST_CASE("the end of a file's use writes what still waits") {
  TempFolder const here;
  {
    LineFile file(here / "lines");
    {
      SmallDisk const disk(0);
      file.append("in time");
    }
  }
  CHECK(read_bytes(here / "lines") == "in time\n");
}
