"""The sweep for the best static configuration, in two parts that a run's laws let us take apart.

The loss after so many tokens depends on seed and batch, never on the layout; the seconds of a step depend on layout
and batch, never on the loss. So each batch is trained once, each (layout, micro-batch, batch) is timed for some steps,
and the time to the target is the product. The best few are then trained in full beside the adaptive runs.
"""
import statistics

MICRO_BATCHES = (1, 2, 4, 8)  # a step's share of one data-parallel rank is cut into so many
KEEP = 1.25  # what is projected to take this many times the best is given up


def words(choice):
    dp, tp, pp = choice["layout"]
    return f"dp {dp} tp {tp} pp {pp}, batch {choice['batch']} in micro-batches of {choice['micro']}"


def configurations(settings):
    result = []
    for layout in settings["layouts"]:
        for batch in settings["batches"]:
            share = batch // layout[0]
            for parts in MICRO_BATCHES:
                if batch % layout[0] == 0 and share % parts == 0:
                    result.append({"layout": layout, "batch": batch, "micro": share // parts})
    return result


def visit(bench, machine, name, choices, steps):
    """Seconds of a step of each, by one run that a script leads through all of them."""
    script = []
    for number, choice in enumerate(choices[1:], 1):
        dp, tp, pp = choice["layout"]
        entry = {"dp": dp, "tp": tp, "pp": pp, "batch": choice["batch"], "micro": choice["micro"]}
        script.append({"step": number * steps, **entry})
    first, total = choices[0], len(choices) * steps
    batches = [choice["batch"] for choice in choices]
    changes = {
        "batch": {"sequences": first["batch"], "micro": first["micro"], "min": min(batches), "max": max(batches)},
        "parallel": dict(zip(("dp", "tp", "pp"), first["layout"])),
        "adapt": {"script": script},
        "train": {"tokens": "1B", "eval_every_tokens": 0},
    }
    trace = bench.train(
        machine,
        f"{machine}-{name}",
        changes,
        lambda t: t.steps >= total,
        lambda t: f"{machine}: timing steps of {len(choices)} configurations, {t.steps} of {total}",
    )
    result = []
    for number, choice in enumerate(choices):
        # The first step in a layout touches its memory for the first time.
        lines = trace.step_lines[number * steps + 1 : (number + 1) * steps]
        for line in lines:
            seen = {"layout": [line["dp"], line["tp"], line["pp"]], "batch": line["batch"], "micro": line["micro_batch"]}
            if seen != choice:
                raise RuntimeError(f"step {line['step']} ran {words(seen)}, the script says {words(choice)}")
        result.append([line["seconds"] for line in lines])
    return result


def step_times(bench, machine):
    """[{layout, batch, micro, step_seconds}]: all twice for a few steps, those that were not far behind again, the other
    way round, for some more."""
    name = f"{machine}-steps"
    if bench.stored(name) is not None:
        return bench.stored(name)
    choices = configurations(bench.settings)
    first = visit(bench, machine, "steps-1", choices, 4)
    rate = {i: choice["batch"] / statistics.median(first[i]) for i, choice in enumerate(choices)}
    kept = []
    for batch in bench.settings["batches"]:
        same = sorted((i for i in rate if choices[i]["batch"] == batch), key=rate.get, reverse=True)
        kept += [i for place, i in enumerate(same) if place < 3 or rate[i] * KEEP > rate[same[0]]]
    kept.reverse()
    second = visit(bench, machine, "steps-2", [choices[i] for i in kept], 9)
    again = dict(zip(kept, second))
    result = []
    for i, choice in enumerate(choices):
        seconds = again.get(i, first[i])
        result.append({**choice, "step_seconds": statistics.median(seconds), "timed_steps": len(seconds)})
    bench.store(name, result)
    bench.say(f"{machine}: steps of {len(choices)} configurations timed")
    return result


def seconds_a_sequence(times, batch):
    """The fastest of a machine at this batch."""
    return min(t["step_seconds"] / batch for t in times if t["batch"] == batch)


def middle_out(batches):
    middle = len(batches) // 2
    return sorted(batches, key=lambda b: abs(batches.index(b) - middle))


def curves(bench, sweeps):
    """batch -> {tokens, reached}: tokens to the target, or up to which the batch was followed before it had lost."""
    settings, seq_len = bench.settings, bench.settings["base"]["model"]["seq_len"]
    target, runner = settings["target"], "plain" if "plain" in sweeps else "link"
    found = {}

    def lost(machine, batch, tokens):
        times = sweeps[machine]
        rivals = [
            curve["tokens"] * seconds_a_sequence(times, other) for other, curve in found.items() if curve["reached"]
        ]
        return bool(rivals) and tokens * seconds_a_sequence(times, batch) > KEEP * min(rivals)

    for batch in middle_out(settings["batches"]):
        name = f"curve-{batch}"
        known = bench.stored(name)
        if known and (known["reached"] or all(lost(m, batch, known["tokens"]) for m in sweeps)):
            found[batch] = known
            continue
        times = [t for t in sweeps[runner] if t["batch"] == batch]
        best = min(times, key=lambda t: t["step_seconds"])
        changes = {
            "batch": {"sequences": batch, "micro": best["micro"]},
            "parallel": dict(zip(("dp", "tp", "pp"), best["layout"])),
        }
        trace = bench.train(
            runner,
            name,
            changes,
            lambda t, b=batch: t.reached(target) is not None or all(lost(m, b, t.tokens) for m in sweeps),
            lambda t, b=batch: f"batch {b}: {t.tokens} tokens, {t.seconds:.0f} s, loss "
            f"{t.evals[-1][2] if t.evals else float('nan'):.3f} of {target}",
        )
        reached = trace.reached(target)
        found[batch] = {
            "batch": batch,
            "reached": reached is not None,
            "tokens": reached[1] if reached else trace.tokens,
            "seq_len": seq_len,
            "evals": trace.evals,
        }
        bench.store(name, found[batch])
        end = f"{target} after {found[batch]['tokens']:.0f} tokens" if reached else f"given up at {trace.tokens} tokens"
        bench.say(f"batch {batch}: {end}")
    return found


def projected(times, found):
    """Every configuration whose batch came to the target, by its projected seconds, best first."""
    result = []
    for t in times:
        curve = found[t["batch"]]
        if not curve["reached"]:
            continue
        seconds = curve["tokens"] / (t["batch"] * curve["seq_len"]) * t["step_seconds"]
        result.append({**t, "seconds": seconds})
    return sorted(result, key=lambda choice: choice["seconds"])


def finalists(projections, count):
    """The best, and the best of another batch or layout: what two timings cannot tell apart is trained in full."""
    if not projections:
        raise SystemExit("worth: no batch came to the target within train.tokens; a higher --target is needed")
    chosen = []
    for choice in projections:
        alike = any(c["layout"] == choice["layout"] and c["batch"] == choice["batch"] for c in chosen)
        if not alike:
            chosen.append(choice)
        if len(chosen) == count:
            break
    return chosen
