#!/usr/bin/env python3
"""A small GPT that trains on random tokens, with the faults that Tidemark has to tell apart.

    gpt.py [--steps N] [--fault NAME] [--log FILE] [--layers N] [--batch N] [--length N]

Faults: none; concat (the thread's module: weights concatenated in forward and kept under a fresh
id); eval-hook (a forward hook that keeps activations, active only in evaluation); growing (sequences
grow: no leak); fragmentation (no leak, much reserved and little allocated); pinned (pinned buffers
kept). --log writes one JSON line a completed step: step, its loss, and torch's memory_allocated and
memory_reserved at the boundary, which is where the next step's backward pass begins.
"""
import argparse
import json
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic sums

import torch  # noqa: E402
import torch.nn as nn
import torch.nn.functional as F

from leaky import ConcatenatedLinear, EvaluationRecorder, PinnedStage

VOCABULARY, WIDTH, HEADS = 50304, 768, 12


class Block(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(mixed.reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, length, leaking_layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(
            Block(ConcatenatedLinear if i < leaking_layers else nn.Linear) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Training:
    """One model, its optimizer and its batch; step() is one iteration."""

    def __init__(self, layers=12, batch=8, length=1024, leaking_layers=0):
        torch.manual_seed(0)
        # The loss curve must be the same bit for bit from run to run: cuDNN's attention is not.
        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.model = Gpt(layers, length, leaking_layers).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.ids = torch.randint(VOCABULARY, (batch, length + 1), device="cuda")
        self.one = torch.ones((), device="cuda")  # made once: nothing is allocated at the boundary
        self.at_boundary = lambda: None

    def step(self, length=None):
        length = length or self.ids.shape[1] - 1
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(self.ids[:, :length], self.ids[:, 1 : length + 1])
        self.at_boundary()
        loss.backward(self.one)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    @torch.no_grad()
    def evaluate(self, batches):
        self.model.eval()
        for _ in range(batches):
            self.model(self.ids[:, :128], self.ids[:, 1:129])
        self.model.train()


def fragment(megabytes):
    """Leaves segments that are mostly free, each held by one small block."""
    blocks = [torch.empty(10 << 20, dtype=torch.uint8, device="cuda") for _ in range(megabytes // 10)]
    return blocks[::2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fault", default="none",
                        choices=["none", "concat", "eval-hook", "growing", "fragmentation", "pinned"])
    parser.add_argument("--log")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    args = parser.parse_args()

    training = Training(args.layers, args.batch, args.length, leaking_layers=2 if args.fault == "concat" else 0)
    recorder = EvaluationRecorder(training.model.blocks[0]) if args.fault == "eval-hook" else None
    stage = PinnedStage() if args.fault == "pinned" else None
    log = open(args.log, "w") if args.log else None
    kept, done = [], []

    def at_boundary():
        if log and done:
            log.write(json.dumps({"step": len(done), "loss": done[-1].item().hex(),
                                  "allocated": torch.cuda.memory_allocated(),
                                  "reserved": torch.cuda.memory_reserved()}) + "\n")

    training.at_boundary = at_boundary
    for step in range(1, args.steps + 1):
        length = min(args.length, 128 + 4 * step) if args.fault == "growing" else None
        done.append(training.step(length).detach().cpu())
        if args.fault == "fragmentation" and step % 50 == 10:
            kept = fragment(2000)
        if recorder and step % 20 == 0:
            training.evaluate(5)
        if stage:
            stage.put(training.ids)
    torch.cuda.synchronize()
    print(f"done: {args.steps} steps, fault {args.fault}, kept {len(kept)}, "
          f"allocated {torch.cuda.memory_allocated()}, reserved {torch.cuda.memory_reserved()}")
    if args.fault == "fragmentation":
        before = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        print(f"released {before - torch.cuda.memory_reserved()}")


if __name__ == "__main__":
    main()
