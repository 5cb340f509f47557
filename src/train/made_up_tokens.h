// Samples for benchmarks, which need tokens but no text.
#pragma once
#include <cstdint>
#include <span>

#include "copus/core/rng.h"
#include "copus/train/trainer.h"

namespace copus {

// Uniform: every embedding row is as likely as any other.
inline SampleSource made_up_tokens(std::int64_t vocab) {
  return
      [vocab](std::int64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
        RngStream const stream = stream_of({1, RngPurpose::test, 0, 0});
        std::uint64_t const first = static_cast<std::uint64_t>(index) * (inputs.size() + 1);
        auto const token = [&](std::uint64_t i) {
          return static_cast<std::int32_t>(random_bits(stream, first + i) %
                                           static_cast<std::uint64_t>(vocab));
        };
        for (std::size_t t = 0; t < inputs.size(); ++t) {
          inputs[t] = token(t);
          targets[t] = token(t + 1);
        }
      };
}

}  // namespace copus
