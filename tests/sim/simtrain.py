#!/usr/bin/env python3
"""simtrain in Python: the simulated training job with real Python frames.

Drives the same simulated libraries as build/bin/simtrain, through ctypes: the model, its modules and
the training loop are Python, as in a real job, so that stacks have files, functions and lines. Pure
standard library, CPython 3.8 and later. It never sets the injection itself.

Exit status: 0 done; 1 a rank failed; 2 usage; 3 the simulated stack does not load; 128+N a rank was
killed by signal N.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "python")
sys.dont_write_bytecode = True  # the checkout stays clean
RANK_PROCESS = "SIMTRAIN_RANK_PROCESS"

# Scenario -> default of --leak-rank, or None when nothing leaks.
SCENARIOS = {
    "steady": None, "zero-init-cat": "all", "one-rank": "1", "late-onset": "all",
    "eval-leak": "all", "raw-cuda": "all", "vmm": "all", "pinned": "all", "async-pool": "all",
    "host": "all", "masks": None, "fragmentation": None, "warmup": None, "sawtooth": None,
    "subgroups": None, "two-optimizers": None, "accumulate": None, "nested": None, "raises": None,
    "oom": "0", "rank-skew": None, "stack-limit": None, "expandable": None,
}
LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "slurm", "ompi")


def parse_bytes(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?B?|B)?", text)
    if not match:
        raise argparse.ArgumentTypeError("%r is not a size such as 8MiB" % text)
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get((match.group(2) or "B")[0], 1)
    return int(float(match.group(1)) * factor)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="steady")
    parser.add_argument("--leak-rank", help="the rank that leaks, or all")
    parser.add_argument("--leak-bytes", type=parse_bytes, default=8 << 20, help="bytes a step")
    parser.add_argument("--launcher", choices=LAUNCHERS, default="torchrun")
    parser.add_argument("--zero-init", choices=("on", "off"), default="on")
    parser.add_argument("--step-ms", type=float, default=20)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    parser.add_argument("--hold", type=float, default=3, help="seconds that masks stays loaded")
    parser.add_argument("--truth", help="append one line of JSON per rank to this file")
    parser.add_argument("--sim", help="directory of the simulated libraries")
    options = parser.parse_args(argv)
    if options.ranks < 1:
        parser.error("--ranks: at least 1")
    if options.leak_rank not in (None, "all"):
        if not options.leak_rank.isdigit() or int(options.leak_rank) >= options.ranks:
            parser.error("--leak-rank: not a rank of this job, nor all")
    return options


def sim_dir(options):
    """--sim, $TIDEMARK_SIM, or the build directory of this checkout."""
    return options.sim or os.environ.get("TIDEMARK_SIM") or os.path.join(
        HERE, "..", "..", "build", "sim")


def environment(options, rank):
    """What the named launcher sets for one rank."""
    number, world, job = str(rank), str(options.ranks), str(os.getpid())
    env = {RANK_PROCESS: "1"}
    if options.launcher in ("torchrun", "deepspeed", "accelerate"):
        env.update(RANK=number, LOCAL_RANK=number, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world,
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29500 + os.getpid() % 1000))
    if options.launcher in ("torchrun", "accelerate"):
        env.update(GROUP_RANK="0", ROLE_RANK=number, ROLE_WORLD_SIZE=world,
                   TORCHELASTIC_RUN_ID="simtrain-" + job, TORCHELASTIC_RESTART_COUNT="0",
                   TORCHELASTIC_MAX_RESTARTS="0")
    if options.launcher == "accelerate":
        env.update(ACCELERATE_MIXED_PRECISION="bf16")
    if options.launcher == "deepspeed":
        env.update(CROSS_RANK="0")
    if options.launcher == "slurm":
        env.update(SLURM_JOB_ID=job, SLURM_STEP_ID="0", SLURM_PROCID=number, SLURM_LOCALID=number,
                   SLURM_NTASKS=world, SLURM_NPROCS=world, SLURM_NODEID="0", SLURM_NNODES="1",
                   SLURM_TASKS_PER_NODE=world, SLURM_RESTART_COUNT="0")
    if options.launcher == "ompi":
        env.update(OMPI_COMM_WORLD_RANK=number, OMPI_COMM_WORLD_LOCAL_RANK=number,
                   OMPI_COMM_WORLD_SIZE=world, OMPI_COMM_WORLD_LOCAL_SIZE=world,
                   OMPI_COMM_WORLD_NODE_RANK=number, OMPI_MCA_ess_base_jobid=job)
    if options.scenario == "expandable":
        env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return env


def launch(options, argv):
    ranks = []
    for rank in range(options.ranks):
        env = dict(os.environ, **environment(options, rank))
        ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__)] + argv, env=env))

    def forward(number, _):
        for process in ranks:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    worst = 0
    for process in ranks:
        code = process.wait()
        worst = max(worst, 128 - code if code < 0 else code)
    return worst


def from_environment(names, otherwise):
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    return otherwise


class Job:
    """What the model and the trainer need to know."""

    def __init__(self, options):
        self.scenario = options.scenario
        self.zero_init = options.zero_init == "on"
        self.steps = options.steps
        self.step = 0
        self.step_ms = options.step_ms
        self.leak_bytes = options.leak_bytes
        self.trains = options.scenario != "masks"
        self.layers = options.layers or (36 if options.scenario == "masks" else 12)
        self.rank = from_environment(("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"), 0)
        self.local_rank = from_environment(
            ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), 0)
        self.world = from_environment(("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"), 1)
        self.device = self.local_rank % from_environment(("TIDEMARK_SIM_DEVICES",), 8)
        self.seed = options.seed + self.rank
        leak_rank = options.leak_rank or SCENARIOS[options.scenario]
        self.leaks = leak_rank is not None and (
            leak_rank == "all" or int(leak_rank) % self.world == self.rank)
        if self.scenario == "zero-init-cat" and not self.zero_init:
            self.leaks = False


def leak_site(scenario):
    """File and line that the scenario's marker stands on; ("", 0) without one."""
    for name in ("simtrain_model.py", "simtrain_trainer.py"):
        path = os.path.join(PYTHON, name)
        with open(path) as source:
            for number, line in enumerate(source, 1):
                marker = re.search(r"# leak-site: (.*)$", line)
                if marker and scenario in marker.group(1).split():
                    return path, number
    return "", 0


def truth(job, trainer, library, launcher):
    path, line = leak_site(job.scenario)
    result = {
        "rank": job.rank, "local_rank": job.local_rank, "world": job.world, "pid": os.getpid(),
        "device": job.device, "scenario": job.scenario, "zero_init": job.zero_init,
        "launcher": launcher, "steps": job.step, "layers": job.layers, "leaks": job.leaks,
        "leak_file": path, "leak_line": line, "first_leak_step": trainer.first_leak_step,
        "leak_bytes_per_step": job.leak_bytes if job.leaks and job.step else 0,
        "fw_allocated": library.simtorch_memory_allocated(job.device),
        "fw_reserved": library.simtorch_memory_reserved(job.device),
        "fw_max_allocated": library.simtorch_max_memory_allocated(job.device),
        "fw_max_reserved": library.simtorch_max_memory_reserved(job.device),
        "fw_host": library.simtorch_cpu_allocated(),
    }
    result.update(trainer.truth)
    return result


def run_rank(options):
    os.environ.setdefault("TIDEMARK_SIM_PINNED", "populate")
    sys.path[:0] = [PYTHON, os.path.join(PYTHON, "site-packages")]
    import simtorch
    from simtrain_trainer import Trainer
    job = Job(options)
    try:
        simtorch.load(sim_dir(options))
    except OSError as error:
        print("simtrain: %s (build the simulated stack, or give --sim)" % error, file=sys.stderr)
        return 3
    library = simtorch.library()
    if library.simtorch_set_device(job.device) != 0:
        print("simtrain: %s" % library.simtorch_last_error().decode(), file=sys.stderr)
        return 3
    trainer = Trainer(job)
    code = 0
    try:
        if job.trains:
            trainer.train()
        else:
            import time
            time.sleep(options.hold)
    except simtorch.OutOfMemoryError as error:
        print("simtrain: rank %d, step %d: %s" % (job.rank, job.step, error), file=sys.stderr)
        code = 1
    if options.truth:
        with open(options.truth, "a") as out:
            out.write(json.dumps(truth(job, trainer, library, options.launcher)) + "\n")
    return code


def main(argv):
    options = parse(argv)
    if RANK_PROCESS in os.environ:
        return run_rank(options)
    return launch(options, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
