// copus bench switch: what a change of layout costs, by phase.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bench.h"
#include "cli/number_checks.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/train/resolve.h"
#include "copus/train/switch_bench.h"

namespace copus {
namespace {

struct SwitchFlags {
  ModelFlags model;
  RankFlags rank;
  std::string ring;
  int repeats = 3;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

// "dp,tp,pp" or "dp,tp,pp,zero".
std::optional<Layout> layout_of(const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& word : split(text, ',')) {
    int number = 0;
    auto const [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) return {};
    numbers.push_back(number);
  }
  if (numbers.size() < 3 || numbers.size() > 4) return {};
  Layout layout{numbers[0], numbers[1], numbers[2]};
  if (numbers.size() == 4) layout.zero = numbers[3];
  bool const positive = layout.dp > 0 && layout.tp > 0 && layout.pp > 0;
  return positive && (layout.zero == 0 || layout.zero == 1) ? std::optional(layout) : std::nullopt;
}

std::vector<Layout> ring_of(const std::string& text, std::vector<std::string>& problems) {
  std::vector<Layout> ring;
  for (const std::string& word : split(text, ';')) {
    std::optional<Layout> const layout = layout_of(word);
    if (layout) {
      ring.push_back(*layout);
    } else {
      problems.push_back(fmt::format(
          "--ring: '{}' is no layout; expected dp,tp,pp or dp,tp,pp,zero, for example 2,2,1,1",
          word));
    }
  }
  if (ring.size() < 2 && problems.empty()) {
    problems.push_back(
        fmt::format("--ring '{}': a switch needs two layouts, for example \"2,2,1;1,2,2\"", text));
  }
  return ring;
}

// All ranks data parallel with ZeRO-1, all tensor parallel, all in a pipeline.
std::vector<Layout> default_ring(int ranks) {
  return {{ranks, 1, 1, 1, 1}, {1, ranks, 1}, {1, 1, ranks}};
}

void check_ring(const Config& config, const std::vector<Layout>& ring, int world) {
  std::vector<std::string> problems;
  for (const Layout& layout : ring) {
    if (layout.world() > world) {
      problems.push_back(fmt::format("--ring: {} needs {} ranks, there are {}; take --ranks {}",
                                     to_string(layout), layout.world(), world, layout.world()));
      continue;
    }
    for (const std::string& reason : illegal_reasons(config.model, layout, config.batch.sequences,
                                                     choose_micro(config, layout))) {
      problems.push_back(fmt::format("--ring: {}: {}", to_string(layout), reason));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

nlohmann::json as_json(const SwitchLeg& leg, double exchange_bandwidth) {
  nlohmann::json seconds{{"total", leg.total_seconds}};
  for (int i = 0; i < kSwitchPhases; ++i)
    seconds[name_of(static_cast<SwitchPhase>(i))] = leg.seconds[i];
  return {{"from", copus::as_json(leg.from)},
          {"to", copus::as_json(leg.to)},
          {"micro_batch", {{"from", leg.micro_from}, {"to", leg.micro_to}}},
          {"step_seconds", {{"before", leg.step_before}, {"after", leg.step_after}}},
          {"seconds", std::move(seconds)},
          {"bytes_moved", leg.bytes_moved},
          {"bytes_local", leg.bytes_local},
          {"peak_bytes", leg.peak_bytes},
          {"in_place", leg.in_place},
          {"moved_share_of_bandwidth", leg.moved_rate() / exchange_bandwidth},
          {"copied_share_of_bandwidth", leg.copied_rate() / exchange_bandwidth}};
}

void print_table(const SwitchBench& bench) {
  fmt::print("exchange of 64 MiB messages: {:.2f} GB/s sent by all ranks together\n",
             bench.exchange_bandwidth / 1e9);
  for (const SwitchLeg& leg : bench.legs) {
    fmt::print("\n{}  ->  {}: {:.3f} s; a step takes {:.3f} s before, {:.3f} s after\n",
               to_string(leg.from), to_string(leg.to), leg.total_seconds, leg.step_before,
               leg.step_after);
    for (int i = 0; i < kSwitchPhases; ++i) {
      fmt::print("  {:<10}{:>9.1f} ms{:>7.1f} %\n", name_of(static_cast<SwitchPhase>(i)),
                 1e3 * leg.seconds[i], 100.0 * leg.seconds[i] / leg.total_seconds);
    }
    fmt::print(
        "  {} moved at {:.2f} GB/s ({:.0f} % of that exchange); with {} copied within ranks {:.2f} "
        "GB/s "
        "({:.0f} %)\n",
        human_bytes(static_cast<double>(leg.bytes_moved)), leg.moved_rate() / 1e9,
        100.0 * leg.moved_rate() / bench.exchange_bandwidth,
        human_bytes(static_cast<double>(leg.bytes_local)), leg.copied_rate() / 1e9,
        100.0 * leg.copied_rate() / bench.exchange_bandwidth);
    fmt::print("  {} held at most by a rank, the new state {}\n",
               human_bytes(static_cast<double>(leg.peak_bytes)),
               leg.in_place ? "in the old one's memory" : "in memory of its own");
  }
}

void run_switch(const SwitchFlags& flags) {
  std::vector<std::string> problems;
  Config const config = config_of(flags.model, problems);
  std::vector<Layout> const asked =
      flags.ring.empty() ? std::vector<Layout>{} : ring_of(flags.ring, problems);
  if (!problems.empty()) throw ConfigError(problems);
  on_ranks(flags.rank, [&](const BenchRank& rank) {
    std::vector<Layout> const ring = asked.empty() ? default_ring(rank.world.size()) : asked;
    check_ring(config, ring, rank.world.size());
    SwitchBench const bench = bench_switch(config, rank.world, ring, rank.backend, flags.repeats,
                                           rank.backend.free_bytes() / rank.device.sharing);
    if (!rank.leads()) return;
    if (flags.rank.json) {
      nlohmann::json legs = nlohmann::json::array();
      for (const SwitchLeg& leg : bench.legs)
        legs.push_back(as_json(leg, bench.exchange_bandwidth));
      fmt::print("{}\n", nlohmann::json{{"model", flags.model.model},
                                        {"batch", flags.model.batch},
                                        {"seq_len", flags.model.seq_len},
                                        {"transport", rank.world.transport()},
                                        {"ranks", rank.world.size()},
                                        {"threads", rank.threads},
                                        {"repeats", flags.repeats},
                                        {"exchange_bandwidth", bench.exchange_bandwidth},
                                        {"switches", std::move(legs)}}
                             .dump(2));
    } else {
      fmt::print("{} fp32 on {} ranks of {} threads over {}, medians of {} rounds\n",
                 flags.model.model, rank.world.size(), rank.threads, rank.world.transport(),
                 flags.repeats);
      print_table(bench);
    }
  });
}

}  // namespace

void add_bench_switch(CLI::App& bench) {
  auto flags = std::make_shared<SwitchFlags>();
  flags->rank.ranks_alone = 4;
  CLI::App* command = bench.add_subcommand(
      "switch", "Changes of layout between two steps, there and back, by phase");
  add_model_options(*command, flags->model);
  add_rank_options(*command, flags->rank);
  command->add_option("--ring", flags->ring,
                      "Layouts to go through and back to the first, as dp,tp,pp[,zero];...; when "
                      "not given all ranks dp with ZeRO-1, all tp, all pp");
  command->add_option("--repeats", flags->repeats, "Rounds to take the median of")
      ->capture_default_str()
      ->check(whole_from(1));
  command->footer(
      "Example:\n  copus bench switch --ranks 4 --ring \"2,2,1,1;1,2,2\"\n"
      "  mpirun -n 4 --bind-to none copus bench switch");
  command->callback([flags] { run_switch(*flags); });
}

}  // namespace copus
