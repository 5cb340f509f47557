#include "copus/train/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

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

// A stage's messages to and from its neighbours.
class StageMessages {
 public:
  StageMessages(Stage& stage, Communicator& pp) : stage_(stage), pp_(pp) {}

  // One grouped call.
  void exchange(const Instruction& group) {
    std::vector<Parcel> sends, receives;
    for (const Message& message : group.sends) sends.push_back(outgoing(message));
    for (const Message& message : group.recvs) receives.push_back(incoming(message));
    // pp: activations to the next stage, gradients to the one before.
    pp_.exchange(sends, receives);
    for (const Message& message : group.recvs) take(message);
  }
  // pp: as above, one message after the other. Both sides start those of one traffic in the same
  // order (simulate_pipeline).
  void start(const Instruction& group) {
    for (const Message& message : group.sends) {
      Parcel const parcel = outgoing(message);
      sends_[place(message)] = pp_.start({&parcel, 1}, {});
    }
    for (const Message& message : group.recvs) {
      Parcel const parcel = incoming(message);
      receives_[place(message)] = pp_.start({}, {&parcel, 1});
    }
  }
  void wait(const Instruction& group) {
    for (const Message& message : group.sends) finish(sends_[place(message)]);
    for (const Message& message : group.recvs) {
      finish(receives_[place(message)]);
      take(message);
    }
  }

 private:
  // At most one of each traffic is under way in each direction.
  using UnderWay = std::array<std::unique_ptr<Transfer>, 2>;
  static std::size_t place(const Message& message) {
    return static_cast<std::size_t>(message.traffic);
  }
  static void finish(std::unique_ptr<Transfer>& transfer) {
    transfer->wait();
    transfer.reset();
  }
  static int lane(const Message& message) { return 1 + static_cast<int>(message.traffic); }
  Parcel outgoing(const Message& message) const {
    bool const forward = message.traffic == Traffic::activation;
    return {message.peer, forward ? stage_.output() : stage_.input_gradient(), lane(message)};
  }
  Parcel incoming(const Message& message) const {
    bool const forward = message.traffic == Traffic::activation;
    return {message.peer, forward ? stage_.incoming() : stage_.output_gradient(), lane(message)};
  }
  void take(const Message& message) {
    if (message.traffic == Traffic::activation) {
      stage_.take_input(message.micro, message.chunk);
    } else {
      stage_.take_output_gradient();
    }
  }

  Stage& stage_;
  Communicator& pp_;
  UnderWay sends_, receives_;
};

}  // namespace

PipelineResult run_pipeline(Stage& stage, const Mesh& mesh, std::int64_t count,
                            const MicroBatchOf& batch_of, const GradientOf& ready) {
  PipelineResult run;
  PaceWatch watch(mesh, count);
  StageMessages messages(stage, mesh.pp());
  Messages const when = messages_of(mesh.layout(), mesh.pp().can_start());
  for (const Instruction& instruction :
       pipeline_schedule(mesh.layout(), mesh.coord().pp, count, when)) {
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
        messages.exchange(instruction);
        break;
      case Work::start:
        messages.start(instruction);
        break;
      case Work::wait:
        messages.wait(instruction);
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
        Parcel const parcel{(here + pp - 1) % pp, stage.incoming()};
        mesh.pp().exchange({}, {&parcel, 1});
        stage.take_input(micro, chunk);
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
