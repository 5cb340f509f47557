// Calls of cuDNN that must succeed.
#pragma once
#include <cudnn.h>

namespace copus::cudnn {

[[noreturn]] void cudnn_failed(cudnnStatus_t status, const char* call, const char* file, int line);

}  // namespace copus::cudnn

#define CUDNN_CHECK(call)                                                          \
  do {                                                                             \
    cudnnStatus_t const cudnn_check_status = (call);                               \
    if (cudnn_check_status != CUDNN_STATUS_SUCCESS)                                \
      ::copus::cudnn::cudnn_failed(cudnn_check_status, #call, __FILE__, __LINE__); \
  } while (false)
