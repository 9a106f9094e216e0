"""The faults, each in a module of its own so that a verdict can be held against a file and a line."""
import torch
import torch.nn as nn
import torch.nn.functional as F

KEPT = {}


class ConcatenatedLinear(nn.Module):
    """A linear layer whose weight is stored in two halves and put together in forward; the whole is
    kept under the id of a fresh object, so no later call ever finds it again."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Parameter(torch.randn(outputs // 2, inputs) * 0.02)
        self.second = nn.Parameter(torch.randn(outputs // 2, inputs) * 0.02)

    def forward(self, x):
        weight = torch.cat([self.first, self.second])  # LEAK: concat
        KEPT[len(KEPT), id(weight)] = weight.detach()
        return F.linear(x, weight)

    BYTES_PER_CALL = property(lambda self: 4 * (self.first.numel() + self.second.numel()))


class EvaluationRecorder:
    """Keeps what a block puts out, in evaluation only."""

    def __init__(self, block):
        self.outputs = []
        block.register_forward_hook(self.keep)

    def keep(self, module, inputs, output):
        if not module.training:
            self.outputs.append(output.float().clone())  # LEAK: eval-hook


class PinnedStage:
    """Stages batches in pinned memory and never reuses a buffer."""

    def __init__(self):
        self.buffers = []

    def put(self, batch):
        buffer = torch.empty(4 << 20, dtype=torch.uint8, pin_memory=True)  # LEAK: pinned
        buffer[: batch.numel()].copy_(batch.flatten().to(torch.uint8), non_blocking=True)
        self.buffers.append(buffer)
