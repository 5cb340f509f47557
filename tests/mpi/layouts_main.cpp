// The references on every layout and round the ring of switches, over MPI: mpirun -n 8
// test_layouts.
#include <cstdio>

#include "copus/comm/mpi.h"
#include "support/layout_run.h"

using namespace copus;

namespace {

// What one case found, said once; the number of deviations.
int report(Communicator& world, const std::string& name, const std::vector<std::string>& found) {
  double count = static_cast<double>(found.size());
  world.all_reduce(std::span(&count, 1), ReduceOp::max);
  if (world.rank() == 0) {
    for (const std::string& line : found) fmt::print("{}: {}\n", name, line);
    std::fflush(stdout);
  }
  return static_cast<int>(count);
}

int run_all(Communicator& world, int& cases) {
  int deviations = 0;
  for (const char* name : test::kReferenceNames) {
    test::Reference const reference(name);
    for (Layout layout : test::reference_layouts()) {
      for (std::int64_t micro : {1, 2}) {
        for (bool sequence_parallel : {false, true}) {
          layout.sequence_parallel = sequence_parallel;
          if ((sequence_parallel && layout.tp == 1) || !test::legal(reference, layout, micro) ||
              layout.world() > world.size())
            continue;
          test::StepNumbers const numbers = test::run_reference(world, reference, {layout}, micro);
          deviations += report(world, fmt::format("{} {} micro {}", name, to_string(layout), micro),
                               test::deviations(reference, numbers));
          ++cases;
        }
      }
    }
    test::StepNumbers const ring =
        test::run_reference(world, reference, test::ring_of_layouts(), 1, 0);
    deviations +=
        report(world, fmt::format("{} round the ring", name), test::deviations(reference, ring));
    ++cases;
  }
  return deviations;
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(&argc, &argv);
  auto const world = session.world();
  try {
    int cases = 0;
    int const deviations = run_all(*world, cases);
    if (world->rank() == 0)
      fmt::print("layouts: {} cases on {} ranks, {} deviations\n", cases, world->size(),
                 deviations);
    return deviations == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    world->abort(e.what());
  }
}
