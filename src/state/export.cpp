#include "state/model_copy.h"

namespace copus {

CheckpointSummary export_checkpoint(const std::string& checkpoint, const std::string& out,
                                    DType dtype) {
  // Weights, config.json and tokenizer are all that a Hugging Face model is.
  return copy_model(checkpoint, out, dtype,
                    [](TemporaryTree&, const CheckpointSummary&, const FileSums&) {});
}

}  // namespace copus
