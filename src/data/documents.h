// Input files cut into tasks, and tasks turned into token ids with the ends of documents marked.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "copus/data/tokenizer.h"

namespace copus::detail {

struct TextInput {
  std::string path;
  std::int64_t bytes = 0;  // on disk
  bool jsonl = false, gzip = false;
};

// A stretch of one file: bytes [begin, end) of a plain one (lines that start there, for jsonl), all
// of a gzipped one.
struct TextTask {
  TextInput input;
  std::int64_t begin = 0, end = 0;
};

// What a task yields, piece by piece.
struct TokenPiece {
  std::vector<std::int32_t> ids;  // an end of text after each complete document
  std::int64_t documents = 0, empty_documents = 0;
  std::int64_t input_bytes = 0;  // taken from the file for this piece
  std::vector<std::string> problems;
};

constexpr std::int64_t kTaskBytes = std::int64_t{2} << 20;

// Checks every path and adds what is wrong to `problems`.
std::vector<TextInput> check_inputs(const std::vector<std::string>& files,
                                    std::vector<std::string>& problems);
// A file without bytes has no task. Cutting plain text is right for a tokenizer that treats every
// byte alone; one that merges bytes must get whole documents.
std::vector<TextTask> cut_into_tasks(const std::vector<TextInput>& inputs,
                                     std::int64_t task_bytes = kTaskBytes);
void tokenize(const TextTask& task, const Tokenizer& tokenizer,
              const std::function<void(TokenPiece)>& emit);

}  // namespace copus::detail
