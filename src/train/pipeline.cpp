#include "copus/train/pipeline.h"

#include "copus/parallel/schedule.h"

namespace copus {
namespace {

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

double run_pipeline(Stage& stage, const Mesh& mesh, std::int64_t count,
                    const MicroBatchOf& batch_of, const GradientOf& ready) {
  double loss = 0.0;
  for (const Instruction& instruction : pipeline_schedule(mesh.layout(), mesh.coord().pp, count)) {
    switch (instruction.work) {
      case Work::forward:
        stage.forward(instruction.micro, instruction.chunk, batch_of(instruction.micro));
        break;
      case Work::backward:
        // Each chunk's backwards come in the order of the micro-batches.
        loss += stage.backward(instruction.micro, instruction.chunk, batch_of(instruction.micro),
                               [&](std::int64_t layer) { ready(instruction.micro, layer); });
        break;
      case Work::exchange:
        run_exchange(stage, mesh, instruction);
        break;
    }
  }
  return loss;
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
