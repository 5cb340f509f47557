// How one value of the configuration file is read, written and described.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config_names.h"

namespace copus::detail {

using Json = nlohmann::json;
using Problems = std::vector<std::string>;

template <class T>
struct Codec {
  std::string accepts;  // completes "it takes ..."
  // False: the value is not of this kind (the caller says so). Lists add their entries' problems
  // themselves.
  std::function<bool(const Json&, T&, const std::string& path, Problems&)> read;
  std::function<Json(const T&)> write;
  bool is_text = false;  // on the command line such a value needs no quotes, whatever it looks like
};

// A range of real numbers, an end excluded where said.
struct Interval {
  double low = 0.0, high = 0.0;
  bool without_low = false, without_high = false;
  bool holds(double x) const;
  std::string text() const;
};

std::optional<std::int64_t> exact_count(const std::string& text);  // "1.5B"; none if it is not one
std::optional<std::int64_t> count_of(const Json& value);           // number or text

// Sizes, batches and ranks stay where their products fit 64 bits.
constexpr std::int64_t kLargestSize = (std::int64_t{1} << 31) - 1;
constexpr int kMostRanks = 1 << 16;

Codec<std::int64_t> count(std::int64_t lowest, const std::string& what);  // up to 2^63 - 1
Codec<std::int64_t> size(std::int64_t lowest, const std::string& what);   // up to kLargestSize
Codec<int> small_whole(int lowest, int highest, const std::string& what);
Codec<std::uint64_t> seed_number();
Codec<double> real(const Interval& range);
Codec<bool> flag();
Codec<std::string> text(const std::string& what);
Codec<std::string> word(std::vector<std::string> words);  // one of these
Codec<std::vector<BatchStep>> batch_schedule();
Codec<std::optional<StepWindow>> step_window();  // "20-22" or "20"; "" for none
Codec<std::vector<DataSource>> data_sources();
Codec<std::vector<ScriptedSwitch>> script();

// The words of an enumeration.
template <class E>
Codec<E> choice() {
  std::string list;
  for (const auto& entry : EnumWords<E>::kWords)
    list += (list.empty() ? "" : ", ") + std::string(entry.second);
  return {"one of " + list,
          [](const Json& value, E& out, const std::string&, Problems&) {
            if (!value.is_string()) return false;
            for (const auto& [candidate, name] : EnumWords<E>::kWords) {
              if (value.get_ref<const std::string&>() != name) continue;
              out = candidate;
              return true;
            }
            return false;
          },
          [](const E& value) { return Json(std::string(word_of(value))); }, true};
}

// `inner`, or one word that stands for none.
template <class T>
Codec<std::optional<T>> or_word(Codec<T> inner, const std::string& none_word) {
  return {inner.accepts + ", or \"" + none_word + "\"",
          [inner, none_word](const Json& value, std::optional<T>& out, const std::string& path,
                             Problems& problems) {
            if (value == none_word) {
              out.reset();
              return true;
            }
            T inside{};
            if (!inner.read(value, inside, path, problems)) return false;
            out = inside;
            return true;
          },
          [inner, none_word](const std::optional<T>& value) {
            return value ? inner.write(*value) : Json(none_word);
          }};
}

// `inner`, or nothing at all: an absent key.
template <class T>
Codec<std::optional<T>> absent_or(Codec<T> inner) {
  Codec<std::optional<T>> codec = or_word(inner, "");
  codec.accepts = inner.accepts;
  codec.write = [inner](const std::optional<T>& value) {
    return value ? inner.write(*value) : Json();
  };
  codec.read = [inner](const Json& value, std::optional<T>& out, const std::string& path,
                       Problems& problems) {
    return inner.read(value, out.emplace(), path, problems);
  };
  return codec;
}

std::string shown(const Json& value);  // as typed, shortened

}  // namespace copus::detail
