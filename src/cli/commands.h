// The subcommands of `copus`: each adds itself with its help, an example, and what it does.
#pragma once

namespace CLI {
class App;
}

namespace copus {

// A run that ended as a signal asked: exit code 3.
struct Stopped {};

void add_train(CLI::App& app);
void add_prepare(CLI::App& app);
void add_eval(CLI::App& app);
void add_import(CLI::App& app);
void add_plan(CLI::App& app);
void add_simulate(CLI::App& app);
void add_export(CLI::App& app);
void add_inspect(CLI::App& app);
void add_generate(CLI::App& app);
void add_bench(CLI::App& app);

}  // namespace copus
