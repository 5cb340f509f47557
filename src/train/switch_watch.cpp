#include "train/switch_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace copus {
namespace {

constexpr std::size_t kRecent = 8;  // that "before" looks back

std::map<std::string, GroupTraffic> totals_of(const Mesh& mesh) {
  return {{"dp", mesh.dp_traffic()}, {"tp", mesh.tp_traffic()}, {"pp", mesh.pp_traffic()}};
}

}  // namespace

double SwitchWatch::Window::rate() const {
  if (rates.empty()) return 0.0;
  std::vector<double> sorted = rates;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

void SwitchWatch::switched() {
  before_ = now_;
  now_ = {};
  steps_ = 0;
  pending_ = true;
}

void SwitchWatch::look_away(const Mesh& mesh) {
  seen_ = totals_of(mesh);
}

void SwitchWatch::add(double rate, const Mesh& mesh) {
  std::map<std::string, GroupTraffic> const totals = totals_of(mesh);
  // The first step touches memory for the first time; its groups' totals are where counting starts.
  if (!fresh()) {
    now_.rates.push_back(rate);
    if (now_.rates.size() > kRecent) now_.rates.erase(now_.rates.begin());
    for (auto const& [group, total] : totals) {
      now_.traffic[group].seconds += total.seconds - seen_[group].seconds;
      now_.traffic[group].bus_bytes += total.bus_bytes - seen_[group].bus_bytes;
    }
  }
  seen_ = totals;
  count();
}

nlohmann::json SwitchWatch::result() {
  pending_ = false;
  auto const rate_or_null = [](const Window& window) {
    return window.rates.empty() ? nlohmann::json(nullptr) : nlohmann::json(window.rate());
  };
  nlohmann::json bandwidth = nlohmann::json::object();
  for (auto const& [group, after] : now_.traffic) {
    auto const found = before_.traffic.find(group);
    bool const used =
        after.bus_bytes > 0 || (found != before_.traffic.end() && found->second.bus_bytes > 0);
    if (!used) continue;
    bandwidth[group] = {
        {"before", found == before_.traffic.end() ? 0.0 : found->second.bus_bandwidth()},
        {"after", after.bus_bandwidth()}};
  }
  return {{"before", rate_or_null(before_)},
          {"measured", rate_or_null(now_)},
          {"bus_bandwidth", std::move(bandwidth)}};
}

}  // namespace copus
