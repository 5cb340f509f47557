"""One training run of the proof of worth: start it, watch it, stop it, read what it wrote."""
import json
import os
import signal
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RANKS = 4
RATE = "1gbit"
SMOOTHED = 4  # evaluations whose mean counts as the loss: single ones scatter by 0.01 at a constant learning rate

# Every rank is a process; MPI may run as root and on fewer cores than ranks; who waits sleeps.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_WAIT_POLICY": "passive",
}


def launcher(machine):
    if machine == "plain":
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
    return [os.path.join(ROOT, "scripts", "emulated_hosts.sh"), "--hosts", "2", "--slots", "2", "--rate", RATE, "--divide"]


def merge(base, changes):
    """A copy of a configuration with some keys replaced, section by section."""
    result = {name: dict(section) if isinstance(section, dict) else section for name, section in base.items()}
    for name, section in changes.items():
        if isinstance(section, dict):
            result.setdefault(name, {}).update(section)
        else:
            result[name] = section
    return result


def lines_of(path):
    """The whole lines of a metrics file; one that is being written is left for later."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file.read().split("\n")[:-1]]


class Trace:
    """A run's metrics as one time line: the seconds of steps and switches, evaluations not counted."""

    def __init__(self, lines):
        self.seconds = self.switch_seconds = 0.0
        self.tokens = self.steps = 0
        self.switches = 0
        self.evals, self.plans, self.decisions, self.verdicts, self.errors = [], [], [], [], []
        self.noise, self._losses = [], []
        self.step_lines = []
        for line in lines:
            event = line.get("event")
            if event is None:
                self._step(line)
            elif event == "eval":
                self._losses.append(line["loss"])
                loss = statistics.fmean(self._losses[-SMOOTHED:])
                self.evals.append((self.seconds, self.tokens, loss))
            elif event == "reshard" and "seconds" in line:
                self.switches += 1
                self.switch_seconds += line["seconds"]["total"]
                self.seconds += line["seconds"]["total"]
            elif event == "decision":
                self.decisions.append((self.seconds, line))
            elif event == "verify":
                self.verdicts.append((self.seconds, line))

    def _step(self, line):
        plan = (line["dp"], line["tp"], line["pp"], line["micro_batch"], line["batch"])
        if not self.plans or tuple(self.plans[-1][1:]) != plan:
            self.plans.append((self.seconds, *plan))
        self.step_lines.append(line)
        self.seconds += line["seconds"]
        self.tokens = line["tokens"]
        self.steps += 1
        gns = line.get("gns")
        if gns and gns["state"] == "warm":
            self.noise.append((self.seconds, self.tokens, gns["critical_batch"]))
        # The first intervals are what predictions learn from.
        if line.get("predicted_seconds") and self.steps > 30:
            self.errors.append(abs(line["predicted_seconds"] / line["seconds"] - 1.0))

    def reached(self, target):
        """(seconds, tokens) where the smoothed loss first comes down to the target, between two evaluations by a
        straight line; None when it does not."""
        before = None
        for seconds, tokens, loss in self.evals:
            if loss <= target:
                if before is None or before[2] <= loss:
                    return seconds, tokens
                share = (before[2] - target) / (before[2] - loss)
                return before[0] + share * (seconds - before[0]), before[1] + share * (tokens - before[1])
            before = (seconds, tokens, loss)
        return None


def end(process):
    """Stops a run of ours and waits until its ranks are gone."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def train(copus, machine, folder, config, done, status):
    """Trains in `folder` until the run ends or done(trace) says so; returns its trace. status(trace): words for the
    screen."""
    os.makedirs(folder, exist_ok=True)
    config_path, run = os.path.join(folder, "asked.json"), os.path.join(folder, "run")
    with open(config_path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    if os.path.exists(run):  # of a run that was interrupted
        subprocess.run(["rm", "-rf", run], check=True)
    command = launcher(machine) + [copus, "train", config_path, "--run-dir", run, "--threads", "1"]
    metrics = os.path.join(run, "metrics.jsonl")
    with open(os.path.join(folder, "log"), "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **ENVIRONMENT})
        stopped = False
        try:
            while process.poll() is None:
                time.sleep(0.5)
                trace = Trace(lines_of(metrics))
                show(status(trace))
                if done(trace):
                    stopped = True
                    end(process)
        except BaseException:
            if process.poll() is None:
                end(process)
            raise
    show("")
    if process.returncode != 0 and not stopped:
        with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as log:
            sys.exit(f"worth: {' '.join(command)}\nended with code {process.returncode}:\n{log.read()[-3000:]}")
    return Trace(lines_of(metrics))


def show(words):
    """A line that the next one replaces, where somebody looks."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{words}", end="", flush=True)
