// The --device flag.
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

}  // namespace copus
