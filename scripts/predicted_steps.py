#!/usr/bin/env python3
"""Steps as this machine runs them beside what `copus plan` says of them, layout by layout.

usage: scripts/predicted_steps.py [--ranks 4] [--model gpt2-124m] [--batch 4] [--seq-len 256] [--rounds 2] [--copus FILE]

Measures a hardware profile of these ranks (threads of one process, one processor thread each), then times every layout
with `copus bench step`, several rounds through all of them, so that a slow minute of the machine does not fall on one
layout alone. Prints both times of each, and the median error: as predicted, and after one scale for all, which is what
a running job has learned when it has seen the first of its layouts.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"predicted_steps: {' '.join(command)} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def layouts_of(ranks):
    """Every dp x tp x pp that fills the ranks."""
    sizes = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [(ranks // (tp * pp), tp, pp) for tp in sizes for pp in sizes if ranks % (tp * pp) == 0]


def measured(options, layout):
    dp, tp, pp = layout
    command = [options.copus, "bench", "step", "--model", options.model, "--batch", str(options.batch)]
    command += ["--seq-len", str(options.seq_len), "--ranks", str(options.ranks), "--threads", "1"]
    command += ["--dp", str(dp), "--tp", str(tp), "--pp", str(pp), "--steps", "3", "--json"]
    return json.loads(output_of(command))


def predicted(options, folder, profile, layout, micro):
    dp, tp, pp = layout
    config = {
        "model": {"preset": options.model, "seq_len": options.seq_len},
        "batch": {"sequences": options.batch, "micro": micro},
        "parallel": {
            "dp": dp, "tp": tp, "pp": pp, "virtual_stages": 1, "zero": 0, "sequence_parallel": False, "recompute": "none",
        },
        "cluster": {"hardware": profile, "nodes": 1, "gpus_per_node": options.ranks},
    }  # fmt: skip
    path = os.path.join(folder, "plan.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return json.loads(output_of([options.copus, "plan", path, "--json"]))["candidates"][0]["step_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--copus", default=os.path.join(ROOT, "build", "copus"))
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    layouts = [layout for layout in layouts_of(options.ranks) if options.batch % layout[0] == 0]
    seconds, micro = collections.defaultdict(list), {}
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile.json")
        output_of([options.copus, "bench", "comm", "--ranks", str(options.ranks), "--threads", "1", "--out", profile])
        for number in range(options.rounds):
            for layout in layouts:
                result = measured(options, layout)
                seconds[layout].append(result["step_seconds"])
                micro[layout] = result["micro_batch"]
            print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
        rows = []
        for layout in layouts:
            says = predicted(options, folder, profile, layout, micro[layout])
            rows.append((layout, micro[layout], says, statistics.median(seconds[layout]), seconds[layout]))
    scale = statistics.median(took / says for _, _, says, took, _ in rows)
    print("| dp tp pp | micro-batch | predicted s | measured s (min to max) | error % | scaled % |")
    print("|---|---|---|---|---|---|")
    for (dp, tp, pp), size, says, took, all_of_them in rows:
        print(
            f"| {dp} {tp} {pp} | {size} | {says:.3f} | {took:.3f} ({min(all_of_them):.3f} to {max(all_of_them):.3f}) "
            f"| {100 * (says / took - 1):+.1f} | {100 * (scale * says / took - 1):+.1f} |"
        )
    raw = statistics.median(abs(says / took - 1) for _, _, says, took, _ in rows)
    scaled = statistics.median(abs(scale * says / took - 1) for _, _, says, took, _ in rows)
    print(f"\nmedian error {100 * raw:.1f} %; after one scale for all {100 * scaled:.1f} %")


if __name__ == "__main__":
    sys.exit(main())
