#!/usr/bin/env python3
"""Is adapting worth it? Trains one small model on real text to one validation loss in three ways:
  static  the best fixed (layout, micro-batch, batch) of a sweep, which is not counted
  batch   the planner chooses batch and micro-batch, in the best fixed layout
  full    the planner chooses the layout as well
usage: scripts/worth.py [--machine plain|link|both] [--out DIR] [--seeds 1,2,3] [--target LOSS] [--quick]

plain: four MPI ranks on this machine. link: the same four on two emulated hosts, a shaped link between
them (wants root). Needs data/kjv, which scripts/quickstart.sh makes, and build/copus. Finished parts are
not repeated when it is started again. Writes DIR/results.json, worth.md and worth.svg.
docs/benchmarks/worth.md says what is measured and how.
"""
import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import time

import worth_bound
import worth_report
import worth_sweep
from worth_runs import ROOT, merge, show, train

# 0.66 million parameters, bytes, 256 of them a sequence: steps of 25 to 250 ms. Three layers do not halve, so a
# pipeline over the link pays for its idle stage by the token, a reduction over it by the step.
MODEL = {
    "family": "llama", "layers": 3, "hidden": 128, "heads": 4, "kv_heads": 4, "ffn": 344, "vocab": 257, "seq_len": 256,
}  # fmt: skip
BASE = {
    "model": MODEL,
    "data": {"train": "data/kjv", "val": "data/kjv"},
    "batch": {"sequences": 4, "min": 2, "max": 32},
    # One learning rate for every batch, static or not: the default rule.
    "optimizer": {"lr": 2e-3, "weight_decay": 0.1, "clip": 1.0},
    "schedule": {"kind": "constant", "warmup_tokens": "10K"},
    "train": {"tokens": "2M", "eval_every_tokens": "25K", "eval_tokens": 16384},
    # Nothing but dp, tp and pp differs between layouts, for the sweep and the planner alike.
    "parallel": {"virtual_stages": 1, "zero": 0, "sequence_parallel": False, "recompute": "none"},
    # Steps are few and batches small: every step counts.
    "gns": {"every_steps": 1, "half_life_tokens": "150K"},
    "log": {"every_steps": 50},
}
# A change of the batch costs nothing and one of the layout 10 ms: a small gain is worth it.
ADAPT = {"mode": "act", "interval_steps": 20, "min_dwell_steps": 20, "margin": 0.02}
FULL = {
    "base": BASE, "target": 1.5, "batches": [2, 4, 8, 16, 32], "start": 4, "adapt": ADAPT, "finalists": 3,
    "layouts": [[4, 1, 1], [2, 2, 1], [2, 1, 2], [1, 4, 1], [1, 2, 2]],
}  # fmt: skip
QUICK = {
    "base": merge(BASE, {"train": {"eval_every_tokens": "15K", "eval_tokens": 4096, "tokens": "400K"}}), "target": 2.2,
    "batches": [4, 16], "layouts": [[4, 1, 1], [2, 1, 2], [1, 2, 2]], "start": 4, "adapt": ADAPT, "finalists": 1,
}  # fmt: skip


def layout_keys(layout):
    return dict(zip(("dp", "tp", "pp"), layout))


class Bench:
    """Settings, the folder of results, and the time still to come."""

    def __init__(self, options, settings):
        self.copus, self.out, self.settings = os.path.abspath(options.copus), options.out, settings
        self.seeds = [int(seed) for seed in options.seeds.split(",")]
        self.started, self.left = time.monotonic(), 0.0
        os.makedirs(self.out, exist_ok=True)
        path = os.path.join(self.out, "settings.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                if json.load(file) != settings:
                    sys.exit(f"worth: {path} is of other settings; accepted: the same ones, or another --out")
        else:
            self.store("settings", settings)

    def path(self, name):
        return os.path.join(self.out, name + ".json")

    def stored(self, name):
        if not os.path.exists(self.path(name)):
            return None
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def store(self, name, value):
        partial = self.path(name) + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
        os.replace(partial, self.path(name))

    def say(self, words):
        show("")
        print(f"[{(time.monotonic() - self.started) / 60:5.1f} min] {words}", flush=True)

    def train(self, machine, name, changes, done, status):
        config = merge(self.settings["base"], changes)
        return train(self.copus, machine, os.path.join(self.out, "runs", name), config, done, status)


def policies_of(settings, finalists):
    """name -> what it adds to the configuration. The best fixed layout is the first finalist's."""
    batches = settings["batches"]
    result = {}
    for number, choice in enumerate(finalists, 1):
        result[f"static-{number}"] = {
            "parallel": layout_keys(choice["layout"]),
            "batch": {"sequences": choice["batch"], "micro": choice["micro"]},
        }
    free = {"batch": {"sequences": settings["start"], "min": batches[0], "max": batches[-1]}, "adapt": settings["adapt"]}
    result["batch"] = merge(free, {"parallel": layout_keys(finalists[0]["layout"])})
    result["full"] = free
    return result


def summary(trace, target, load):
    reached = trace.reached(target)
    return {
        "seconds": reached[0] if reached else None,
        "tokens": reached[1] if reached else None,
        "steps": trace.steps,
        "switches": trace.switches,
        "switch_seconds": trace.switch_seconds,
        "prediction_error": statistics.median(trace.errors) if trace.errors else None,
        "load": load,
        "evals": trace.evals,
        "plans": trace.plans,
        "noise": trace.noise[:: max(1, len(trace.noise) // 50)],
        "verdicts": [(t, v.get("kept"), v.get("reason", "")) for t, v in trace.verdicts],
        "decisions": [(t, d["tokens"], d.get("acted", False), d["reason"]) for t, d in trace.decisions],
    }


def finals(bench, machine, finalists):
    """Every policy with every seed, in turn, another one first in each round: whatever the machine does to one it does
    to all."""
    target = bench.settings["target"]
    policies = policies_of(bench.settings, finalists)
    names = list(policies)
    order = [
        (seed, names[(i + shift) % len(names)]) for shift, seed in enumerate(bench.seeds) for i in range(len(names))
    ]
    todo = [(seed, name) for seed, name in order if bench.stored(f"{machine}-{name}-{seed}") is None]
    for number, (seed, name) in enumerate(todo):
        begun, load = time.monotonic(), os.getloadavg()[0]
        changes = merge(policies[name], {"train": {"seed": seed}})
        trace = bench.train(
            machine,
            f"{machine}-{name}-{seed}",
            changes,
            lambda t: t.reached(target) is not None,
            lambda t: f"{machine} {name} seed {seed}: {t.seconds:.0f} s, {t.tokens} tokens, loss "
            f"{t.evals[-1][2] if t.evals else float('nan'):.3f} of {target}",
        )
        result = summary(trace, target, load)
        bench.store(f"{machine}-{name}-{seed}", {"machine": machine, "policy": name, "seed": seed, **result})
        took = time.monotonic() - begun
        reached = f"{result['seconds']:.1f} s" if result["seconds"] else "never"
        bench.say(
            f"{machine} {name} seed {seed}: {reached} to {target} ({result['switches']} switches, "
            f"{result['switch_seconds']:.2f} s); {took * (len(todo) - number - 1) / 60:.0f} min left of {machine}"
        )
    return {
        f"{name}-{seed}": bench.stored(f"{machine}-{name}-{seed}") for seed, name in itertools.product(bench.seeds, names)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=["plain", "link", "both"], default="both")
    parser.add_argument("--out", help="default: runs/worth, with --quick runs/worth-quick")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--target", type=float, help="validation loss to come down to")
    parser.add_argument("--quick", action="store_true", help="a small version of everything, to see that it works")
    parser.add_argument("--copus", default=os.path.join(ROOT, "build", "copus"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # past the runs' own end
    os.chdir(ROOT)
    settings = dict(QUICK if options.quick else FULL)
    if options.target:
        settings["target"] = options.target
    if options.quick and options.seeds == "1,2,3":
        options.seeds = "1"
    options.out = os.path.abspath(options.out or ("runs/worth-quick" if options.quick else "runs/worth"))
    if not os.path.isdir("data/kjv"):
        sys.exit("worth: data/kjv is not there; scripts/quickstart.sh makes it")
    bench = Bench(options, settings)
    machines = ["plain", "link"] if options.machine == "both" else [options.machine]
    sweeps = {machine: worth_sweep.step_times(bench, machine) for machine in machines}
    curves = worth_sweep.curves(bench, sweeps)
    report = {"settings": settings, "machines": {}}
    for machine in machines:
        projected = worth_sweep.projected(sweeps[machine], curves)
        finalists = worth_sweep.finalists(projected, settings["finalists"])
        bench.store(f"{machine}-finalists", finalists)
        for choice in finalists:
            bench.say(f"{machine}: {worth_sweep.words(choice)}: {choice['seconds']:.1f} s projected")
        results = finals(bench, machine, finalists)
        report["machines"][machine] = {
            "projected": projected,
            "finalists": finalists,
            "results": results,
            "known_beforehand": worth_bound.known_beforehand(sweeps[machine], curves, settings["target"]),
        }
    bench.store("results", report)
    worth_report.write(bench.out, report)
    bench.say(f"done: {bench.out}/worth.md, worth.svg, results.json")


if __name__ == "__main__":
    main()
