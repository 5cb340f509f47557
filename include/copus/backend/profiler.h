// The window of a run that an attached profiler records: nsys and ncu wait for it when they are
// told so (--capture-range=cudaProfilerApi, --profile-from-start no).
#pragma once

namespace copus {

// Of the whole process, on its GPUs. Opening an open window and closing a closed one do nothing,
// and nor does either without a profiler.
void open_profiler_window();
void close_profiler_window();

}  // namespace copus
