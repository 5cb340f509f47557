#include "copus/backend/attention_kernel.h"

#include <catch2/catch.hpp>

using namespace copus;

TEST_CASE("cuDNN's attention is for bf16 without dropout, with heads it has kernels for") {
  auto const says = [](const AttentionTask& task, const std::string& words) {
    return own_kernel_reason(task).find(words) != std::string::npos;
  };
  CHECK(says({DType::f32, 64, false}, "takes bf16"));
  CHECK(says({DType::bf16, 64, true}, "dropout"));
  CHECK(says({DType::bf16, 60, false}, "not of 60"));
  CHECK(says({DType::bf16, 256, false}, "not of 256"));
  for (std::int64_t const width : {8, 64, 80, 128})
    CHECK(own_kernel_reason({DType::bf16, width, false}) == cudnn_problem());
}

TEST_CASE("the log says which attention runs, and why it is ours") {
  CHECK(attention_words({DType::f32, 64, false}) ==
        "attention by our own kernel: cuDNN's takes bf16");
  std::string const words = attention_words({DType::bf16, 64, false});
  if (cudnn_problem().empty()) {
    CHECK(words == "attention by cuDNN " + cudnn_version());
  } else {
    CHECK(words == "attention by our own kernel: " + cudnn_problem());
  }
}
