#include "state/checkpoint_state.h"
#include "state/model_copy.h"

#include <nlohmann/json.hpp>

namespace copus {

CheckpointSummary import_checkpoint(const std::string& hf_dir, const std::string& out) {
  return copy_model(
      hf_dir, out, DType::f32,
      [](TemporaryTree& tree, const CheckpointSummary& summary, const FileSums& sums) {
        write_text_file(tree.file(kStateFile), state_text(make_state(summary, sums)));
      });
}

}  // namespace copus
