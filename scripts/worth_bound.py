"""An estimate of what adapting could gain: every batch known beforehand, every change free.

The way down to the target is cut into stretches of loss. On each the batch is taken that needs the fewest seconds for
it: the tokens that its own curve needs from the loss above to the loss below, at the fastest (layout, micro-batch) for
that batch. The smallest of several uncertain numbers is too small, which errs in favour of adapting; one batch a
stretch, the first of them long in noise scales, errs against it. To be compared with projected seconds alone: both are
medians of a few steps times tokens.
"""
STRETCHES = 10


def tokens_at(evals, loss):
    """Tokens at which a curve [(seconds, tokens, loss)] first comes down to `loss`; None where it does not."""
    before = None
    for _, tokens, value in evals:
        if value <= loss:
            if before is None or before[1] <= loss:
                return tokens
            return before[0] + (before[1] - loss) / (before[1] - value) * (tokens - before[0])
        before = (tokens, value)
    return None


def losses_of(curve, target):
    """The losses that a curve has after equal shares of its tokens to the target, the target last."""
    last = tokens_at(curve["evals"], target)
    ends = [last * (part + 1) / STRETCHES for part in range(STRETCHES - 1)]
    found = []
    for end in ends:
        seen = [loss for _, tokens, loss in curve["evals"] if tokens <= end]
        if seen and min(seen) > target and (not found or min(seen) < found[-1]):
            found.append(min(seen))
    return found + [target]


def known_beforehand(times, curves, target):
    """(seconds, [(loss, batch)]) of the best way down, or None where no curve comes to the target."""
    reached = [curve for curve in curves.values() if curve["reached"]]
    if not reached:
        return None
    rate = {b: min(t["step_seconds"] / b for t in times if t["batch"] == b) for b in curves}
    seconds, way, above = 0.0, [], None
    for loss in losses_of(min(reached, key=lambda c: c["tokens"] * rate[c["batch"]]), target):
        costs = {}
        for batch, curve in curves.items():
            begin = 0.0 if above is None else tokens_at(curve["evals"], above)
            end = tokens_at(curve["evals"], loss)
            if begin is not None and end is not None:
                costs[batch] = (end - begin) / curve["seq_len"] * rate[batch]
        batch = min(costs, key=costs.get)
        seconds += costs[batch]
        way.append((loss, batch))
        above = loss
    return seconds, way
