// Writes a model's weights, and its optimizer's moments, as safetensors, streaming by tensor.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "copus/state/checkpoint.h"
#include "state/files.h"

namespace copus {

// Elements staged in memory at a time: a tensor is never held twice.
constexpr std::int64_t kStagedElements = std::int64_t{1} << 22;

// Fills `out` with a box of a logical tensor, row-major.
using BoxReader = std::function<void(const Param&, const Box&, std::span<float>)>;

FileSum write_model_file(const std::string& path, const ModelConfig& model,
                         const std::vector<Param>& table, const BoxReader& read,
                         DType dtype = DType::f32);

// Calls body(first row, rows) so that each stretch of a tensor fits the stage.
void for_row_blocks(const Param& param,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace copus
