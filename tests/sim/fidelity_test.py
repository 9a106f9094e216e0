"""The simulation prints what the GPU printed: measured/driver_calls.cc against measured/h200*.txt.

The only differences allowed are those listed here, and each must still be there: a list that has
become wrong is a failure too.
"""
import difflib
import os
import subprocess
import sys
import tempfile

BUILD = os.environ["TIDEMARK_BUILD"]
MEASURED = os.path.join(os.environ["TIDEMARK_SOURCE"], "tests", "sim", "measured")

# With two contexts on one device, the real CUPTI tells each allocation once for each context, and
# at the end of one names the other. "-" was measured, "+" is simulated.
SECOND_CONTEXT = [
    "-   MEMORY2 allocation kind 3 address ? bytes 52428800 device 0 context 2 async 0",
    "-   MEMORY2 allocation kind 2 address ? bytes 1048576 device 0 context 2 async 0",
    "-   MEMORY2 release kind 2 address ? bytes 1048576 device 0 context 2 async 0",
    "-   MEMORY2 release kind 3 address ? bytes 52428800 device 0 context 2 async 0",
    "+   MEMORY2 release kind 3 address ? bytes 52428800 device 0 context 3 async 0",
    "+   MEMORY2 release kind 2 address ? bytes 1048576 device 0 context 3 async 0",
]


def compare(arguments, measured, allowed):
    with tempfile.TemporaryDirectory() as directory:
        output = subprocess.run(
            [os.path.join(BUILD, "bin", "driver_calls"), *arguments], stdout=subprocess.PIPE,
            check=True, timeout=60, env=dict(os.environ, TIDEMARK_SIM_STATE=directory)).stdout
    with open(os.path.join(MEASURED, measured)) as file:
        expected = file.read().splitlines()
    differences = [line for line in difflib.unified_diff(
        expected, output.decode().splitlines(), lineterm="", n=0)
        if line[0] in "+-" and not line.startswith(("+++", "---"))]
    for line in differences:
        print(line)
    assert sorted(differences) == sorted(allowed), "%s: not the differences that are allowed" % measured
    print("%s: %d lines, %d allowed differences" % (measured, len(expected), len(allowed)))


if __name__ == "__main__":
    compare([], "h200.txt", [])
    compare(["traced"], "h200_traced.txt", SECOND_CONTEXT)
    sys.exit(0)
