#!/usr/bin/env python3
"""What only a real GPU can show, with nothing but a bundle of this repository's build.

    run.py BUNDLE OUT [--only NAME,...] [--pairs N] [--list]

BUNDLE is the folder that tests/gpu/bundle made. Writes OUT/figures.json and a line a claim to standard
output: "ok" or "FAILED", what was expected and what was seen. Exit status 1 when a claim failed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
CLAIMS = {}


def claim(function):
    CLAIMS[function.__name__] = function
    return function


class Bench:
    def __init__(self, bundle, out, pairs):
        self.bundle, self.out, self.pairs = bundle, out, pairs
        self.gpu = bundle / "gpu"
        self.figures, self.failures = {}, 0

    def expect(self, what, ok, seen):
        self.failures += not ok
        print(f"{'ok    ' if ok else 'FAILED'} {what}: {seen}", flush=True)

    def plain(self, *command, **environment):
        return subprocess.run([sys.executable, *map(str, command)], cwd=self.gpu, text=True, timeout=400,
                              capture_output=True, env={**os.environ, **environment})

    def watched(self, name, *command, **environment):
        """Runs a job under `tidemark run`; returns (completed process, what the recording says)."""
        recording = self.out / f"{name}.tdm"
        job = [self.bundle / "bin/tidemark", "run", "-o", recording, "--", sys.executable, *command]
        done = subprocess.run([str(word) for word in job], cwd=self.gpu, text=True, timeout=400,
                              capture_output=True, env={**os.environ, **environment})
        (self.out / f"{name}.log").write_text(done.stdout + "\n---- report ----\n" + done.stderr)
        return done, self.recorded(recording)

    def recorded(self, recording):
        """The training process of a recording, with its leaks and steps: what reading commands say."""
        processes = self.read("ps", "--from", recording).get("processes", [])
        process = max(processes, key=lambda p: int(p.get("current_step", 0)), default={})
        if process:
            process["leaks"] = self.read("leaks", "--from", recording).get("verdicts", [])
            process["steps"] = [step for rank in self.read("steps", "--last", 0, "--from", recording).get("ranks", [])
                                if rank["pid"] == process["pid"] for step in rank["steps"]]
        return process

    def read(self, *arguments):
        """A reading command's JSON, from the live private daemon or from a recording."""
        done = subprocess.run([str(self.bundle / "bin/tidemark"), *map(str, arguments), "--json"],
                              text=True, capture_output=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else {}


def line_of(path, mark):
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if mark in text:
            return number
    raise SystemExit(f"no line marked {mark!r} in {path}")


def leaks(process):
    """(where it was allocated, verdict) of each confirmed leak."""
    return [(v.get("allocated_at", "no site"), v) for v in process.get("leaks", [])
            if v["is_leak"] and v["state"] == "confirmed"]


def waterfall(process):
    """(class, MiB, note) of each line."""
    return [(line["memory_class"], int(line.get("bytes", 0)) / MIB, line.get("note", ""))
            for fall in process.get("waterfalls", []) for line in fall.get("lines", [])]


def unnamed_mib(line):
    """What of an unattributed line no event coincided with."""
    _, mib, note = line
    for part in note.split("; "):
        name, _, size = part.rpartition(": ")
        if name in ("module load", "communicator", "graph", "stack limit"):
            number, unit = size.split()
            mib -= float(number) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]
    return mib


@claim
def leak_is_confirmed_with_its_line(bench):
    done, process = bench.watched("concat", "gpt.py", "--fault", "concat", "--steps", 300, "--batch", 2)
    found = leaks(process)
    line = line_of(bench.gpu / "leaky.py", "LEAK: concat")
    seen = [(where, round(v["slope_bytes_per_step"])) for where, v in found]
    expected = 2 * 4 * 768 * 4 * 768  # two layers, a whole float32 weight each
    bench.figures["concat"] = {"seen": seen, "expected_bytes_per_step": expected}
    bench.expect("concat: job ends as it would", done.returncode == 0, done.returncode)
    bench.expect(f"concat: confirmed at leaky.py:{line} forward",
                 any(s.startswith(f"leaky.py:{line} ") for s, _ in seen), seen)
    bench.expect(f"concat: slope within 5 % of {expected}",
                 any(abs(slope / expected - 1) < 0.05 for _, slope in seen), seen)


@claim
def steady_job_raises_nothing_and_adds_up(bench):
    log = bench.out / "steady.torch.jsonl"
    plain_log = bench.out / "plain.torch.jsonl"
    done, process = bench.watched("steady", "gpt.py", "--steps", 300, "--log", log)
    bench.plain("gpt.py", "--steps", 300, "--log", plain_log)
    raised = [v for v in process.get("verdicts", []) if v.get("state") in ("suspect", "confirmed")]
    bench.expect("steady: nothing raised in 300 steps", done.returncode == 0 and process != {} and not raised, raised)
    lines = waterfall(process)
    bench.figures["waterfall_steady"] = lines
    rest = [line for line in lines if line[0] == "unattributed"]
    bench.expect("steady: |unattributed| < 32 MiB but for what an event names",
                 bool(rest) and all(abs(unnamed_mib(line)) < 32 for line in rest), lines)

    torch_says = {r["step"]: r for r in map(json.loads, log.read_text().splitlines())}
    plain_says = [json.loads(r) for r in plain_log.read_text().splitlines()]
    tidemark_says = {int(s["step"]): s for s in process.get("steps", [])}
    common = sorted(set(torch_says) & set(tidemark_says))
    differing = [s for s in common
                 if int(tidemark_says[s].get("fw_allocated_bytes", 0)) != torch_says[s]["allocated"]
                 or int(tidemark_says[s].get("fw_reserved_bytes", 0)) != torch_says[s]["reserved"]]
    bench.expect("steady: allocated and reserved equal torch's at every step",
                 len(common) >= 290 and not differing, f"{len(common)} steps compared, {len(differing)} differ {differing[:5]}")
    curve = [r["loss"] for _, r in sorted(torch_says.items())]
    bench.expect("steady: loss curve bit-identical to the run without Tidemark",
                 len(curve) > 290 and curve == [r["loss"] for r in plain_says], f"{len(curve)} losses")


@claim
def profiler_sees_the_same_events(bench):
    for mode, environment in (("plain", {}), ("schedule", {}), ("graphs", {}), ("plain", {"TEARDOWN_CUPTI": "1"}),
                              ("schedule", {"TEARDOWN_CUPTI": "1"})):
        name = mode + ("-teardown" if environment else "")
        alone = bench.plain("profiler_job.py", mode, **environment)
        done, _ = bench.watched(f"profiler-{name}", "profiler_job.py", mode, **environment)
        without, beside = alone.stdout.strip().splitlines()[-1:], done.stdout.strip().splitlines()[-1:]
        bench.expect(f"profiler {name}: same multiset of CUDA events", bool(without) and without == beside
                     and without != ["{}"], f"{without} / {beside}"[:300])


@claim
def other_bytes_have_names(bench):
    for mode, expected in (("stack", "stack limit"), ("nccl", "vmm communicator (libnccl"),
                           ("expandable", "expandable segments")):
        ready, go = bench.out / f"{mode}.ready", bench.out / f"{mode}.go"
        recording = bench.out / f"named-{mode}.tdm"
        job = subprocess.Popen([str(bench.bundle / "bin/tidemark"), "run", "-o", str(recording), "--", sys.executable,
                                "named_bytes.py", mode, str(ready), str(go)], cwd=bench.gpu, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.time() + 90
        while not ready.exists() and time.time() < deadline and job.poll() is None:
            time.sleep(0.2)
        time.sleep(3)
        go.touch()
        output, _ = job.communicate(timeout=120)
        (bench.out / f"named-{mode}.log").write_text(output)
        processes = bench.read("ps", "--from", recording).get("processes", [])
        lines = [line for process in processes for line in waterfall(process)]
        bench.figures[f"waterfall_{mode}"] = lines
        bench.expect(f"{mode}: shown under its name", any(expected in c + " " + note for c, _, note in lines), lines)


@claim
def judged_as_they_are(bench):
    jobs = (("eval-hook", "leak", "LEAK: eval-hook"), ("pinned", "leak", "LEAK: pinned"), ("growing", "none", None),
            ("fragmentation", "none", None))
    for fault, expected, mark in jobs:
        done, process = bench.watched(fault, "gpt.py", "--fault", fault, "--steps", 300, "--batch", 2, "--length", 512)
        seen = [(where, v["cause"], v["memory_class"]) for where, v in leaks(process)]
        if expected == "none":
            bench.expect(f"{fault}: no leak", process != {} and not seen, seen)
            if fault == "fragmentation":
                could = [int(v.get("releasable_bytes", 0)) for v in process.get("leaks", [])
                         if v["cause"] == "fragmentation"]
                did = int(done.stdout.rpartition("released ")[2] or 0)
                bench.figures["releasable_bytes"] = {"said": could, "empty_cache_gave": did}
                bench.expect("fragmentation: releasable bytes within 5 % of what empty_cache() gives back",
                             did > 0 and any(abs(said / did - 1) < 0.05 for said in could), (could, did))
        else:
            line = line_of(bench.gpu / "leaky.py", mark)
            bench.expect(f"{fault}: leak at leaky.py:{line}", any(s.startswith(f"leaky.py:{line} ") for s, *_ in seen), seen)


@claim
def step_time_on_against_off(bench):
    done = bench.plain("paired.py", "--pairs", bench.pairs, "--region", bench.out / "region.bin",
                       CUDA_INJECTION64_PATH=str(bench.bundle / "lib/libtidemark_cupti.so"))
    if done.returncode != 0:
        bench.expect("paired timing ran", False, done.stderr[-500:])
        return
    figures = json.loads(done.stdout)
    bench.figures["step_time"] = figures
    for regime in ("gpu_bound", "cpu_bound"):
        print(f"figure {regime}: {figures[regime]}", flush=True)
    bench.expect("GPU-bound step time ratio at most 1.005", figures["gpu_bound"]["ratio"]["median"] <= 1.005,
                 figures["gpu_bound"]["ratio"])


@claim
def cupti_buffers_are_recorded(bench):
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "record_cupti"
        built = subprocess.run(["g++", "-std=c++20", f"-I{cuda}/include", f"-I{cuda}/extras/CUPTI/include",
                                "record_cupti.cc", "-o", str(program), f"-L{cuda}/lib64", f"-L{cuda}/extras/CUPTI/lib64",
                                f"-L{cuda}/lib64/stubs", "-lcuda", "-lcudart", "-lcupti",
                                f"-Wl,-rpath,{cuda}/lib64:{cuda}/extras/CUPTI/lib64"], cwd=bench.gpu, text=True, capture_output=True)
        if built.returncode == 0:
            built = subprocess.run([str(program), str(bench.out / "cupti_buffers.bin"), str(bench.out / "cupti_totals.txt")],
                                   text=True, capture_output=True)
        bench.expect("CUPTI buffers recorded", built.returncode == 0, (built.stderr or "ok")[-300:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=pathlib.Path, nargs="?")
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--only", help="comma-separated names of claims")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list or not args.out:
        print("\n".join(CLAIMS))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    runtime = tempfile.mkdtemp()
    os.environ["XDG_RUNTIME_DIR"] = runtime
    bench = Bench(args.bundle.resolve(), args.out.resolve(), args.pairs)
    for name in (args.only.split(",") if args.only else CLAIMS):
        start = time.time()
        try:
            CLAIMS[name](bench)
        except Exception as error:  # one claim's failure must not hide the others
            bench.expect(name, False, f"{type(error).__name__}: {error}")
        print(f"       ({name}: {time.time() - start:.0f} s)", flush=True)
    (bench.out / "figures.json").write_text(json.dumps(bench.figures, indent=1))
    sys.exit(bench.failures > 0)


main()
