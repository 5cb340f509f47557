#!/usr/bin/env python3
"""Scores the cost model against measured steps of others.

usage: scripts/score_cost_model.py MEASURED.csv [--copus build/copus] [--set NAME] [--rows]

Each row of the file is one measured configuration, and is priced by `copus plan` with every key
given. Columns: job_id set layers hidden heads kv_heads ffn_hidden glu tied_emb vocab seq_len gpu
n_gpus gpus_per_node internode_gbps_per_gpu dp tp pp vpp micro_batch global_batch recompute
zero_stage seq_parallel attn_kernel status step_time_s mem_gb. Rows of one job_id differ in their
layout alone, so they can be ranked. Prints, for each set: the mean absolute error of the step time
as predicted and after one scale for the set, the error's quantiles, Spearman's rank correlation
within a job, what the first choice of a job loses against its best, and whether memory was called
right.
"""
import argparse
import collections
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

PRESETS = {"H100": "h100-sxm", "B200": "b200-sxm", "A100": "a100-sxm-80gb"}


def attention_of(kernel):
    if "v1" in kernel:
        return "flash1"
    if "Megatron" in kernel:
        return "fused"
    return "unfused" if kernel == "torch" else "flash"


def norm_of(row):
    # The one set whose rows say which of them had a fused norm.
    plain = row["set"].startswith("hagemann") and "RMS" not in row["attn_kernel"]
    return "plain" if plain else "fused"


def number(row, key, default=0):
    return int(float(row[key])) if row.get(key) else default


def config_of(row):
    gpus, per_node = number(row, "n_gpus"), number(row, "gpus_per_node", 8)
    preset = next((p for gpu, p in PRESETS.items() if row["gpu"].startswith(gpu)), None)
    if preset is None or not row["hidden"] or number(row, "zero_stage") > 1:
        return None
    return {
        "model": {
            "family": "llama" if number(row, "glu") else "gpt2",
            "layers": number(row, "layers"),
            "hidden": number(row, "hidden"),
            "heads": number(row, "heads"),
            "kv_heads": number(row, "kv_heads"),
            "ffn": number(row, "ffn_hidden"),
            "vocab": number(row, "vocab"),
            "seq_len": number(row, "seq_len"),
            "tie_embeddings": bool(number(row, "tied_emb")),
        },
        "batch": {"sequences": number(row, "global_batch"), "micro": number(row, "micro_batch")},
        "train": {"precision": "bf16"},
        "parallel": {
            "dp": number(row, "dp"),
            "tp": number(row, "tp"),
            "pp": number(row, "pp"),
            "virtual_stages": number(row, "vpp", 1),
            "zero": number(row, "zero_stage"),
            "sequence_parallel": bool(number(row, "seq_parallel")),
            "recompute": row["recompute"],
        },
        "cluster": {
            "kernels": {"attention": attention_of(row["attn_kernel"]), "norm": norm_of(row)},
            "hardware": preset,
            "nodes": max(1, math.ceil(gpus / per_node)),
            "gpus_per_node": per_node,
            "internode_gbps_per_gpu": float(row["internode_gbps_per_gpu"] or 400),
        },
    }


def predict(copus, folder, config):
    path = os.path.join(folder, "row.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    done = subprocess.run([copus, "plan", path, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return json.loads(done.stdout)["candidates"][0]


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result, i = [0.0] * len(values), 0
    while i < len(order):
        j = i
        while j < len(order) and values[order[j]] == values[order[i]]:
            j += 1
        for k in range(i, j):
            result[order[k]] = (i + j - 1) / 2
        i = j
    return result


def spearman(a, b):
    x, y, middle = ranks(a), ranks(b), (len(a) - 1) / 2
    sx, sy = sum((v - middle) ** 2 for v in x), sum((v - middle) ** 2 for v in y)
    if sx == 0 or sy == 0:
        return None
    return sum((v - middle) * (w - middle) for v, w in zip(x, y)) / math.sqrt(sx * sy)


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else float("nan")


def regret(predicted, measured):
    # Ties in the prediction count as the mean over the tied choices.
    best = min(predicted)
    chosen = [m for p, m in zip(predicted, measured) if p <= best * (1 + 1e-9)]
    return mean(chosen) / min(measured) - 1


def show(name, timed, calls, peaks):
    errors = sorted(p / m - 1 for _, p, m in timed)
    scale = sorted(m / p for _, p, m in timed)[len(timed) // 2]
    jobs = collections.defaultdict(list)
    for job, predicted, measured in timed:
        jobs[job].append((predicted, measured))
    ranked = [tuple(zip(*pairs)) for pairs in jobs.values() if len(pairs) > 2]
    quantile = lambda q: errors[int(q * (len(errors) - 1))]
    print(
        f"{name:<24}{len(timed):>6}{100 * mean(map(abs, errors)):>8.1f}"
        f"{100 * mean(abs(p * scale / m - 1) for _, p, m in timed):>8.1f}"
        f"{100 * quantile(0.1):>8.0f}{100 * quantile(0.5):>6.0f}{100 * quantile(0.9):>6.0f}"
        f"{mean(spearman(*pair) for pair in ranked):>8.2f}"
        f"{100 * mean(regret(*pair) for pair in ranked):>8.1f}{len(ranked):>6}"
        f"{100 * mean(calls):>8.0f}{100 * mean(map(abs, peaks)):>8.0f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured")
    parser.add_argument("--copus", default="build/copus")
    parser.add_argument("--set", help="only this set")
    parser.add_argument("--rows", action="store_true", help="every row as well")
    options = parser.parse_args()
    # Without this the program starts itself a second time.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    timed, calls, peaks = (collections.defaultdict(list) for _ in range(3))
    skipped = collections.Counter()
    with open(options.measured, encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        for row in csv.DictReader(file):
            name = row["set"]
            if options.set and name != options.set:
                continue
            config = config_of(row)
            candidate = predict(options.copus, folder, config) if config else None
            if candidate is None:
                skipped[name] += 1
                continue
            if row["status"] in ("ok", "oom"):
                calls[name].append(float(candidate["feasible"] == (row["status"] == "ok")))
            if row["status"] != "ok":
                continue
            if row["mem_gb"]:
                peaks[name].append(candidate["memory_bytes"]["total"] / 2**30 / float(row["mem_gb"]) - 1)
            if row["step_time_s"]:
                predicted, measured = candidate["step_seconds"], float(row["step_time_s"])
                timed[name].append((row["job_id"], predicted, measured))
                if options.rows:
                    print(row["job_id"], json.dumps(config["parallel"]), predicted, measured)
    print(
        f"{'set':<24}{'rows':>6}{'error%':>8}{'scaled%':>8}{'p10':>8}{'p50':>6}{'p90':>6}{'rho':>8}"
        f"{'regret%':>8}{'jobs':>6}{'fits%':>8}{'peak%':>8}"
    )
    for name in sorted(timed):
        show(name, timed[name], calls[name], peaks[name])
    for name, count in sorted(skipped.items()):
        print(f"{name}: {count} rows are not ours to price (no sizes, ZeRO above 1, or an illegal layout)")


if __name__ == "__main__":
    sys.exit(main())
