// The angles of rotary positions (Su et al. 2021), in Hugging Face's half-split pairing.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/core/config.h"

namespace copus {

// (positions, D/2, 2): cosine and sine of position * frequency, computed in double. Frequencies are
// theta^(-2i/D), stretched where the model says so. linear (Chen et al. 2023): all wavelengths by
// `factor`. llama3: wavelengths beyond original_max_positions / low_freq_factor by `factor`, those
// short of original_max_positions / high_freq_factor not at all, linearly in between.
std::vector<float> rope_table(const ModelConfig& model, std::int64_t positions);

}  // namespace copus
