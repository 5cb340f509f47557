// Text to Config: syntax, duplicate keys, overrides, then the table's rows.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config_keys.h"
#include "config_rules.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/json_text.h"

namespace copus {
namespace detail {
namespace {

// "file:3:7: what is wrong" from the parser's byte position.
std::string syntax_problem(const Json::parse_error& error, const std::string& text,
                           const std::string& name) {
  std::size_t const at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
  auto const begin = text.begin(), end = begin + static_cast<std::ptrdiff_t>(at);
  auto const line = std::count(begin, end, '\n') + 1;
  std::size_t const newline = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  std::size_t const column = newline == std::string::npos ? at + 1 : at - newline;
  std::string what = error.what();
  std::size_t const start = what.find(": ");  // after the library's own tag and position
  if (start != std::string::npos) what = what.substr(start + 2);
  return fmt::format("{}:{}:{}: {}", name, line, column, what);
}

// Parses, and names every key that stands twice in one object (the library would keep the last).
class DuplicateFinder {
 public:
  explicit DuplicateFinder(Problems& problems) : problems_(problems) {}

  bool operator()(int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) {
      objects_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      objects_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      Object& object = objects_.back();
      object.last = value.get<std::string>();
      if (!object.keys.insert(object.last).second)
        problems_.push_back(path() + ": this key stands twice; keep one of them");
    }
    return true;
  }

 private:
  struct Object {
    std::set<std::string> keys;
    std::string last;
  };
  std::string path() const {
    std::string text;
    for (const Object& object : objects_) text += (text.empty() ? "" : ".") + object.last;
    return text;
  }
  std::vector<Object> objects_;
  Problems& problems_;
};

Json parse_text(const std::string& text, const std::string& name, Problems& problems) {
  constexpr bool kThrow = true, kComments = true;
  if (nests_deeper(text))
    throw ConfigError(fmt::format("{}: brackets nest deeper than {} levels, which no key takes",
                                  name, kDeepestJson));
  DuplicateFinder finder(problems);
  try {
    return Json::parse(
        text,
        [&finder](int depth, Json::parse_event_t event, Json& value) {
          return finder(depth, event, value);
        },
        kThrow, kComments);
  } catch (const Json::parse_error& error) {
    throw ConfigError(syntax_problem(error, text, name));
  } catch (const Json::exception& error) {  // a number no double can hold
    throw ConfigError(fmt::format("{}: {}", name, error.what()));
  }
}

// The value as typed on a command line: JSON if it is JSON, else text.
Json override_value(const std::string& text, bool wants_text) {
  constexpr bool kNoThrow = false;
  if (nests_deeper(text)) return text;
  Json value = Json::parse(text, nullptr, kNoThrow);
  bool const keep = !value.is_discarded() && (!wants_text || value.is_string() || value.is_null());
  return keep ? value : Json(text);
}

void apply_override(Json& document, const std::string& path, const std::string& text,
                    Problems& problems) {
  const Table<Config>& table = config_table();
  std::vector<std::string> const known = paths_of(table);
  auto const key = std::find_if(table.begin(), table.end(),
                                [&path](const Key<Config>& row) { return row.path == path; });
  if (key == table.end() && !is_section(path, known)) {
    problems.push_back(fmt::format("--set {}={}: {}", path, text, unknown_key(path, known, "")));
    return;
  }
  Json* node = &document;
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    if (node->is_null()) *node = Json::object();
    if (!node->is_object()) return;  // the file's own mistake, named when its keys are read
    node = &(*node)[name];
  }
  *node = override_value(text, key != table.end() && key->is_text);
}

}  // namespace

bool Draft::blamed(const std::string& path) const {
  std::string const section = path.substr(0, path.find('.'));
  return std::any_of(problems.begin(), problems.end(), [&](const std::string& problem) {
    return problem.starts_with(path) || problem.starts_with(section + ": ");
  });
}

}  // namespace detail

Config parse_config(const std::string& json_text, const std::string& name,
                    const Overrides& overrides, ConfigUse use, std::vector<std::string>& warnings) {
  detail::Draft draft;
  detail::Json document = detail::parse_text(json_text, name, draft.problems);
  if (!document.is_object())
    throw ConfigError(fmt::format("{}: {} is not accepted; the file takes one object {{...}}", name,
                                  detail::shown(document)));
  for (const auto& [path, text] : overrides)
    detail::apply_override(document, path, text, draft.problems);
  detail::read_keys(document, "", "", detail::config_table(), draft.config, draft.given,
                    draft.problems);
  detail::resolve(draft, name, use, warnings);
  detail::check_rules(draft.config, draft.problems);
  if (draft.config.model.from.empty()) detail::check_fit(draft.config, draft.problems);
  if (!draft.problems.empty()) throw ConfigError(draft.problems);
  return draft.config;
}

Config read_config(const std::string& path, const Overrides& overrides, ConfigUse use,
                   std::vector<std::string>& warnings) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A directory opens like a file, and reads as an empty one.
  bool const readable = file && !std::filesystem::is_directory(path);
  if (readable) text << file.rdbuf();
  if (!readable || file.bad())
    throw ConfigError(fmt::format("{}: cannot be read; give the path of a JSON file", path));
  return parse_config(text.str(), path, overrides, use, warnings);
}

}  // namespace copus
