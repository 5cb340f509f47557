// The safetensors file format: a JSON header of names, types, shapes and offsets, then the bytes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "copus/core/dtype.h"

namespace copus {

struct TensorEntry {
  std::string dtype;  // "F32", "BF16", "F16", ... as in the file
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes from the start of the data
  std::int64_t numel() const;
};

// Reads are checked: a hostile length or offset never reads or allocates beyond the file.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);  // throws IoError (world) or ConfigError
                                                         // (malformed, with what and where)
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;

  const std::map<std::string, TensorEntry>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  const std::string& path() const;
  // Elements [first, first + out.size()) of a tensor, converted to f32 (F32, BF16, F16). Any thread
  // may call it. Takes no memory beyond `out`. IoError where the file has become shorter.
  void read_f32(const std::string& name, std::int64_t first, std::span<float> out) const;

 private:
  struct Opened;
  explicit SafetensorsFile(std::unique_ptr<Opened> file);
  std::unique_ptr<Opened> file_;
};

// Writes tensors of one type, F32 or BF16, in the given order; the sizes are known before the
// bytes, which `append` streams (rounded to the nearest, ties to even).
class SafetensorsWriter {
 public:
  struct Item {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  SafetensorsWriter(const std::string& path, const std::vector<Item>& items,
                    const std::map<std::string, std::string>& metadata, DType dtype = DType::f32);
  ~SafetensorsWriter();
  void append(std::span<const float> elements);  // the next bytes, in item order
  void finish();                                 // all written, fsynced, closed; throws IoError
  // Of the finished file: what a checkpoint's state.json records.
  std::int64_t file_bytes() const;
  std::uint64_t file_hash() const;  // XXH3, 64 bits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
