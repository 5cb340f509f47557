// What a machine can do, as far as the cost model asks: a preset, or a profile that was measured.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/core/attention_task.h"
#include "copus/core/config.h"

namespace copus {

// Matrix products of one precision: `peak_flops` is listed (GPU) or measured (CPU) and is what MFU
// divides by; large products reach `efficiency` of it.
struct MatrixRate {
  double peak_flops = 0.0;
  double efficiency = 1.0;
  bool operator==(const MatrixRate&) const = default;
};

// One rank's way to others, one direction.
struct Link {
  double latency_seconds = 0.0;  // of one message, or of one step of a ring
  double bytes_per_second = 0.0;
  bool operator==(const Link&) const = default;
};

// The link of a ring of two ranks or more that all-reduces next to nothing in `small_seconds` and
// `bytes` in `large_seconds`: 2 (n - 1) steps of one message, in which each rank sends 2 (n - 1) /
// n of the bytes. Where being woken takes so long that the large one hardly took longer, half of
// its time counts as the bytes'.
Link link_of_ring(int ranks, double small_seconds, double bytes, double large_seconds);

// All rates are those of one rank while the others of its node work too.
struct Hardware {
  std::string name, source;

  MatrixRate fp32, bf16;
  // A dimension of a product that is this long runs at half the rate: x / (x + half_size), for each
  // of the three.
  double half_size = 0.0;
  // Shares of the matrix peak that flash attention reaches; the masked half is not counted.
  double attention_forward = 0.5, attention_backward = 0.5;
  // Attention of bf16 goes by cuDNN, whose workspace is part of a stage's memory.
  bool cudnn = false;

  double memory_bytes_per_second = 0.0;  // streaming, read plus written
  std::int64_t memory_bytes = 0;
  std::int64_t reserved_bytes = 0;  // what runtime, libraries and communicators take of it

  Link inside;  // a node
  // Between nodes. `bytes_per_second` 0: not measured, the cluster's internode_gbps_per_gpu counts,
  // of which transfers reach `between_efficiency`.
  Link between;
  double between_efficiency = 1.0;

  double launch_seconds = 0.0;  // of one operation on the device
  // Host time to issue one forward pass through one layer (a backward takes two): below it the
  // device waits.
  double layer_seconds = 0.0;
  // A rank's rate while the others of its node wait, over its rate while all work: above 1 where
  // ranks outnumber processors, so that a pipeline's idle stages lend theirs to the busy ones.
  double alone = 1.0;
  // Shares of the data-parallel traffic that can run under compute: all-reduces, and ZeRO's
  // scatters and gathers.
  double overlap = 0.0, overlap_zero = 0.0;
  // Share of the messages between stages that move under compute.
  double overlap_messages = 0.0;

  const MatrixRate& matrix(Precision precision) const {
    return precision == Precision::bf16 ? bf16 : fp32;
  }
  AttentionLibrary attention_library() const {
    return cudnn ? AttentionLibrary::cudnn : AttentionLibrary::none;
  }
  std::int64_t usable_bytes() const { return memory_bytes - reserved_bytes; }
  bool operator==(const Hardware&) const = default;
};

// h100-sxm, h200-sxm, b200-sxm, a100-sxm-80gb, a100-sxm-40gb, mi210; throws ConfigError naming the
// nearest one.
Hardware hardware_preset(const std::string& name);
std::vector<std::string> hardware_preset_names();
// The preset of a GPU by the name that its driver gives it ("NVIDIA H100 80GB HBM3"); none where
// there is no preset of just that one.
std::optional<Hardware> hardware_of_gpu(const std::string& name, std::int64_t memory_bytes);

// A profile file's text, and back (docs/planner.md has the schema). `name` stands for the file in
// messages. Throws one ConfigError with every mistake: unknown, missing, of the wrong kind, out of
// range.
Hardware parse_hardware(const std::string& json_text, const std::string& name);
std::string hardware_json(const Hardware& hardware);

}  // namespace copus
