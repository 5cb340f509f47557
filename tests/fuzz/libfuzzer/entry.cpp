// libFuzzer's way in; COPUS_FUZZ_TARGET is one function of targets.h.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  copus::test::COPUS_FUZZ_TARGET({data, size});
  return 0;
}
