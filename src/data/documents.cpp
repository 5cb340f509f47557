#include "data/documents.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "copus/core/error.h"
#include "data/input_file.h"

namespace copus::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLookAhead = std::int64_t{1} << 16;

std::string without(const std::string& name, const char* ending) {
  std::size_t const length = std::char_traits<char>::length(ending);
  bool const has = name.size() > length && name.compare(name.size() - length, length, ending) == 0;
  return has ? name.substr(0, name.size() - length) : name;
}

void end_document(const Tokenizer& tokenizer, TokenPiece& piece) {
  piece.ids.push_back(tokenizer.end_of_text);
  ++piece.documents;
}

// One line of a .jsonl file. Returns what is wrong with it, or nothing.
std::string add_line(std::string_view line, const Tokenizer& tokenizer, TokenPiece& piece) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  try {
    nlohmann::json const value = nlohmann::json::parse(line);
    if (!value.is_object() || !value.contains("text")) {
      return "no JSON object with a \"text\" field";
    }
    if (!value["text"].is_string()) return "\"text\" is not a string";
    const auto& text = value["text"].get_ref<const std::string&>();
    if (text.empty()) {
      ++piece.empty_documents;
      return {};
    }
    encode(tokenizer, text, piece.ids);
    end_document(tokenizer, piece);
    return {};
  } catch (const nlohmann::json::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: ...": from the column on.
    std::string_view const what = e.what();
    std::size_t const column = what.find("column");
    return fmt::format("not JSON: {}", column == what.npos ? what : what.substr(column));
  }
}

void plain_range(const TextTask& task, const Tokenizer& tokenizer, TokenPiece& piece) {
  std::string text;
  InputFile(task.input.path).read(task.begin, task.end - task.begin, text);
  piece.ids.reserve(text.size() + 1);
  encode(tokenizer, text, piece.ids);
  if (task.end == task.input.bytes) end_document(tokenizer, piece);
}

void jsonl_range(const TextTask& task, const Tokenizer& tokenizer, TokenPiece& piece) {
  InputFile const file(task.input.path);
  std::string text;
  std::int64_t const from = task.begin == 0 ? 0 : task.begin - 1;
  file.read(from, task.end - from, text);
  std::size_t at = 0;
  if (task.begin > 0) {  // the line that goes on here belongs to the task before
    at = text.find('\n');
    if (at == std::string::npos) return;
    ++at;
  }
  std::int64_t const first_line_at = from + static_cast<std::int64_t>(at);
  if (first_line_at >= task.end) return;
  for (std::int64_t end = task.end; text.back() != '\n' && end < task.input.bytes;) {
    std::size_t const before = text.size();
    file.read(end, kLookAhead, text);
    if (text.size() == before) break;
    end += static_cast<std::int64_t>(text.size() - before);
    std::size_t const newline = text.find('\n', before);
    if (newline != std::string::npos) text.resize(newline + 1);
  }
  std::int64_t lines_before = -1;  // counted only if there is something to complain about
  for (std::int64_t line = 1; at < text.size(); ++line) {
    std::size_t const end = std::min(text.find('\n', at), text.size());
    std::string const problem =
        add_line(std::string_view(text).substr(at, end - at), tokenizer, piece);
    if (!problem.empty()) {
      if (lines_before < 0) lines_before = file.newlines_before(first_line_at);
      piece.problems.push_back(
          fmt::format("{}:{}: {}", task.input.path, lines_before + line, problem));
    }
    at = end + 1;
  }
}

void plain_gzip(const TextTask& task, const Tokenizer& tokenizer,
                const std::function<void(TokenPiece)>& emit) {
  GzipReader reader(task.input.path);
  std::string text;
  std::int64_t position = 0;
  bool any = false;
  while (reader.read(static_cast<std::size_t>(kTaskBytes), text)) {
    TokenPiece piece;
    encode(tokenizer, text, piece.ids);
    piece.input_bytes = reader.compressed_position() - position;
    position = reader.compressed_position();
    text.clear();
    any = true;
    emit(std::move(piece));
  }
  TokenPiece last;
  last.input_bytes = task.input.bytes - position;
  if (any) {
    end_document(tokenizer, last);
  } else {
    ++last.empty_documents;
  }
  emit(std::move(last));
}

void jsonl_gzip(const TextTask& task, const Tokenizer& tokenizer,
                const std::function<void(TokenPiece)>& emit) {
  GzipReader reader(task.input.path);
  std::string text;  // starts with the unfinished line of the piece before
  std::int64_t position = 0, line = 1;
  for (bool more = true; more;) {
    more = reader.read(static_cast<std::size_t>(kTaskBytes), text);
    TokenPiece piece;
    std::size_t at = 0;
    while (at < text.size()) {
      std::size_t end = text.find('\n', at);
      if (end == std::string::npos && more) break;
      end = std::min(end, text.size());
      std::string const problem =
          add_line(std::string_view(text).substr(at, end - at), tokenizer, piece);
      if (!problem.empty()) {
        piece.problems.push_back(fmt::format("{}:{}: {}", task.input.path, line, problem));
      }
      ++line;
      at = end + 1;
    }
    text.erase(0, at);
    std::int64_t const now = more ? reader.compressed_position() : task.input.bytes;
    piece.input_bytes = now - position;
    position = now;
    emit(std::move(piece));
  }
}

}  // namespace

std::vector<TextInput> check_inputs(const std::vector<std::string>& files,
                                    std::vector<std::string>& problems) {
  static constexpr const char* kPacked[] = {".zst", ".xz",  ".bz2", ".lz4",    ".zip",
                                            ".7z",  ".tar", ".tgz", ".parquet"};
  std::vector<TextInput> inputs;
  for (const std::string& path : files) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      problems.push_back(fmt::format("{}: does not exist", path));
      continue;
    }
    if (!fs::is_regular_file(path, error)) {
      problems.push_back(
          fmt::format("{}: not a regular file; give the text files themselves", path));
      continue;
    }
    std::string const name = without(path, ".gz");
    TextInput input{path, 0, without(name, ".jsonl") != name, name != path};
    for (const char* const packed : kPacked) {
      if (without(name, packed) == name) continue;
      problems.push_back(
          fmt::format("{}: {} files are not read; accepted: plain text, .jsonl, and .gz of both",
                      path, packed));
    }
    input.bytes = static_cast<std::int64_t>(fs::file_size(path, error));
    if (error) problems.push_back(fmt::format("{}: cannot stat: {}", path, error.message()));
    if (::access(path.c_str(), R_OK) != 0)
      problems.push_back(fmt::format("{}: not readable", path));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<TextTask> cut_into_tasks(const std::vector<TextInput>& inputs,
                                     std::int64_t task_bytes) {
  std::vector<TextTask> tasks;
  for (const TextInput& input : inputs) {
    std::int64_t const step = input.gzip ? std::max<std::int64_t>(input.bytes, 1) : task_bytes;
    for (std::int64_t begin = 0; begin < input.bytes; begin += step) {
      tasks.push_back({input, begin, std::min(begin + step, input.bytes)});
    }
  }
  return tasks;
}

void tokenize(const TextTask& task, const Tokenizer& tokenizer,
              const std::function<void(TokenPiece)>& emit) {
  if (task.input.gzip) {
    (task.input.jsonl ? jsonl_gzip : plain_gzip)(task, tokenizer, emit);
    return;
  }
  TokenPiece piece;
  piece.input_bytes = task.end - task.begin;
  (task.input.jsonl ? jsonl_range : plain_range)(task, tokenizer, piece);
  emit(std::move(piece));
}

}  // namespace copus::detail
