// XXH3 compiled in: scalar, several GB/s, more than any disk (GCC 12's AVX-512 headers do not
// compile without warnings inside it).
#pragma once
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>
