"""What the proof of worth has found, as a Markdown table and a plot."""
import os
import statistics

from worth_sweep import words

COLOURS = {"static": "#777777", "batch": "#1f77b4", "full": "#d62728"}
MACHINES = {"plain": "one machine", "link": "two emulated hosts, a shaped link between them"}


def policies(results):
    """policy -> its results in order of the seeds."""
    found = {}
    for result in results.values():
        found.setdefault(result["policy"], []).append(result)
    return found


def median_or_none(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def best_static(found):
    """The name of the static policy with the smallest median; one that missed the target with a seed is not it."""
    complete = {
        name: statistics.median(r["seconds"] for r in runs)
        for name, runs in found.items()
        if name.startswith("static") and all(r["seconds"] is not None for r in runs)
    }
    return min(complete, key=complete.get) if complete else None


def row(name, runs, best):
    seconds = [r["seconds"] for r in runs]
    if any(s is None for s in seconds):
        return f"| {name} | target not reached by {sum(s is None for s in seconds)} of {len(seconds)} | | | | | |"
    middle = statistics.median(seconds)
    faster = 100.0 * (best / middle - 1.0) if best else float("nan")
    error = median_or_none([r["prediction_error"] for r in runs])
    return (
        f"| {name} | {middle:.1f} | {min(seconds):.1f} to {max(seconds):.1f} | {faster:+.1f} | "
        f"{statistics.median(r['tokens'] for r in runs) / 1e3:.0f}K | "
        f"{statistics.median(r['switches'] for r in runs):.0f}, "
        f"{statistics.median(r['switch_seconds'] for r in runs):.2f} s | "
        + (f"{100 * error:.1f} |" if error is not None else "|")
    )


def machine_text(machine, part, target):
    found = policies(part["results"])
    static = best_static(found)
    best = statistics.median(r["seconds"] for r in found[static]) if static else None
    lines = [
        f"### {machine}: {MACHINES[machine]}",
        "",
        f"| policy | s to {target} (median) | min to max | faster than the best static, % | tokens | switches | "
        "median error of a step's prediction, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        label = name
        if name.startswith("static"):
            label = f"static: {words(part['finalists'][int(name.split('-')[1]) - 1])}" + (
                ", **the best**" if name == static else ""
            )
        lines.append(row(label, runs, best))
    if part["known_beforehand"]:
        seconds, way = part["known_beforehand"]
        first = part["projected"][0]["seconds"]
        lines += [
            "",
            f"With every batch known beforehand and free changes: {seconds:.1f} s projected, {100 * (first / seconds - 1):+.1f} % "
            f"beside the best static's projection of {first:.1f} s. Its way (down to a loss: batch): "
            + ", ".join(f"{loss:.2f}: {batch}" for loss, batch in way),
        ]
    lines += ["", "What full did, seed by seed (seconds: layout dp tp pp, micro-batch, batch):", ""]
    for run in found.get("full", []):
        steps = [f"{t:.1f}: {dp} {tp} {pp}, {micro}, {batch}" for t, dp, tp, pp, micro, batch in run["plans"]]
        lines.append(f"* seed {run['seed']}: " + "; ".join(steps))
    return lines + [""]


def write(folder, report):
    target = report["settings"]["target"]
    lines = []
    for machine, part in report["machines"].items():
        lines += machine_text(machine, part, target)
    with open(os.path.join(folder, "worth.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    with open(os.path.join(folder, "worth.svg"), "w", encoding="utf-8") as file:
        file.write(plot(report))
    print("\n".join(lines))


class Panel:
    """Axes at a place of the picture. y may be logarithmic, with base 2."""

    def __init__(self, box, x, y, title, ticks_y):
        self.box, self.x, self.y = box, x, y
        left, top, width, height = box
        self.parts = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#ccc"/>']
        self.parts.append(f'<text x="{left}" y="{top - 6}" font-weight="bold">{title}</text>')
        for tick in ticks_y:
            at = self.at(0, tick)[1]
            self.parts.append(f'<line x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#eee"/>')
            self.parts.append(f'<text x="{left - 5}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
        for number in range(6):
            value = x * number / 5
            at = self.at(value, y[0])[0]
            self.parts.append(
                f'<text x="{at:.1f}" y="{top + height + 14}" text-anchor="middle">{value:.0f} s</text>'
            )

    def at(self, x, y):
        left, top, width, height = self.box
        share = (y - self.y[0]) / (self.y[1] - self.y[0])
        return left + width * x / self.x, top + height * (1 - min(1.0, max(0.0, share)))

    def line(self, points, colour, dash=""):
        text = " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in points)
        self.parts.append(
            f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.3" stroke-dasharray="{dash}"/>'
        )


def stairs(run, last):
    points = []
    plans = run["plans"]
    for number, plan in enumerate(plans):
        until = plans[number + 1][0] if number + 1 < len(plans) else last
        points += [(plan[0], plan[5]), (until, plan[5])]
    return points


def shown(name, static):
    return name in (static, "batch", "full")


def plot(report):
    """For each machine the loss over time, below it the batch; one line a run, the best static, batch and full."""
    target, height, parts = report["settings"]["target"], 0, []
    for machine, part in report["machines"].items():
        found = policies(part["results"])
        static = best_static(found)
        runs = [(name, run) for name, group in found.items() if shown(name, static) for run in group]
        longest = max(run["evals"][-1][0] for _, run in runs)
        high = target + 0.9
        losses = Panel(
            (60, height + 30, 640, 220), longest, (target - 0.05, high), f"{machine}: validation loss",
            [target, *[round(target + 0.2 * i, 2) for i in range(1, 5)]],
        )  # fmt: skip
        top = max(report["settings"]["batches"])
        batches = Panel((60, height + 300, 640, 110), longest, (0, top), "batch (sequences)", [0, top / 4, top / 2, top])
        for name, run in runs:
            colour = COLOURS[name.split("-")[0]]
            losses.line([(t, loss) for t, _, loss in run["evals"] if loss < high], colour)
            batches.line(stairs(run, run["evals"][-1][0]), colour)
        losses.line([(0, target), (longest, target)], "#000", "3 3")
        parts += losses.parts + batches.parts
        height += 450
    for number, (name, colour) in enumerate(COLOURS.items()):
        parts.append(f'<text x="{500 + 70 * number}" y="20" fill="{colour}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif" font-size="11">'
        f'<rect width="720" height="{height}" fill="white"/>' + "\n".join(parts) + "</svg>\n"
    )
