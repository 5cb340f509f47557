#include "copus/comm/host_names.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace copus {

std::vector<std::string> host_names(Communicator& world) {
  using Name = std::array<std::uint64_t, 8>;
  std::vector<Name> names(static_cast<std::size_t>(world.size()));
  gethostname(reinterpret_cast<char*>(names[static_cast<std::size_t>(world.rank())].data()),
              sizeof(Name) - 1);
  // world: each rank has written its own place, the others' are zeros.
  world.all_reduce({names.front().data(), names.size() * std::tuple_size_v<Name>}, ReduceOp::sum);
  std::vector<std::string> hosts;
  for (const Name& name : names) {
    std::string host = reinterpret_cast<const char*>(name.data());
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace copus
