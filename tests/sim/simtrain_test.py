"""simtrain, compiled and in Python, does what its truth line says.

Usage: simtrain_test.py NAME, one case of CASES below. Uses $TIDEMARK_BUILD and $TIDEMARK_SOURCE.
"""
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["TIDEMARK_BUILD"]
SOURCE = os.environ["TIDEMARK_SOURCE"]
COMPILED = [os.path.join(BUILD, "bin", "simtrain")]
PYTHON = [sys.executable, os.path.join(SOURCE, "tests", "sim", "simtrain.py"),
          "--sim", os.path.join(BUILD, "sim")]
MIB = 1 << 20


def run(command, *arguments, env=None):
    """Runs a job; returns (exit status, truth lines by rank, standard error)."""
    with tempfile.TemporaryDirectory() as directory:
        truth = os.path.join(directory, "truth")
        job = subprocess.run(
            command + ["--step-ms", "0", "--truth", truth, *arguments],
            env=dict(os.environ, TIDEMARK_SIM_STATE=directory, **(env or {})),
            stderr=subprocess.PIPE, timeout=120)
        lines = []
        if os.path.exists(truth):
            with open(truth) as file:
                lines = [json.loads(line) for line in file]
        return job.returncode, sorted(lines, key=lambda line: line["rank"]), job.stderr.decode()


def expect(value, expected, what):
    assert value == expected, "%s: %r, not %r" % (what, value, expected)


def steady_jobs_keep_their_bytes(command):
    _, short, _ = run(command, "--ranks", "2", "--steps", "3")
    code, long, _ = run(command, "--ranks", "2", "--steps", "30")
    expect(code, 0, "exit status")
    expect([t["fw_allocated"] for t in long], [t["fw_allocated"] for t in short], "allocated")
    expect([t["fw_reserved"] for t in long], [t["fw_reserved"] for t in short], "reserved")
    # 12 layers: half-precision parameters and three single-precision states, halved by two ranks.
    expect(long[0]["fw_allocated"], 12 * (16 + 3 * 32) * MIB // 2, "allocated")


def zero_init_decides_whether_weights_stay(command):
    args = ("--ranks", "2", "--steps", "20", "--scenario", "zero-init-cat", "--leak-bytes", "4MiB")
    _, on, _ = run(command, *args)
    _, off, _ = run(command, *args, "--zero-init", "off")
    for rank in range(2):
        expect(on[rank]["leaked_bytes"], 80 * MIB, "leaked with zero.Init on")
        expect(off[rank]["leaked_bytes"], 0, "leaked with it off")
        expect(on[rank]["fw_allocated"] - off[rank]["fw_allocated"], 76 * MIB,
               "live bytes beyond the one entry that stays in both")


def one_rank_leaks_alone(command):
    _, truth, _ = run(command, "--ranks", "3", "--steps", "10", "--scenario", "one-rank",
                      "--leak-rank", "2")
    expect([t["leaked_bytes"] for t in truth], [0, 0, 80 * MIB], "leaked")
    expect(truth[2]["fw_allocated"] - truth[0]["fw_allocated"], 80 * MIB, "live bytes")


def masks_are_whole_and_parameters_are_cut(command):
    args = ("--scenario", "masks", "--hold", "0")
    _, alone, _ = run(command, "--ranks", "1", *args)
    _, four, _ = run(command, "--ranks", "4", *args)
    parameters = 36 * 16 * MIB
    masks = 36 * 256 * MIB
    expect(alone[0]["fw_allocated"], masks + parameters, "one rank")
    for truth in four:
        expect(truth["fw_allocated"], masks + parameters // 4, "four ranks")
        expect(truth["steps"], 0, "steps")


def every_launcher_gives_its_ranks(command):
    for launcher in ("torchrun", "deepspeed", "accelerate", "slurm", "ompi"):
        code, truth, _ = run(command, "--ranks", "3", "--steps", "1", "--launcher", launcher)
        expect(code, 0, launcher)
        expect([(t["rank"], t["local_rank"], t["world"]) for t in truth],
               [(0, 0, 3), (1, 1, 3), (2, 2, 3)], launcher)


def out_of_memory_is_an_exit_status(command):
    code, truth, error = run(command, "--ranks", "2", "--steps", "1000", "--scenario", "oom",
                             "--leak-bytes", "256MiB",
                             env={"TIDEMARK_SIM_DEVICE_BYTES": "4GiB"})
    expect(code, 1, "exit status")
    assert "CUDA out of memory" in error, error
    assert truth[0]["steps"] < 1000 == truth[1]["steps"], truth


def bad_arguments_are_usage(command):
    for arguments in (("--scenario", "nonsense"), ("--leak-bytes", "much"), ("--ranks", "0"),
                      ("--ranks", "2", "--leak-rank", "2")):
        code, truth, error = run(command, *arguments)
        expect((code, truth), (2, []), arguments)
        assert error, "a message"


def signals_reach_the_ranks(command):
    job = subprocess.Popen(command + ["--ranks", "2", "--steps", "100000", "--step-ms", "10"])
    time.sleep(1.5)
    job.send_signal(signal.SIGTERM)
    expect(job.wait(timeout=20), 128 + signal.SIGTERM, "exit status")


def other_layers_leak_by_their_scenario(command):
    for scenario, key in (("raw-cuda", "raw_cuda"), ("vmm", "vmm"), ("pinned", "pinned"),
                          ("async-pool", "pool"), ("host", "host")):
        code, truth, error = run(command, "--ranks", "1", "--steps", "5", "--scenario", scenario,
                                 "--leak-bytes", "2MiB")
        expect(code, 0, scenario + error)
        expect(truth[0][key], 10 * MIB, scenario)
        expect(truth[0]["leaked_bytes"], 10 * MIB, scenario)


def host_memory_leaks_by_its_scenario(command):
    for scenario in ("heap", "mmap", "shm"):
        code, truth, error = run(command, "--ranks", "1", "--steps", "5", "--scenario", scenario,
                                 "--leak-bytes", "2MiB")
        expect(code, 0, scenario + error)
        expect((truth[0]["host"], truth[0]["leaked_bytes"]), (10 * MIB, 10 * MIB), scenario)


def no_library_is_said(_):
    job = subprocess.run(PYTHON[:2] + ["--sim", "/nonexistent", "--ranks", "1"],
                         stderr=subprocess.PIPE, timeout=60)
    expect(job.returncode, 3, "exit status")
    assert b"--sim" in job.stderr


def the_marked_line_is_where_the_leak_is(_):
    code, truth, _ = run(PYTHON, "--ranks", "1", "--steps", "2", "--scenario", "zero-init-cat")
    expect(code, 0, "exit status")
    with open(truth[0]["leak_file"]) as source:
        text = source.read()
    assert "simtorch.cat" in text.splitlines()[truth[0]["leak_line"] - 1]
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
                 and node.lineno <= truth[0]["leak_line"] <= node.end_lineno]
    expect([function.name for function in functions], ["forward"], "the function of that line")


SHARED = (steady_jobs_keep_their_bytes, zero_init_decides_whether_weights_stay,
          one_rank_leaks_alone, masks_are_whole_and_parameters_are_cut,
          every_launcher_gives_its_ranks, out_of_memory_is_an_exit_status, bad_arguments_are_usage,
          signals_reach_the_ranks, other_layers_leak_by_their_scenario)
CASES = {"compiled_" + case.__name__: (case, COMPILED) for case in SHARED}
CASES["compiled_host_memory_leaks_by_its_scenario"] = (host_memory_leaks_by_its_scenario, COMPILED)
CASES.update({"python_" + case.__name__: (case, PYTHON) for case in SHARED})
CASES.update({"python_" + case.__name__: (case, PYTHON)
              for case in (no_library_is_said, the_marked_line_is_where_the_leak_is)})

if __name__ == "__main__":
    case, command = CASES[sys.argv[1]]
    case(command)
