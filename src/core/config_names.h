// The words the configuration file uses for our enumerations, one table each.
#pragma once
#include <array>
#include <string_view>
#include <utility>

#include "copus/core/config.h"

namespace copus::detail {

template <class E>
struct EnumWords;  // kWords: every value with its word

#define COPUS_ENUM_WORDS(Enum, Count, ...)                                                       \
  template <>                                                                                    \
  struct EnumWords<Enum> {                                                                       \
    static constexpr std::array<std::pair<Enum, std::string_view>, Count> kWords{{__VA_ARGS__}}; \
  }

COPUS_ENUM_WORDS(Family, 3, {Family::llama, "llama"}, {Family::qwen2, "qwen2"},
                 {Family::gpt2, "gpt2"});
COPUS_ENUM_WORDS(RopeKind, 2, {RopeKind::llama3, "llama3"}, {RopeKind::linear, "linear"});
COPUS_ENUM_WORDS(ScheduleKind, 3, {ScheduleKind::constant, "constant"},
                 {ScheduleKind::cosine, "cosine"}, {ScheduleKind::wsd, "wsd"});
COPUS_ENUM_WORDS(LrRule, 3, {LrRule::none, "none"}, {LrRule::sqrt, "sqrt"},
                 {LrRule::linear, "linear"});
COPUS_ENUM_WORDS(BetaRule, 2, {BetaRule::fixed, "fixed"}, {BetaRule::half_life, "half_life"});
COPUS_ENUM_WORDS(DecayRule, 2, {DecayRule::fixed, "fixed"}, {DecayRule::timescale, "timescale"});
COPUS_ENUM_WORDS(Precision, 2, {Precision::fp32, "fp32"}, {Precision::bf16, "bf16"});
COPUS_ENUM_WORDS(Recompute, 3, {Recompute::none, "none"}, {Recompute::selective, "selective"},
                 {Recompute::full, "full"});
COPUS_ENUM_WORDS(AdaptMode, 4, {AdaptMode::off, "off"}, {AdaptMode::log, "log"},
                 {AdaptMode::suggest, "suggest"}, {AdaptMode::act, "act"});
COPUS_ENUM_WORDS(Objective, 3, {Objective::plain, "plain"}, {Objective::sqrt_lr, "sqrt_lr"},
                 {Objective::normalized, "normalized"});
COPUS_ENUM_WORDS(DeviceChoice, 3, {DeviceChoice::automatic, "auto"}, {DeviceChoice::cpu, "cpu"},
                 {DeviceChoice::cuda, "cuda"});
COPUS_ENUM_WORDS(TransportChoice, 4, {TransportChoice::automatic, "auto"},
                 {TransportChoice::thread, "thread"}, {TransportChoice::mpi, "mpi"},
                 {TransportChoice::nccl, "nccl"});

#undef COPUS_ENUM_WORDS

template <class E>
std::string_view word_of(E value) {
  for (const auto& [candidate, word] : EnumWords<E>::kWords)
    if (candidate == value) return word;
  return "?";
}

}  // namespace copus::detail
