"""truth_alloc's own arithmetic: it runs against the simulation without a disagreement, its numbers
add up, and what a reset leaves is what outlives a context."""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.environ["TIDEMARK_BUILD"], "bin", "truth_alloc")


def run(*arguments):
    with tempfile.TemporaryDirectory() as directory:
        job = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, check=True, timeout=280,
                             env=dict(os.environ, TIDEMARK_SIM_STATE=directory))
        return json.loads(job.stdout)


def main():
    for seed in ("1", "2", "3"):
        for reset in ((), ("--reset",)):
            truth = run("--operations", "200000", "--seed", seed, *reset)
            kinds = {group["kind"] for group in truth["groups"]}
            assert kinds == {"device", "pool", "vmm", "managed", "array", "graph", "ipc", "pinned",
                             "registered"}, kinds
            for group in truth["groups"]:
                assert group["live"] == (group["allocated"] - group["freed"] -
                                         group["implicitly_freed"]) >= 0, group
                if group["peak"] is not None:
                    assert group["peak"] > 5 * (64 << 20), group
                if reset and group["kind"] not in ("pool", "vmm", "graph"):
                    assert group["live"] == 0, group
            calls = truth["entry_points"]
            assert all(entry["failed"] <= entry["calls"] for entry in calls.values())
            assert sum(entry["failed"] for entry in calls.values()) > 1000
    usage = subprocess.run([PROGRAM, "--nonsense", "1"], stderr=subprocess.PIPE)
    assert usage.returncode == 2 and b"usage" in usage.stderr


if __name__ == "__main__":
    sys.exit(main())
