#!/usr/bin/env python3
"""Takes device memory in ways that no framework counter shows, then waits until told to go on, so
that a waterfall can be read meanwhile.

    named_bytes.py stack|nccl|expandable READY_FILE GO_FILE
"""
import ctypes
import os
import pathlib
import sys
import time

mode, ready, go = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
if mode == "expandable":
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch  # noqa: E402  (the allocator reads its environment at import)

x = torch.ones(64 << 20, device="cuda")
torch.cuda.synchronize()
time.sleep(4)  # the context's own size is taken in the first seconds
if mode == "stack":
    runtime = ctypes.CDLL("libcudart.so.13") if torch.version.cuda.startswith("13") else ctypes.CDLL("libcudart.so.12")
    assert runtime.cudaDeviceSetLimit(0, ctypes.c_size_t(16384)) == 0
elif mode == "nccl":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29551", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl")
    torch.distributed.all_reduce(x)
elif mode == "expandable":
    kept = [torch.empty(300 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
torch.cuda.synchronize()
print("reserved", torch.cuda.memory_reserved(), "allocated", torch.cuda.memory_allocated(), flush=True)
ready.touch()
deadline = time.time() + 60
while not go.exists() and time.time() < deadline:
    time.sleep(0.1)
