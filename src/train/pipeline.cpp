#include "copus/train/pipeline.h"

#include <algorithm>
#include <chrono>

#include "copus/parallel/schedule.h"

namespace copus {
namespace {

// Measures the pace of the last stage by the ends of two backwards.
class PaceWatch {
 public:
  PaceWatch(const Mesh& mesh, std::int64_t count) : last_(count - 1) {
    const Layout& layout = mesh.layout();
    bool const speaks = layout.virtual_stages == 1 && mesh.coord().pp == layout.pp - 1;
    // The first pp - 1 find the stages before them still filling.
    if (speaks && count > 1) first_ = std::min<std::int64_t>(layout.pp - 1, count - 2);
  }
  void ended(std::int64_t micro) {
    if (micro == first_) start_ = std::chrono::steady_clock::now();
    if (first_ < 0 || micro != last_) return;
    std::chrono::duration<double> const all = std::chrono::steady_clock::now() - start_;
    pace_ = all.count() / static_cast<double>(last_ - first_);
  }
  std::optional<double> pace() const { return pace_; }

 private:
  std::int64_t first_ = -1, last_;
  std::chrono::steady_clock::time_point start_;
  std::optional<double> pace_;
};

TensorView to_send(const Stage& stage, const Message& message) {
  return message.traffic == Traffic::activation ? stage.output() : stage.input_gradient();
}

TensorView to_receive(Stage& stage, const Message& message) {
  return message.traffic == Traffic::activation ? stage.input(message.micro, message.chunk)
                                                : stage.output_gradient();
}

void run_exchange(Stage& stage, const Mesh& mesh, const Instruction& instruction) {
  std::vector<Parcel> sends, receives;
  for (const Message& message : instruction.sends)
    sends.push_back({message.peer, to_send(stage, message)});
  for (const Message& message : instruction.recvs)
    receives.push_back({message.peer, to_receive(stage, message)});
  // pp: activations to the next stage, gradients to the one before.
  mesh.pp().exchange(sends, receives);
}

}  // namespace

PipelineResult run_pipeline(Stage& stage, const Mesh& mesh, std::int64_t count,
                            const MicroBatchOf& batch_of, const GradientOf& ready) {
  PipelineResult run;
  PaceWatch watch(mesh, count);
  for (const Instruction& instruction : pipeline_schedule(mesh.layout(), mesh.coord().pp, count)) {
    switch (instruction.work) {
      case Work::forward:
        stage.forward(instruction.micro, instruction.chunk, batch_of(instruction.micro));
        break;
      case Work::backward:
        // Each chunk's backwards come in the order of the micro-batches.
        run.loss +=
            stage.backward(instruction.micro, instruction.chunk, batch_of(instruction.micro),
                           [&](std::int64_t layer) { ready(instruction.micro, layer); });
        watch.ended(instruction.micro);
        break;
      case Work::exchange:
        run_exchange(stage, mesh, instruction);
        break;
    }
  }
  run.pace = watch.pace();
  return run;
}

double run_forward_only(Stage& stage, const Mesh& mesh, std::int64_t count,
                        const MicroBatchOf& batch_of) {
  int const pp = mesh.layout().pp, here = mesh.coord().pp;
  double loss = 0.0;
  for (std::int64_t micro = 0; micro < count; ++micro) {
    for (int chunk = 0; chunk < mesh.layout().virtual_stages; ++chunk) {
      if (!stage.is_first(chunk)) {
        Parcel const parcel{(here + pp - 1) % pp, stage.input(micro, chunk)};
        mesh.pp().exchange({}, {&parcel, 1});
      }
      loss += stage.evaluate(micro, chunk, batch_of(micro));
      if (!stage.is_last(chunk)) {
        Parcel const parcel{(here + 1) % pp, stage.output()};
        mesh.pp().exchange({&parcel, 1}, {});
      }
    }
  }
  return loss;
}

}  // namespace copus
