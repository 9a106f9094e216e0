"""The user's model: what a trainer wrote, with the module that keeps concatenated weights.

Lines that end in `# leak-site: NAME` are where the scenario of that name allocates what it keeps;
simtrain.py reads their numbers for its truth line.
"""
import simtorch
from simspeed.zero import LinearFunctionForZeroStage3, Parameter
from simtorch.nn import Module

MIB = 1 << 20
LAYER_BYTES = 16 * MIB
ACTIVATION_BYTES = 24 * MIB
MASK_BYTES = 256 * MIB


class Linear(Module):
    def __init__(self, job):
        self.weight = Parameter(LAYER_BYTES, job.world, job.device, job.zero_init)

    def forward(self):
        return LinearFunctionForZeroStage3.forward(self.weight, ACTIVATION_BYTES)


class Attention(Module):
    """One projection, and GPT-2's causal mask where the scenario wants it."""

    def __init__(self, job):
        self.projection = Linear(job)
        self.bias = None
        if job.scenario == "masks":
            self.bias = simtorch.empty(MASK_BYTES, job.device)  # leak-site: masks

    def forward(self):
        return self.projection()


class FusedProjection(Module):
    """Concatenates the weights of query, key and value in forward and caches the result.

    The key is the parameter's id. With zero.Init on, that id is fresh at every gather, so every
    forward adds an entry; with it off the entry is replaced.
    """

    def __init__(self, job):
        self.weight = Parameter(3 * MIB, job.world, job.device, job.zero_init)
        self.bytes = job.leak_bytes
        self.device = job.device
        self.fused = {}

    def forward(self):
        gathered = self.weight.gather()
        key = self.weight.ds_id
        self.fused[key] = simtorch.cat([_Part(self.bytes)], self.device)  # leak-site: zero-init-cat
        del gathered


class _Part:
    def __init__(self, nbytes):
        self.nbytes = nbytes


class Block(Module):
    def __init__(self, job):
        self.attention = Attention(job)

    def forward(self):
        return self.attention()


class GPT(Module):
    def __init__(self, job):
        self.blocks = [Block(job) for _ in range(job.layers)]
        self.fused = FusedProjection(job) if job.scenario == "zero-init-cat" else None

    def forward(self):
        activations = [block() for block in self.blocks]
        if self.fused is not None:
            self.fused()
        return activations

    def optimizer_state(self, job):
        part = LAYER_BYTES // job.world
        return [simtorch.empty(2 * part, job.device)
                for _ in self.blocks for _ in ("master", "momentum", "square")]
