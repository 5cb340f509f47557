#!/usr/bin/env python3
"""Copus and PyTorch in turn on the same processors: one AdamW step of the same model on made-up tokens.
usage: scripts/compare_torch.py COPUS [--models M,...] [--batches B,...] [--seq-lens T,...]
                                [--precisions fp32,bf16] [--rounds N] [--json FILE]
COPUS: the built binary. Every model (gpt2-124m, smollm2-135m) with every batch, length and precision, N rounds of both
(3), each program's turn first every other time. A run of Copus counts as the median of its steps, one of PyTorch as its
fastest step after the first. Prints each setting's medians, their ratio, and the most memory each process has held.
PyTorch is set up in its favour: OpenMP's OpenBLAS, its kernels for this processor (also where it does not know its
name), memory that is kept between steps, one thread a processor. Its memory is that of a run of its own with an ordinary
malloc. Needs python3 with torch and that OpenBLAS (Debian: python3-torch, libopenblas0-openmp).
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 5
GIB = 1 << 30


def run(command, environment):
    """What it printed, and the most memory it held, in bytes."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.PIPE, text=True)
        problem = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"compare_torch: {' '.join(command)} failed:\n{problem}")
        out.seek(0)
        return out.read(), used.ru_maxrss * 1024


def copus(program, setting, threads):
    model, batch, length, precision = setting
    command = [program, "bench", "step", "--model", model, "--batch", str(batch), "--seq-len", str(length), "--threads",
               str(threads), "--precision", precision, "--steps", str(STEPS), "--json"]  # fmt: skip
    if precision == "bf16" and "avx512_bf16" not in open("/proc/cpuinfo", encoding="ascii").read():
        command.append("--emulate-bf16")
    text, memory = run(command, os.environ)
    result = json.loads(text)
    return result["tokens_per_second"], memory, result["mfu"]


def peer_environment(blas, threads):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    environment.update(OMP_NUM_THREADS=str(threads), LD_PRELOAD=blas)
    environment.pop("OMP_WAIT_POLICY", None)
    # Of a processor that is younger than it is, OpenBLAS takes the kernels of a Pentium 4.
    told = subprocess.run([sys.executable, "-c", "import torch; torch.ones(8, 8) @ torch.ones(8, 8)"], text=True,
                          env={**environment, "OPENBLAS_VERBOSE": "2"}, capture_output=True, check=True)  # fmt: skip
    flags = open("/proc/cpuinfo", encoding="ascii").read()
    if "Prescott" in told.stdout + told.stderr and "avx512f" in flags:
        environment["OPENBLAS_CORETYPE"] = "COOPERLAKE" if "avx512_bf16" in flags else "SKYLAKEX"
    return environment


def peer(environment, setting, threads, steps=STEPS, keeps_memory=True):
    model, batch, length, precision = setting
    if keeps_memory:
        environment = {**environment, "MALLOC_MMAP_THRESHOLD_": str(8 * GIB), "MALLOC_TRIM_THRESHOLD_": str(16 * GIB)}
    command = [sys.executable, os.path.join(HERE, "torch_step.py"), model, str(batch), str(length), str(threads),
               precision, str(steps)]  # fmt: skip
    text, memory = run(command, environment)
    return batch * length / min(json.loads(text)["seconds"][1:]), memory, None


def compare(program, environment, setting, rounds, threads):
    ours, theirs = [], []
    for number in range(rounds):
        for who in (0, 1) if number % 2 == 0 else (1, 0):
            if who == 0:
                ours.append(copus(program, setting, threads))
            else:
                theirs.append(peer(environment, setting, threads))
        print(f"  round {number + 1}: {ours[-1][0]:.0f} and {theirs[-1][0]:.0f} tokens/s", file=sys.stderr, flush=True)
    middle = lambda runs, i: statistics.median(r[i] for r in runs)
    return {
        "model": setting[0], "batch": setting[1], "seq_len": setting[2], "precision": setting[3],
        "copus": [r[0] for r in ours], "torch": [r[0] for r in theirs], "mfu": middle(ours, 2),
        "copus_bytes": max(r[1] for r in ours), "torch_bytes": peer(environment, setting, threads, 2, False)[1],
        "ratio": middle(ours, 0) / middle(theirs, 0),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("copus")
    for name, default in (("models", "gpt2-124m"), ("batches", "4,1"), ("seq-lens", "256"), ("precisions", "fp32")):
        parser.add_argument("--" + name, default=default)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = glob.glob("/usr/lib/*/openblas-openmp/libopenblas.so.0")
    if not found:
        sys.exit("compare_torch: no OpenMP OpenBLAS (Debian: apt-get install libopenblas0-openmp)")
    threads = len(os.sched_getaffinity(0))
    environment = peer_environment(found[0], threads)
    settings = [(model, int(batch), int(length), precision) for model in options.models.split(",")
                for length in options.seq_lens.split(",") for precision in options.precisions.split(",")
                for batch in options.batches.split(",")]  # fmt: skip
    results = []
    print(f"{'model':<14}{'T':>6}{'batch':>6} {'':<5}{'copus':>8}{'torch':>8}{'ratio':>7}{'MFU %':>7}{'GiB':>7}{'torch':>7}")
    for setting in settings:
        r = compare(options.copus, environment, setting, options.rounds, threads)
        results.append(r)
        print(f"{r['model']:<14}{r['seq_len']:>6}{r['batch']:>6} {r['precision']:<5}{statistics.median(r['copus']):>8.0f}"
              f"{statistics.median(r['torch']):>8.0f}{r['ratio']:>7.2f}{100 * r['mfu']:>7.1f}{r['copus_bytes'] / GIB:>7.2f}"
              f"{r['torch_bytes'] / GIB:>7.2f}", flush=True)  # fmt: skip
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
