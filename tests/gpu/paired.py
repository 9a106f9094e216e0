#!/usr/bin/env python3
"""Step time with the agent's taps on against off, alternating in blocks within one process.

    paired.py [--pairs N] [--steps N] > figures.json      (run with CUDA_INJECTION64_PATH set)

Off, the framework calls its own functions again (tap_slots.py); the subscription to CUPTI, which a
step without driver allocations never calls, and the callback at the optimizer's scope stay. A pair in
which the agent took its slots back is measured again. The process plays the daemon to its own agent:
with --region FILE it saves the region (a fixture for the tests that have no GPU).
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
from tap_slots import TapSlots  # noqa: E402

MAGIC = 0x31484D54


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


def measure(training, slots, pairs, steps, length):
    def block(on):
        """Seconds of a block, None when the agent took its slots back in the middle."""
        slots.set(on)
        training.step(length)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            training.step(length)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return 1000 * seconds / steps if slots.are(on) else None

    def pair(first, second):
        while True:
            a, b = block(first), block(second)
            if a is not None and b is not None:
                return a, b

    slots.set(True)
    for _ in range(20):
        training.step(length)
    on_off, off_off, on_ms, off_ms = [], [], [], []
    for i in range(pairs):
        on, off = pair(True, False) if i % 2 else reversed(pair(False, True))
        on_off.append(on / off)
        on_ms.append(on)
        off_ms.append(off)
    for i in range(max(20, pairs // 10)):
        a, b = pair(False, False)
        off_off.append(a / b if i % 2 else b / a)
    slots.set(True)
    return {"on_ms": round(statistics.median(on_ms), 3), "off_ms": round(statistics.median(off_ms), 3),
            "ratio": interval(on_off), "noise": interval(off_off), "steps_a_block": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--region")
    args = parser.parse_args()

    connection, region = accept()
    training = Training(batch=8, length=1024)
    training.step()  # whatever is loaded late is loaded now, and hooked within the agent's next second
    time.sleep(3)
    slots = TapSlots()
    figures = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
               "slots": sorted({name for *_, name in slots.slots})}
    figures["gpu_bound"] = measure(training, slots, args.pairs, args.steps, 1024)
    del training
    small = Training(batch=1, length=64)
    figures["cpu_bound"] = measure(small, slots, args.pairs // 2, args.steps, 64)
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
