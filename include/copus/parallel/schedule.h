// What each pipeline rank does in a step, in order: 1F1B and interleaved 1F1B as lists of
// instructions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "copus/parallel/layout.h"

namespace copus {

enum class Traffic : std::uint8_t { activation, gradient };

// One tensor to or from a neighbour. `chunk` is the local one: whose output is sent, whose input is
// received. Messages of one pair of ranks match in the order posted; those that are started, in the
// order of their own traffic.
struct Message {
  Traffic traffic = Traffic::activation;
  int peer = 0;  // pipeline rank
  std::int64_t micro = 0;
  int chunk = 0;
  bool operator==(const Message&) const = default;
};

enum class Work : std::uint8_t { forward, backward, exchange, start, wait };

// Forward or backward of micro-batch `micro` through the layers of chunk `chunk`; or one grouped
// exchange, which is over when every message in it has met its counterpart; or a start of messages,
// which is over at once; or a wait for some that have been started: what was received is then in
// its place, and what was sent from may be written again. All ranks number the micro-batches of a
// step alike, 0 .. m-1.
struct Instruction {
  Work work = Work::forward;
  std::int64_t micro = 0;
  int chunk = 0;
  std::vector<Message> sends, recvs;
  bool operator==(const Instruction&) const = default;
};
using Schedule = std::vector<Instruction>;

// When messages move: in exchanges between forwards and backwards, or started as soon as what they
// need is there and waited for by the forward or backward that cannot go on without: under those in
// between. A rank then has at most one message of each traffic on its way out and one on its way
// in, so it needs one buffer for each of the four.
enum class Messages : std::uint8_t { between_work, under_work };

// When those of a layout move, `can_start`: whether its transport can start them. With one chunk a
// stage next to nothing could be hidden, and looking after messages costs more
// (docs/benchmarks/cpu-step.md).
Messages messages_of(const Layout& layout, bool can_start);

// The step of pipeline rank `pp_rank` with `micro_batches` micro-batches a data-parallel rank. With
// virtual stages these must be a multiple of pp: ConfigError with the nearest otherwise.
Schedule pipeline_schedule(const Layout& layout, int pp_rank, std::int64_t micro_batches,
                           Messages messages);

// The most forwards (micro-batches of one chunk) whose activations wait for their backward at one
// time on this rank.
std::int64_t live_peak(const Layout& layout, int pp_rank, std::int64_t micro_batches);

// Seconds of one micro-batch through one chunk, by place in the model: entry chunk * pp + pp_rank.
struct PipelineTimes {
  std::vector<double> forward, backward;
  double message = 0.0;  // from the moment both sides are there
};

struct PipelineRun {
  std::string stuck;  // empty: every list ran to its end; else who waits for what
  double seconds = 0.0;
  std::vector<double> busy;             // seconds of computing, by pipeline rank
  std::vector<std::int64_t> live_peak;  // as counted while running
  // Idle share of the rank that computes most: what a perfect pipeline would not lose.
  double bubble_seconds() const;
};

// Runs all ranks' lists side by side. A message starts when both sides have posted it; sends are
// not buffered, so a list that could hang over any transport hangs here. Work that reads what has
// not arrived or writes what is still being sent, and a receive into a buffer that is not free, are
// our mistakes: InternalError.
PipelineRun simulate_pipeline(const Layout& layout, const std::vector<Schedule>& schedules,
                              const PipelineTimes& times);

}  // namespace copus
