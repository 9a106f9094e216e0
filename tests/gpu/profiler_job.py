#!/usr/bin/env python3
"""Runs torch.profiler in the way named and prints the multiset of CUDA events it saw, as JSON.

    profiler_job.py plain|schedule|graphs
"""
import collections
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule


def count(events):
    return collections.Counter(e.name for e in events if str(e.device_type).endswith("CUDA"))


def main():
    mode = sys.argv[1]
    a = torch.rand(512, 512, device="cuda")
    a @ a
    torch.cuda.synchronize()
    seen = collections.Counter()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    if mode == "plain":
        for _ in range(2):
            with profile(activities=activities) as p:
                for _ in range(10):
                    a @ a
                torch.cuda.synchronize()
            seen += count(p.events())
    elif mode == "schedule":
        with profile(activities=activities, schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
                     on_trace_ready=lambda p: seen.update(count(p.events()))) as p:
            for _ in range(9):
                torch.relu(a @ a)
                torch.cuda.synchronize()
                p.step()
    elif mode == "graphs":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            a @ a
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            b = torch.relu(a @ a)
        with profile(activities=activities) as p:
            for _ in range(5):
                graph.replay()
            torch.cuda.synchronize()
        seen += count(p.events())
        del b
    else:
        sys.exit(f"unknown mode {mode!r}: plain, schedule or graphs")
    print(json.dumps(dict(sorted(seen.items()))))


main()
