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

// 1F1B with one chunk a rank, messages under its work. The longest path goes forward through the
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

// A stage has w + 1 micro-batches on their way to the last stage and back: where that takes longer
// than computing them, as it does between even stages, which cannot hide their messages, it goes
// round with every (w + 1)-th one. Those that fill no round, and those still on their way at the
// end, take the shortest stage's time each; with even stages these wait for messages too.
void add_rounds(std::int64_t m, int stage, const PipelineTimes& times, double before, double behind,
                std::vector<PipelineCost>& lines) {
  auto const s = static_cast<std::size_t>(stage);
  double const own = times.forward[s] + times.backward[s];
  double shortest = own, longest = own;
  for (std::size_t i = s + 1; i < times.forward.size(); ++i) {
    shortest = std::min(shortest, times.forward[i] + times.backward[i]);
    longest = std::max(longest, times.forward[i] + times.backward[i]);
  }
  auto const on_their_way = static_cast<std::int64_t>(times.forward.size() - s);
  if (times.message == 0.0 || on_their_way < 2) return;
  auto const n = static_cast<double>(on_their_way);
  double const pace = (behind + own) / n;
  double const waits =
      stage == 0 && longest - shortest < 1e-9 * longest ? 2.0 * (n - 2.0) * times.message : 0.0;
  lines.push_back({before + (n - 1.0) * shortest + waits -
                       static_cast<double>(m % on_their_way) * (pace - shortest),
                   pace, stage});
}

PipelineCost one_chunk(const PipelineTimes& times, std::int64_t m) {
  double const hops = 2.0 * times.message;  // between two neighbours, there and back
  double behind = std::accumulate(times.forward.begin(), times.forward.end(), 0.0) +
                  std::accumulate(times.backward.begin(), times.backward.end(), 0.0) +
                  hops * static_cast<double>(times.forward.size() - 1);
  double before = 0.0;
  std::vector<PipelineCost> lines;
  for (int stage = 0; stage < static_cast<int>(times.forward.size()); ++stage) {
    auto const s = static_cast<std::size_t>(stage);
    double const own = times.forward[s] + times.backward[s];
    behind -= own + (stage > 0 ? hops : 0.0);
    add_lines(m, stage, times, before, behind, lines);
    add_rounds(m, stage, times, before, behind, lines);
    before += own + hops;
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

// What messages under the work add. Virtual stages hide all but those of one micro-batch, unless
// one takes longer than a forward.
PipelineCost under_work_line(const Layout& layout, const PipelineTimes& times, std::int64_t m) {
  double const pp = layout.pp, v = layout.virtual_stages;
  if (layout.virtual_stages > 1) {
    double const forward = *std::min_element(times.forward.begin(), times.forward.end());
    double const longer = std::max(0.0, times.message - forward);
    return {2.0 * (pp * v - 1.0) * times.message - (pp * (v - 1.0) + 1.0) * longer, v * longer};
  }
  PipelineTimes bare = times;
  bare.message = 0.0;
  PipelineCost const with = one_chunk(times, m), without = one_chunk(bare, m);
  return {with.alpha - without.alpha, with.beta - without.beta};
}

PipelineCost message_line(const Layout& layout, const PipelineTimes& times, std::int64_t m,
                          double under_work) {
  if (layout.pp == 1 || times.message == 0.0) return {};
  PipelineCost const full = exchanges_line(layout, times.message);
  if (under_work == 0.0) return full;
  PipelineCost const under = under_work_line(layout, times, m);
  auto const mix = [&](double a, double b) { return (1.0 - under_work) * a + under_work * b; };
  return {mix(full.alpha, under.alpha), mix(full.beta, under.beta)};
}

// Times are those of ranks that all work. Where they share processors, few busy stages run faster
// (one of pp at most pp times as fast: its own ranks work together), but processors that are never
// idle still need all of the work's time.
PipelineCost sharing(const PipelineCost& path, const Layout& layout, const PipelineTimes& times,
                     std::int64_t m, double alone) {
  double const faster = std::min(alone, static_cast<double>(layout.pp));
  double const work = std::accumulate(times.forward.begin(), times.forward.end(), 0.0) +
                      std::accumulate(times.backward.begin(), times.backward.end(), 0.0);
  PipelineCost const alone_path{path.alpha / faster, path.beta / faster, path.stage};
  PipelineCost const shared{0.0, work / layout.pp, path.stage};
  auto const at = [m](const PipelineCost& line) {
    return line.alpha + line.beta * static_cast<double>(m);
  };
  return at(alone_path) > at(shared) ? alone_path : shared;
}

}  // namespace

PipelineCost pipeline_cost(const Layout& layout, const PipelineTimes& times,
                           std::int64_t micro_batches, double alone, double under_work) {
  COPUS_CHECK(times.forward.size() == static_cast<std::size_t>(layout.pp) *
                                          static_cast<std::size_t>(layout.virtual_stages),
              "one time a chunk of the model");
  PipelineTimes bare = times;
  bare.message = 0.0;
  PipelineCost line =
      layout.virtual_stages > 1 ? interleaved(layout, bare) : one_chunk(bare, micro_batches);
  if (alone > 1.0) line = sharing(line, layout, bare, micro_batches, alone);
  PipelineCost const messages = message_line(layout, times, micro_batches, under_work);
  line.alpha += messages.alpha;
  line.busy = std::min(line.beta, line.beta + messages.beta);
  line.beta += messages.beta;
  return line;
}

}  // namespace copus
