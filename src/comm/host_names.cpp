#include "copus/comm/host_names.h"

#include <unistd.h>

#include <algorithm>

#include "copus/comm/gather_texts.h"

namespace copus {

std::string host_name() {
  char name[64] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::vector<std::string> host_names(Communicator& world) {
  std::vector<std::string> hosts;
  // world: every rank's.
  for (std::string& host : gather_texts(world, host_name())) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace copus
