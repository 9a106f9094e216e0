"""Pins memory through ctypes from two functions of known lines. Speaks like truth_program.cc.

python_job.py LIBRARY
"""
import ctypes
import sys
import threading

cuda = ctypes.CDLL(sys.argv[1])
kept = []


def pin(size):
    address = ctypes.c_void_p()
    cuda.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), 0)  # line 15
    kept.append(address)


def deep(depth, size):
    if depth:
        return deep(depth - 1, size)
    pin(size)  # line 22


class Loader:
    def load(self):
        return [pin(1000) for _ in range(3)]  # line 27


print("ready", flush=True)
for line in sys.stdin:
    deep(5, 70000)
    Loader().load()
    thread = threading.Thread(target=deep, args=(2, 900))
    thread.start()
    thread.join()
    deep(200, 5)  # deeper than the limit
    print("done", flush=True)
