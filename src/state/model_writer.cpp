#include "state/model_writer.h"

#include <algorithm>

#include "copus/core/error.h"
#include "copus/state/hf.h"
#include "copus/state/safetensors.h"

namespace copus {
namespace {

// One tensor of the file and the logical tensors in it, in column order (three in GPT-2's c_attn).
struct FileTensor {
  HfPlace place;
  std::vector<const Param*> parts;
};

std::vector<FileTensor> file_tensors(const ModelConfig& model, const std::vector<Param>& table) {
  std::vector<FileTensor> tensors;
  for (const Param& param : table) {
    HfPlace place = hf_place(model, param);
    auto const same = std::find_if(tensors.begin(), tensors.end(),
                                   [&](const FileTensor& t) { return t.place.name == place.name; });
    if (same == tensors.end()) {
      COPUS_CHECK(place.first_column == 0, "the parts of a fused tensor come in column order");
      tensors.push_back({std::move(place), {&param}});
    } else {
      same->parts.push_back(&param);
    }
  }
  return tensors;
}

// File rows [first, first + rows) of a transposed tensor, from columns of its logical parts.
void gather_transposed(const FileTensor& tensor, std::int64_t first, std::int64_t rows,
                       const BoxReader& read, std::vector<float>& part, std::span<float> out) {
  std::int64_t const width = tensor.place.shape[1];
  std::int64_t column = 0;
  for (const Param* param : tensor.parts) {
    std::int64_t const entries = param->size[0];
    part.resize(static_cast<std::size_t>(entries * rows));
    read(*param, {{0, first}, {entries, rows}}, part);
    for (std::int64_t i = 0; i < rows; ++i) {
      float* const to = out.data() + i * width + column;
      const float* const from = part.data() + i;
      for (std::int64_t j = 0; j < entries; ++j) to[j] = from[j * rows];
    }
    column += entries;
  }
  COPUS_CHECK(column == width, "the parts fill the file's tensor");
}

void write_tensor(SafetensorsWriter& writer, const FileTensor& tensor, const BoxReader& read) {
  std::vector<float> stage, part;
  if (!tensor.place.transposed) {
    for (const Param* param : tensor.parts) {
      for_row_blocks(*param, [&](std::int64_t first, std::int64_t rows) {
        stage.resize(static_cast<std::size_t>(rows * param->size[1]));
        read(*param, {{first, 0}, {rows, param->size[1]}}, stage);
        writer.append(stage);
      });
    }
    return;
  }
  std::int64_t const width = tensor.place.shape[1], height = tensor.place.shape[0];
  std::int64_t const step = std::max<std::int64_t>(1, kStagedElements / width);
  for (std::int64_t first = 0; first < height; first += step) {
    std::int64_t const rows = std::min(step, height - first);
    stage.resize(static_cast<std::size_t>(rows * width));
    gather_transposed(tensor, first, rows, read, part, stage);
    writer.append(stage);
  }
}

}  // namespace

void for_row_blocks(const Param& param,
                    const std::function<void(std::int64_t, std::int64_t)>& body) {
  std::int64_t const step = std::max<std::int64_t>(1, kStagedElements / param.size[1]);
  for (std::int64_t first = 0; first < param.size[0]; first += step) {
    body(first, std::min(step, param.size[0] - first));
  }
}

FileSum write_model_file(const std::string& path, const ModelConfig& model,
                         const std::vector<Param>& table, const BoxReader& read, DType dtype) {
  std::vector<FileTensor> const tensors = file_tensors(model, table);
  std::vector<SafetensorsWriter::Item> items;
  for (const FileTensor& t : tensors) {
    std::vector<std::int64_t> shape{t.place.shape[0]};
    if (t.place.dims == 2) shape.push_back(t.place.shape[1]);
    items.push_back({t.place.name, std::move(shape)});
  }
  // Hugging Face's loaders ask for the format's name.
  SafetensorsWriter writer(path, items, {{"format", "pt"}}, dtype);
  for (const FileTensor& t : tensors) write_tensor(writer, t, read);
  writer.finish();
  return {writer.file_bytes(), writer.file_hash()};
}

}  // namespace copus
