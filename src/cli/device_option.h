// The flags --device and --transport.
#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "copus/core/config.h"

namespace copus {

inline void add_device_option(CLI::App& command, DeviceChoice& device) {
  std::map<std::string, DeviceChoice> const names{
      {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}};
  command
      .add_option("--device", device, "auto, cpu or cuda; auto takes a GPU where one can be used")
      ->transform(CLI::CheckedTransformer(names));
}

inline void add_transport_option(CLI::App& command, TransportChoice& transport) {
  std::map<std::string, TransportChoice> const names{{"auto", TransportChoice::automatic},
                                                     {"thread", TransportChoice::thread},
                                                     {"mpi", TransportChoice::mpi},
                                                     {"nccl", TransportChoice::nccl}};
  command
      .add_option("--transport", transport,
                  "auto, thread, mpi or nccl; auto takes nccl where each rank has a GPU of its own")
      ->transform(CLI::CheckedTransformer(names));
}

}  // namespace copus
