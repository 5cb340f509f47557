// The closed form of the pipeline simulator: the longest path through the schedule.
#include <algorithm>
#include <numeric>

#include "copus/core/error.h"
#include "copus/plan/cost.h"

namespace copus {
namespace {

// Exchanges between neighbours on the longest path: so many, and so many more a micro-batch. With
// one chunk a rank, each micro-batch is passed on and its gradient back; two ranks do both at once.
PipelineCost exchanges_line(const Layout& layout, double message) {
  double const pp = layout.pp, v = layout.virtual_stages;
  if (layout.virtual_stages > 1) return {(v * pp + pp - 3.0) * message, v * message};
  if (layout.pp == 2) return {message, message};
  return {(2.0 * pp - 5.0) * message, 2.0 * message};
}

// Seconds of one micro-batch through the whole model, there and back.
double work_of(const PipelineTimes& times) {
  return std::accumulate(times.forward.begin(), times.forward.end(), 0.0) +
         std::accumulate(times.backward.begin(), times.backward.end(), 0.0);
}

// 1F1B with one chunk a rank, without its messages. The longest path goes forward through the
// stages before s, stays at s for its m forwards and backwards, and returns. Where the stages
// behind s (`behind` seconds in all, there and back) are slower than the `w` forwards that s runs
// ahead, it goes through them instead: with the first micro-batch, with the last, or both.
void add_lines(std::int64_t m, int stage, const PipelineTimes& times, double before, double behind,
               std::vector<PipelineCost>& lines) {
  auto const s = static_cast<std::size_t>(stage);
  double const forward = times.forward[s], backward = times.backward[s];
  auto const w = static_cast<std::int64_t>(times.forward.size()) - 1 - stage;
  double const ahead = static_cast<double>(w);
  if (m > w) {
    double const first = std::max(0.0, behind - ahead * forward);
    double const last = std::max(0.0, behind - ahead * backward);
    // With w + 1 micro-batches the last one sets out before the first is back.
    lines.push_back(
        {before + (m > w + 1 ? first + last : std::max(first, last)), forward + backward, stage});
    return;
  }
  // All m forwards come before the first backward.
  lines.push_back({before, forward + backward, stage});
  lines.push_back(
      {before + behind + std::min(forward, backward), std::max(forward, backward), stage});
}

PipelineCost one_chunk(const PipelineTimes& times, std::int64_t m) {
  double behind = work_of(times);
  double before = 0.0;
  std::vector<PipelineCost> lines;
  for (int stage = 0; stage < static_cast<int>(times.forward.size()); ++stage) {
    auto const s = static_cast<std::size_t>(stage);
    double const own = times.forward[s] + times.backward[s];
    behind -= own;
    add_lines(m, stage, times, before, behind, lines);
    before += own;
  }
  auto const at = [m](const PipelineCost& line) {
    return line.alpha + line.beta * static_cast<double>(m);
  };
  return *std::max_element(lines.begin(), lines.end(),
                           [&](const auto& a, const auto& b) { return at(a) < at(b); });
}

// Interleaved 1F1B: chunks are equal but for the model's ends, and a rank waits for the others'
// chunks instead of their stages (Narayanan et al. 2021, section 2.2).
PipelineCost interleaved(const Layout& layout, const PipelineTimes& times) {
  auto const pp = static_cast<std::size_t>(layout.pp);
  std::vector<double> ranks(pp);
  for (std::size_t chunk = 0; chunk < times.forward.size(); ++chunk) {
    ranks[chunk % pp] += times.forward[chunk] + times.backward[chunk];
  }
  auto const slowest = std::max_element(ranks.begin(), ranks.end());
  double const sum = std::accumulate(ranks.begin(), ranks.end(), 0.0);
  return {(sum - *slowest) / layout.virtual_stages, *slowest,
          static_cast<int>(slowest - ranks.begin())};
}

// What messages add under the work of virtual stages: all are hidden but those of one micro-batch,
// unless one takes longer than a forward.
PipelineCost under_work_line(const Layout& layout, const PipelineTimes& times) {
  double const pp = layout.pp, v = layout.virtual_stages;
  double const forward = *std::min_element(times.forward.begin(), times.forward.end());
  double const longer = std::max(0.0, times.message - forward);
  return {2.0 * (pp * v - 1.0) * times.message - (pp * (v - 1.0) + 1.0) * longer, v * longer};
}

PipelineCost message_line(const Layout& layout, const PipelineTimes& times, double can_start) {
  if (layout.pp == 1 || times.message == 0.0) return {};
  PipelineCost const full = exchanges_line(layout, times.message);
  if (messages_of(layout, can_start > 0.0) == Messages::between_work) return full;
  PipelineCost const under = under_work_line(layout, times);
  auto const mix = [&](double a, double b) { return (1.0 - can_start) * a + can_start * b; };
  return {mix(full.alpha, under.alpha), mix(full.beta, under.beta)};
}

// Times are those of ranks that all work. Where they share processors, few busy stages run faster
// (one of pp at most pp times as fast: its own ranks work together), but processors that are never
// idle still need all of the work's time.
PipelineCost sharing(const PipelineCost& path, const Layout& layout, const PipelineTimes& times,
                     std::int64_t m, double alone) {
  double const faster = std::min(alone, static_cast<double>(layout.pp));
  PipelineCost const alone_path{path.alpha / faster, path.beta / faster, path.stage};
  PipelineCost const shared{0.0, work_of(times) / layout.pp, path.stage};
  auto const at = [m](const PipelineCost& line) {
    return line.alpha + line.beta * static_cast<double>(m);
  };
  return at(alone_path) > at(shared) ? alone_path : shared;
}

}  // namespace

PipelineCost pipeline_cost(const Layout& layout, const PipelineTimes& times,
                           std::int64_t micro_batches, double alone, double can_start) {
  COPUS_CHECK(times.forward.size() == static_cast<std::size_t>(layout.pp) *
                                          static_cast<std::size_t>(layout.virtual_stages),
              "one time a chunk of the model");
  PipelineCost line =
      layout.virtual_stages > 1 ? interleaved(layout, times) : one_chunk(times, micro_batches);
  if (alone > 1.0) line = sharing(line, layout, times, micro_batches, alone);
  PipelineCost const messages = message_line(layout, times, can_start);
  line.alpha += messages.alpha;
  line.busy = std::min(line.beta, line.beta + messages.beta);
  line.beta += messages.beta;
  return line;
}

}  // namespace copus
