#include "copus/state/initialize.h"

#include <functional>
#include <thread>
#include <utility>

#include "copus/core/error.h"
#include "copus/core/rng.h"
#include "state/non_finite.h"
#include "state/tensor_salt.h"

namespace copus {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 22;  // elements staged on the host at a time

// Calls body(first row, rows, view of those rows) for the rows of a local block that are not
// padding.
using Rows = std::function<void(std::int64_t first, std::int64_t count, TensorView view)>;
void for_rows(const LocalParam& local, const TensorView& flat, const Rows& body) {
  COPUS_CHECK(local.box.size[1] == local.local_size[1], "only whole rows are padding");
  std::int64_t const cols = local.local_size[1];
  std::int64_t const step = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, cols));
  for (std::int64_t row = 0; row < local.box.size[0]; row += step) {
    std::int64_t const count = std::min(step, local.box.size[0] - row);
    body(row, count, flat.slice(0, local.offset + row * cols, count * cols));
  }
}

// Splits [0, n) over the machine's cores; every index is its own pure computation, so the split
// changes nothing.
void on_all_cores(std::int64_t n, const std::function<void(std::int64_t, std::int64_t)>& body) {
  std::int64_t const workers = n < 65536 ? 1 : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (std::int64_t w = 1; w < workers; ++w) {
    threads.emplace_back([&, w] { body(n * w / workers, n * (w + 1) / workers); });
  }
  body(0, n / workers);
}

// Global element number of entry (row, 0) of a local block.
std::uint64_t first_element(const Param& param, const LocalParam& local, std::int64_t row) {
  return static_cast<std::uint64_t>((local.box.begin[0] + row) * param.size[1] +
                                    local.box.begin[1]);
}

}  // namespace

void draw_weights(const std::vector<Param>& table, const FlatLayout& layout, std::uint64_t seed,
                  Backend& backend, const TensorView& weights) {
  backend.zero(weights);
  std::vector<float> host;
  for (const LocalParam& local : layout.params) {
    const Param& param = table[static_cast<std::size_t>(local.param)];
    RngStream const stream =
        stream_of({seed, RngPurpose::init, 0, static_cast<std::uint32_t>(local.param)});
    std::int64_t const cols = local.local_size[1];
    for_rows(local, weights, [&](std::int64_t row, std::int64_t count, TensorView view) {
      host.assign(static_cast<std::size_t>(count * cols), param.init_value);
      if (param.init_std > 0.0f) {
        on_all_cores(count * cols, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            std::uint64_t const element =
                first_element(param, local, row + i / cols) + static_cast<std::uint64_t>(i % cols);
            host[static_cast<std::size_t>(i)] = param.init_std * normal(stream, element);
          }
        });
      }
      backend.upload(view, host.data());
    });
  }
}

void read_weights(const std::vector<Param>& table, const FlatLayout& layout, const HfModel& model,
                  Backend& backend, const TensorView& weights) {
  backend.zero(weights);
  NonFinite bad;
  std::vector<float> host;
  for (const LocalParam& local : layout.params) {
    const Param& param = table[static_cast<std::size_t>(local.param)];
    std::string const name = hf_place(model.model(), param).name;
    for_rows(local, weights, [&](std::int64_t row, std::int64_t count, TensorView view) {
      host.resize(static_cast<std::size_t>(view.numel()));
      Box const box{{local.box.begin[0] + row, local.box.begin[1]}, {count, local.box.size[1]}};
      model.read(param, box, host);
      bad.look(name, host);
      backend.upload(view, host.data());
    });
  }
  if (auto problems = bad.problems(model.directory()); !problems.empty())
    throw ConfigError(std::move(problems));
}

std::uint64_t weight_hash(const std::vector<Param>& table, const FlatLayout& layout,
                          Backend& backend, const TensorView& weights) {
  std::uint64_t hash = 0;
  for (const LocalParam& local : layout.params) {
    if (!local.counted) continue;
    const Param& param = table[static_cast<std::size_t>(local.param)];
    COPUS_CHECK(local.box.size[1] == local.local_size[1], "only whole rows are padding");
    TensorView const rows = weights.slice(0, local.offset, local.box.numel())
                                .reshape({local.box.size[0], local.box.size[1]});
    hash += backend.hash(rows,
                         {first_element(param, local, 0), static_cast<std::uint64_t>(param.size[1]),
                          detail::tensor_salt(local.param, 0)});
  }
  return hash;
}

}  // namespace copus
