// What a metrics.jsonl holds of a run that is to go on.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace copus {

struct MetricsRecord {
  std::int64_t bytes = 0;  // of its whole lines up to `last_step`, from the beginning
  std::int64_t steps = 0, last_step = 0;  // among them: steps recorded, and the last of those
  std::int64_t saved_step = -1;           // of the last checkpoint that they tell of; -1: none
  // Lines among them that are none of a record, and the number of the first of those.
  std::int64_t unreadable = 0, first_unreadable = 0;
};

// Reads up to the first line of a later step than `last_step`; a last line without its end was cut
// off in the middle, and does not count. A file that is not there holds nothing.
MetricsRecord read_metrics_record(
    const std::string& path, std::int64_t last_step = std::numeric_limits<std::int64_t>::max());

// Gives a metrics.jsonl that is not to be gone on with another name, and puts an empty one in its
// place; a kill in between leaves one that can be resumed. Returns the other name. Throws IoError.
std::string set_metrics_aside(const std::string& path);

}  // namespace copus
