// Which elements dropout keeps, as factors 0 or 1/(1-p), many at a time.
#pragma once
#include <algorithm>
#include <cstdint>

#include "copus/backend/backend.h"

namespace copus {

class KeepMask {
 public:
  static constexpr std::int64_t kRun = 1024;  // elements a caller asks for at a time, at most

  explicit KeepMask(const Dropout& options)
      : stream_(options.stream),
        threshold_(options.threshold()),
        kept_(1.0f / (1.0f - options.p)) {}

  // out[i] for element first + i, i < n.
  void factors(float* out, std::uint64_t first, std::int64_t n) const {
    std::int64_t done = 0;
    while (done < n) {
      std::uint64_t const element = first + static_cast<std::uint64_t>(done);
      auto const skip = static_cast<std::int64_t>(element & 3);
      std::int64_t const count = std::min(kLanes * 4 - skip, n - done);
      float block[kLanes * 4];
      sixty_four(block, element >> 2);
      std::copy(block + skip, block + skip + count, out + done);
      done += count;
    }
  }

 private:
  static constexpr std::int64_t kLanes = 16;

  void sixty_four(float* out, std::uint64_t group) const {
    RngStream const stream = stream_;
    std::uint32_t const threshold = threshold_;
    float const kept = kept_;
    float lane[4][kLanes];
#pragma omp simd
    for (std::int64_t i = 0; i < kLanes; ++i) {
      PhiloxWords const words =
          philox(stream.key, group + static_cast<std::uint64_t>(i), stream.high);
      lane[0][i] = words.word[0] >= threshold ? kept : 0.0f;
      lane[1][i] = words.word[1] >= threshold ? kept : 0.0f;
      lane[2][i] = words.word[2] >= threshold ? kept : 0.0f;
      lane[3][i] = words.word[3] >= threshold ? kept : 0.0f;
    }
    for (std::int64_t i = 0; i < kLanes; ++i) {
      for (std::int64_t w = 0; w < 4; ++w) out[i * 4 + w] = lane[w][i];
    }
  }

  RngStream stream_;
  std::uint32_t threshold_;
  float kept_;
};

}  // namespace copus
