// The one feature switch in our sources: functions shared by host and device carry COPUS_HD.
#pragma once
#if defined(__CUDACC__)
#define COPUS_HD __host__ __device__ inline
#else
#define COPUS_HD inline
#endif
