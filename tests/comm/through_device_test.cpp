// Tensors of the host between ranks that their devices alone connect, and the note by which such a
// job comes together.
#include <catch2/catch.hpp>
#include <thread>

#include "comm/conformance.h"
#include "comm/job_note.h"
#include "copus/comm/staged.h"
#include "copus/comm/through_device.h"
#include "copus/core/error.h"
#include "support/far_backend.h"
#include "support/temp_folder.h"

using namespace copus;
using copus::test::FarBackend;

TEST_CASE("host tensors keep the laws of a communicator that moves far tensors alone") {
  for (int size : {1, 2, 3}) {
    CAPTURE(size);
    CHECK_NOTHROW(run_ranks(size, [](int, Communicator& world) {
      FarBackend far;
      auto const host = make_cpu_backend(1);
      auto const ranks = reach_through_device(stage_through_host(world, far), far);
      test::check_communicator(*ranks, *host, {{0, 1, 3, 1000, 1001}, 50'000});
    }));
  }
}

TEST_CASE("a job's note reaches whoever awaits it, whole, and is gone when removed") {
  test::TempFolder const folder;
  std::string const path = folder / "copus-job-7";
  std::string const note(128, '\x07');
  std::string got;
  std::thread reader([&] { got = await_note(path, std::chrono::seconds(60)); });
  leave_note(path, "of an earlier start, perhaps");
  leave_note(path, note);
  reader.join();
  CHECK((got == note || got == "of an earlier start, perhaps"));
  CHECK(await_note(path, std::chrono::seconds(0)) == note);
  remove_note(path);
  remove_note(path);
  try {
    await_note(path, std::chrono::milliseconds(1));
    FAIL("there was a note");
  } catch (const CommError& e) {
    CHECK(std::string(e.what()).find(path) == 0);
  }
  CHECK_THROWS_AS(leave_note(folder / "no such folder/note", note), IoError);
}
