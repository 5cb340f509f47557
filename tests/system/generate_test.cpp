// Text from a model, against what an independent float64 forward finds likeliest.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::Workspace;

namespace {

std::string bytes(const std::vector<int>& ids) {
  std::string text;
  for (int const id : ids) text += static_cast<char>(id);
  return text;
}

}  // namespace

TEST_CASE(
    "at temperature 0 the text is the independent forward's, also past the model's positions") {
  struct Case {
    const char *model, *prompt;
    std::vector<int> follows;
  };
  // The two largest logits differ by 2e-4 or more on the way; fp32 errs by some 1e-6.
  for (const Case& c :
       {Case{"llama-gqa", "In the ", {80,  244, 133, 244, 133, 80,  244, 133, 198, 198, 156, 9,
                                      184, 207, 110, 68,  80,  244, 133, 80,  244, 133, 80,  244}},
        Case{"llama-tied", "In the ", {32, 32, 32, 32, 32, 32, 32, 32, 32, 5, 5, 5,
                                       5,  5,  5,  5,  5,  5,  5,  5,  5,  5, 5, 5}},
        Case{"qwen2", "In the ", std::vector<int>(24, 207)},
        // 76 bytes of a model with 64 positions: the latest 64 are seen.
        Case{"llama-gqa",
             "And God said, Let there be light: and there was light. And God saw the light",
             {171, 198, 198, 198, 130, 198}}}) {
    CAPTURE(c.model, c.prompt);
    Reference const reference(c.model);
    Workspace const here;
    Outcome const outcome =
        here.copus("generate '" + reference.directory + "' --tokenizer bytes --temperature 0 " +
                   "--tokens " + std::to_string(c.follows.size()) + " --prompt '" + c.prompt + "'");
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.out == c.prompt + bytes(c.follows) + "\n");
  }
}

TEST_CASE("text that cannot be written is a failure") {
  Reference const reference("llama-tied");
  Workspace const here;
  Outcome const full = here.copus("generate '" + reference.directory +
                                  "' --prompt a --tokens 2 --tokenizer bytes >/dev/full");
  CHECK(full.code == 1);
  CHECK(full.err.find("stdout: cannot write") != std::string::npos);
}

TEST_CASE("the seed decides the text, and one of the likeliest is always the likeliest") {
  Reference const reference("llama-gqa");
  Workspace const here;
  auto const text = [&](const std::string& options) {
    Outcome const outcome =
        here.copus("generate '" + reference.directory +
                   "' --tokenizer bytes --tokens 20 --prompt 'In the ' " + options);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    return outcome.out;
  };
  CHECK(text("--seed 7") == text("--seed 7"));
  CHECK(text("--seed 7") != text("--seed 8"));
  CHECK(text("--seed 7 --top-k 1") == text("--temperature 0"));
}

TEST_CASE("a checkpoint says its tokenizer; where none is said or it is not ours, that is told") {
  Reference const reference("qwen2");
  Workspace const here;
  REQUIRE(here.copus("import '" + reference.directory + "' --out model").code == 0);
  Outcome const unknown = here.copus("generate model --prompt x");
  CHECK(unknown.code == 2);
  CHECK(unknown.err.find("--tokenizer bytes") != std::string::npos);
  here.write("model/tokenizer.json", "{}");
  Outcome const foreign = here.copus("generate model --prompt x");
  CHECK(foreign.code == 2);
  CHECK(foreign.err.find("tokenizer.json") != std::string::npos);
  Outcome const wrong = here.copus("generate model --prompt x --tokenizer words");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("\"words\"") != std::string::npos);
  CHECK(here.copus("generate model --prompt x --tokenizer bytes --tokens 0").code == 2);
  CHECK(here.copus("generate nowhere --prompt x").code == 2);
}

TEST_CASE("on a terminal a model's control characters are shown and not obeyed") {
  int const terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  Reference const reference("llama-tied");
  Workspace const here;
  // Kept open, so that what is written to it is not lost at the end of the command.
  int const shown = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(shown >= 0);
  Outcome const outcome = here.copus(
      "generate '" + reference.directory +
      "' --tokenizer bytes --temperature 0 --tokens 11 --prompt 'In the ' >" + ::ptsname(terminal));
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  std::string text;
  char next = 0;
  // It arrives a little after it was written; ten seconds are for a test that fails.
  for (pollfd wait{terminal, POLLIN, 0}; !text.ends_with("\r\n") && ::poll(&wait, 1, 10'000) > 0;)
    if (::read(terminal, &next, 1) == 1) text += next;
  CHECK(text == "In the " + std::string(9, ' ') + "\\x05\\x05\r\n");
  ::close(shown);
  ::close(terminal);
}
