// The keys of the configuration file, one row each: parsing, nearest names, writing and
// documentation all read this one table.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config_codec.h"

namespace copus::detail {

template <class Owner>
struct Key {
  std::string path;  // dotted, from the owner's place in the file
  std::string accepts;
  std::function<void(Owner&, const Json&, const std::string& full_path, Problems&)> read;
  std::function<Json(const Owner&)> write;  // null: the key is left out
  bool is_text = false;
  bool derived = false;  // has no default of its own: required, or follows from other keys
};

template <class Owner>
using Table = std::vector<Key<Owner>>;

// `get(owner)` gives the field, for a const and for a mutable owner.
template <class Owner, class Get, class T>
Key<Owner> key_row(const std::string& path, Get get, Codec<T> codec, bool derived = false) {
  return {path,
          codec.accepts,
          [get, codec](Owner& owner, const Json& value, const std::string& full_path,
                       Problems& problems) {
            if (!codec.read(value, get(owner), full_path, problems))
              problems.push_back(fmt::format("{}: {} is not accepted; it takes {}", full_path,
                                             shown(value), codec.accepts));
          },
          [get, codec](const Owner& owner) { return codec.write(get(owner)); },
          codec.is_text,
          derived};
}

const Table<Config>& config_table();
const Table<ScriptedSwitch>& script_table();
const Table<DataSource>& source_table();

template <class Owner>
std::vector<std::string> paths_of(const Table<Owner>& table) {
  std::vector<std::string> paths;
  for (const Key<Owner>& key : table) paths.push_back(key.path);
  return paths;
}

// True when `path` is not a key but holds keys ("model").
bool is_section(const std::string& path, const std::vector<std::string>& known);
// One sentence about a key that does not exist: the section and the nearest known key.
// `place` is where the table's root lies in the file ("" or "adapt.script[0]").
std::string unknown_key(const std::string& path, const std::vector<std::string>& known,
                        const std::string& place);

// Reads an object's keys into `owner`; `given` collects the paths that hold a value.
template <class Owner>
void read_keys(const Json& object, const std::string& section, const std::string& place,
               const Table<Owner>& table, Owner& owner, std::set<std::string>& given,
               Problems& problems) {
  auto const full = [&place](const std::string& path) {
    return place.empty() ? path : (path.empty() ? place : place + "." + path);
  };
  if (!object.is_object()) {
    problems.push_back(fmt::format("{}: {} is not accepted; it takes an object {{...}}",
                                   full(section), shown(object)));
    return;
  }
  std::vector<std::string> const known = paths_of(table);
  for (const auto& [name, value] : object.items()) {
    std::string const path = section.empty() ? name : section + "." + name;
    auto const key = std::find_if(table.begin(), table.end(),
                                  [&path](const Key<Owner>& row) { return row.path == path; });
    bool const a_section = key == table.end() && is_section(path, known);
    if (key == table.end() && !a_section) {
      problems.push_back(unknown_key(path, known, place));
    } else if (value.is_null()) {
      continue;  // as if it were not there
    } else if (a_section) {
      read_keys(value, path, place, table, owner, given, problems);
    } else {
      given.insert(path);
      key->read(owner, value, full(path), problems);
    }
  }
}

// The inverse, sections nested.
template <class Owner>
Json write_keys(const Table<Owner>& table, const Owner& owner) {
  Json object = Json::object();
  for (const Key<Owner>& key : table) {
    Json value = key.write(owner);
    if (value.is_null()) continue;
    std::string pointer = "/" + key.path;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    object[Json::json_pointer(pointer)] = std::move(value);
  }
  return object;
}

}  // namespace copus::detail
