"""The user's training loop, with what the other scenarios do wrong (or only seem to)."""
import ctypes
import time

import simtorch
from simspeed.zero import LinearFunctionForZeroStage3
from simtorch.optim import SGD, AdamW
from simtrain_model import GPT, LAYER_BYTES, MIB

STACK_BYTES = (16384 - 1024) * 132 * 2048


class Trainer:
    def __init__(self, job):
        self.job = job
        self.library = simtorch.library()
        LinearFunctionForZeroStage3.random.seed(job.seed)
        self.model = GPT(job)
        self.state = self.model.optimizer_state(job) if job.trains else []
        self.optimizers = [AdamW(job.device)]
        if job.scenario == "two-optimizers":
            self.optimizers.append(SGD(job.device))
        self.losses = []
        self.cache = []
        self.truth = {name: 0 for name in ("raw_cuda", "vmm", "pool", "pinned", "host", "stack",
                                           "leaked_bytes", "leak_count", "backward_raised")}
        self.first_leak_step = -1
        if job.scenario == "rank-skew" and job.rank:
            self.cache.append(simtorch.empty(job.rank * 64 * MIB, job.device))

    def leaked(self, nbytes):
        self.truth["leaked_bytes"] += nbytes
        self.truth["leak_count"] += 1
        if self.first_leak_step < 0:
            self.first_leak_step = self.job.step

    def log_loss(self):
        job = self.job
        self.losses.append(simtorch.empty(job.leak_bytes, job.device))  # leak-site: one-rank late-onset oom
        self.leaked(job.leak_bytes)

    def evaluate(self):
        job = self.job
        for _ in range(10):
            simtorch.empty(32 * MIB, job.device)
            if job.leaks:
                self.losses.append(simtorch.empty(job.leak_bytes, job.device))  # leak-site: eval-leak
                self.leaked(job.leak_bytes)

    def kernel_workspace(self):
        job = self.job
        if self.library.simtorch_cuda_malloc(job.leak_bytes) is None:  # leak-site: raw-cuda
            raise simtorch.OutOfMemoryError("cudaMalloc")
        self.truth["raw_cuda"] += job.leak_bytes
        self.leaked(job.leak_bytes)

    def map_memory(self):
        job = self.job
        nbytes = -(-job.leak_bytes // (2 * MIB)) * 2 * MIB
        if self.library.simtorch_vmm_alloc(nbytes, job.device) is None:  # leak-site: vmm
            raise simtorch.OutOfMemoryError("cuMemCreate")
        self.truth["vmm"] += nbytes
        self.leaked(nbytes)

    def stage(self):
        job = self.job
        buffers = [self.library.simtorch_pin_memory(4 * MIB) for _ in range(2)]
        if job.leaks:
            if self.library.simtorch_pin_memory(job.leak_bytes) is None:  # leak-site: pinned
                raise simtorch.OutOfMemoryError("cudaHostAlloc")
            self.truth["pinned"] += job.leak_bytes
            self.leaked(job.leak_bytes)
        for buffer in buffers:
            self.library.simtorch_unpin_memory(buffer)

    def stream_ordered(self):
        job = self.job
        for _ in range(8):
            self.library.simtorch_cuda_free_async(
                self.library.simtorch_cuda_malloc_async(6 * MIB))
        if job.leaks:
            if self.library.simtorch_cuda_malloc_async(job.leak_bytes) is None:  # leak-site: async-pool
                raise simtorch.OutOfMemoryError("cudaMallocAsync")
            self.truth["pool"] += job.leak_bytes
            self.leaked(job.leak_bytes)
        self.library.simtorch_cuda_synchronize()

    def keep_on_host(self):
        job = self.job
        kept = simtorch.empty(job.leak_bytes, -1)  # leak-site: host
        ctypes.memset(kept.data_ptr, 1, job.leak_bytes)
        self.losses.append(kept)
        self.truth["host"] += job.leak_bytes
        self.leaked(job.leak_bytes)

    def forward_backward(self):
        job = self.job
        activations = self.model()
        if job.scenario == "fragmentation":
            simtorch.empty((64 + 2 * (job.step // 5)) * MIB, job.device)
        if job.scenario == "raises" and job.step % 10 == 5:
            try:
                simtorch.backward([simtorch.empty(MIB, job.device)], [MIB], job.device, fail=True)
            except RuntimeError:
                self.truth["backward_raised"] += 1
        simtorch.backward(activations, [LAYER_BYTES] * len(activations), job.device,
                          nested=job.scenario == "nested")

    def optimizer_step(self):
        for _ in range(7 if self.job.scenario == "subgroups" else 1):
            for optimizer in self.optimizers:
                optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def after_step(self):
        job = self.job
        scenario, step = job.scenario, job.step
        if scenario == "zero-init-cat" and job.leaks:
            self.leaked(job.leak_bytes)
        elif scenario in ("one-rank", "oom") and job.leaks:
            self.log_loss()
        elif scenario == "late-onset" and job.leaks and step >= job.steps // 2:
            self.log_loss()
        elif scenario == "eval-leak" and step % 50 == 49:
            self.evaluate()
        elif scenario == "raw-cuda" and job.leaks:
            self.kernel_workspace()
        elif scenario == "vmm" and job.leaks:
            self.map_memory()
        elif scenario == "pinned":
            self.stage()
        elif scenario == "async-pool":
            self.stream_ordered()
        elif scenario == "host" and job.leaks:
            self.keep_on_host()
        elif scenario == "warmup" and step < 60:
            self.cache.append(simtorch.empty(job.leak_bytes, job.device))
        elif scenario == "sawtooth":
            self.cache.append(simtorch.empty(job.leak_bytes, job.device))
            if step % 50 == 49:
                self.cache.clear()
        elif scenario == "stack-limit" and step == job.steps // 2:
            self.library.simtorch_cuda_set_stack_limit(16384)
            self.truth["stack"] = STACK_BYTES

    def train(self):
        job = self.job
        while job.step < job.steps:
            for _ in range(4 if job.scenario == "accumulate" else 1):
                self.forward_backward()
            self.optimizer_step()
            self.after_step()
            self.library.simtorch_cuda_launch()
            time.sleep(job.step_ms / 1000)
            job.step += 1
