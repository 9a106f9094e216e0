"""Keeps memory in a list, 40 times 2 MiB from one line. Speaks like truth_program.cc."""
import sys

kept = []


def keep():
    kept.append(bytearray(2 << 20))  # line 8


def drop():
    return len(bytearray(64 << 10))


print("ready", flush=True)
for line in sys.stdin:
    for _ in range(40):
        keep()
        drop()
    print("done", flush=True)
