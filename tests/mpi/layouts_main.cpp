// The references on every layout and round the ring of switches, over MPI: mpirun -n 8
// test_layouts.
#include <cmath>
#include <cstdio>

#include "copus/comm/mpi.h"
#include "support/bf16_bounds.h"

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

// Each rank runs the whole model beside, to compare with.
std::vector<std::string> bf16_deviations(Communicator& world, const test::Reference& reference) {
  auto const run = [&](Communicator& group, const std::vector<Layout>& layouts) {
    return test::run_reference(group, reference, layouts, 1, 0, Precision::bf16);
  };
  auto const alone = make_single_communicator();
  test::StepNumbers const one = run(*alone, {Layout{}});
  std::vector<std::string> found;
  ModelConfig const model = reference.config(1).model;
  for (const std::vector<Layout>& layouts :
       {test::ring_of_layouts(), std::vector<Layout>{{1, 2, 2, 1, 0, true}}}) {
    std::string deviation = test::bf16_deviation(model, run(world, layouts), one, std::sqrt(2.0));
    if (!deviation.empty()) found.push_back(std::move(deviation));
  }
  return found;
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
    deviations += report(world, fmt::format("{} in bf16", name), bf16_deviations(world, reference));
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
