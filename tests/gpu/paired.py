#!/usr/bin/env python3
"""Step time with the agent's taps on against off, alternating in blocks within one process.

    paired.py [--pairs N] [--steps N] > figures.json      (run with CUDA_INJECTION64_PATH set)

The process plays the daemon to its own agent: it listens on TIDEMARK_AGENT_SOCKET, takes the
region, and sends SetTaps commands. At the end it holds the region's totals against torch's own, and
with --region FILE saves the region (a fixture for the tests that have no GPU).
Prints medians, the median of the ratios on/off with its 95 % interval (order statistics), and the
ratio off/off of the same procedure as the noise of the machine.
"""
import argparse
import array
import json
import math
import os
import socket
import statistics
import struct
import tempfile
import time

# Before torch: the agent reads its environment when the driver loads it.
folder = tempfile.mkdtemp()
path = os.path.join(folder, "agent.sock")
os.environ["TIDEMARK_AGENT_SOCKET"] = path
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(4)

import torch  # noqa: E402

from gpt import Training  # noqa: E402

MAGIC = 0x31484D54
TAPS_ALL = 7


def accept():
    torch.zeros(1, device="cuda")
    listener.settimeout(20)
    connection, _ = listener.accept()
    _, ancillary, _, _ = connection.recvmsg(256, socket.CMSG_SPACE(4))
    region = array.array("i", ancillary[0][2][:4])[0]
    connection.send(struct.pack("<IIIIQ64s", MAGIC, 0, 0, 0, 0, b""))
    return connection, region


def interval(ratios):
    ratios = sorted(ratios)
    n = len(ratios)
    half = 0.98 * math.sqrt(n)
    low, high = ratios[max(0, int(n / 2 - half))], ratios[min(n - 1, int(n / 2 + half))]
    return {"median": round(statistics.median(ratios), 5), "low": round(low, 5), "high": round(high, 5), "pairs": n}


def measure(training, set_taps, pairs, steps, length):
    def block(on):
        set_taps(on)
        training.step(length)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            training.step(length)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps * 1e3

    for _ in range(20):
        training.step(length)
    on_off, off_off, on_ms, off_ms = [], [], [], []
    for i in range(pairs):
        on, off = (block(True), block(False)) if i % 2 else reversed((block(False), block(True)))
        on_off.append(on / off)
        on_ms.append(on)
        off_ms.append(off)
    for i in range(max(20, pairs // 5)):
        a, b = block(False), block(False)
        off_off.append(a / b if i % 2 else b / a)
    return {"on_ms": round(statistics.median(on_ms), 3), "off_ms": round(statistics.median(off_ms), 3),
            "ratio": interval(on_off), "noise": interval(off_off), "steps_a_block": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--region")
    args = parser.parse_args()

    connection, region = accept()
    tag = struct.Struct("<IIQ")

    def set_taps(on):
        connection.send(tag.pack(MAGIC, 2, TAPS_ALL if on else 0))
        time.sleep(0.005)  # the agent's thread takes the command

    figures = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    training = Training(batch=8, length=1024)
    figures["gpu_bound"] = measure(training, set_taps, args.pairs, args.steps, 1024)
    del training
    small = Training(batch=1, length=64)
    figures["cpu_bound"] = measure(small, set_taps, args.pairs // 2, args.steps, 64)
    if args.region:
        size = os.fstat(region).st_size
        with open(args.region, "wb") as out:
            offset = 0
            while offset < size:
                chunk = os.pread(region, 1 << 20, offset)
                out.write(chunk)
                offset += len(chunk)
    print(json.dumps(figures, indent=1))


main()
