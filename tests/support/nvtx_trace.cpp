// What a profiler would see: an NVTX injection library (NVTX_INJECTION64_PATH) that writes each
// range's begin as "+ depth name" and each end as "- depth" to the file that NVTX_TRACE names.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* trace() {
  static std::FILE* const file = [] {
    const char* const path = std::getenv("NVTX_TRACE");
    return path != nullptr ? std::fopen(path, "w") : nullptr;
  }();
  return file;
}

thread_local int depth = 0;

int NVTX_API push(const char* name) {
  if (trace() != nullptr) {
    std::fprintf(trace(), "+ %d %s\n", depth, name);
    std::fflush(trace());
  }
  return depth++;
}

int NVTX_API pop() {
  --depth;
  if (trace() != nullptr) {
    std::fprintf(trace(), "- %d\n", depth);
    std::fflush(trace());
  }
  return depth;
}

}  // namespace

extern "C" int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  auto const* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  if (size <= NVTX_CBID_CORE_RangePop) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
