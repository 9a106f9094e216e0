"""The framework's taps in real PyTorch on the CPU: steps, phases, CPU tensors, sites.

    torch_test.py AGENT_LIBRARY [unittest arguments]

Each scenario runs in a process of its own, in which the agent is started as the driver would start it;
what it booked is read from its region, while the process waits and after it has exited.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testdata"))
import region  # noqa: E402

try:
    import importlib.util
    HAVE_TORCH = importlib.util.find_spec("torch") is not None
except ImportError:
    HAVE_TORCH = False

AGENT = sys.argv.pop(1)
SCENARIOS = {}
ITERATIONS = 7


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def start_agent():
    agent = ctypes.CDLL(AGENT)
    assert agent.InitializeInjection() == 1
    return agent


def small_job():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    return torch, model, (lambda: model(torch.randn(16, 64)).sum())


# --- Scenarios: what a job does. They return facts for the test. ---


@scenario
def agent_after_torch():
    torch, model, loss = small_job()
    start_agent()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


@scenario
def agent_before_torch():
    start_agent()
    torch, model, loss = small_job()
    wait_for_tick()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def wait_for_tick():
    time.sleep(2.5)


@scenario
def two_optimizers():
    torch, model, loss = small_job()
    start_agent()
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1),
                  torch.optim.Adam(model[2].parameters())]
    for _ in range(ITERATIONS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss().backward()
        for optimizer in optimizers:
            optimizer.step()


@scenario
def alternating_backward_of_two_models():
    """As a GAN: two backward passes and two optimizers an iteration are two steps."""
    torch, model, loss = small_job()
    start_agent()
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1),
                  torch.optim.Adam(model[2].parameters())]
    for _ in range(ITERATIONS):
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()


@scenario
def gradient_accumulation():
    torch, model, loss = small_job()
    start_agent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        for _ in range(4):
            loss().backward()
        optimizer.step()


@scenario
def reentrant_checkpointing():
    torch, model, _ = small_job()
    import torch.utils.checkpoint
    start_agent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        x = torch.randn(16, 64, requires_grad=True)
        for _ in range(3):
            x = torch.utils.checkpoint.checkpoint(model, x)
        x.sum().backward()
        optimizer.step()


@scenario
def deeper_and_shallower_calls():
    """Backward passes from different depths of the stack are not nested in one another."""
    torch, model, loss = small_job()
    start_agent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def at_depth(depth):
        if depth:
            return sorted([depth], key=lambda _: at_depth(depth - 1) or 0) and None
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    for i in range(ITERATIONS):
        at_depth((i * 5) % 7)


@scenario
def backward_raises():
    torch, model, loss = small_job()
    start_agent()

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, gradient):
            raise RuntimeError("CUDA out of memory (simulated)")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    caught = 0
    for _ in range(ITERATIONS):
        try:
            Fails.apply(loss()).backward()
        except RuntimeError:
            caught += 1
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return {"caught": caught}


@scenario
def cpu_tensors():
    import torch
    torch.zeros(1)
    start_agent()
    kept = []
    script = 0
    for i in range(300):
        tensor = torch.empty(1000 + 37 * i, dtype=torch.uint8)
        torch.empty(5000)
        kept.append(tensor)
        script += tensor.nelement()
        if i % 3 == 0:
            script -= kept.pop(0).nelement()
    del tensor
    KEEP.append(kept)
    return {"live": script}


KEEP = []


@scenario
def sites():
    import torch
    start_agent()

    def keep_masks():
        for _ in range(36):
            KEEP.append(torch.empty(1 << 20, dtype=torch.uint8))

    keep_masks()
    return {"line": keep_masks.__code__.co_firstlineno + 2}


@scenario
def backward_pass():
    """Gradients that backward allocates are booked under the Python line that called backward."""
    import torch
    weights = torch.randn(1 << 20, requires_grad=True)
    start_agent()
    loss = (weights * 2).sum()
    loss.backward()
    KEEP.append(weights)
    return {"line": backward_pass.__code__.co_firstlineno + 7}


@scenario
def phases():
    torch, model, loss = small_job()
    start_agent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def evaluate():
        with torch.no_grad():
            for _ in range(5):
                loss()

    def save_checkpoint():
        return {name: value.clone() for name, value in model.state_dict().items()}

    def pause_and_measure():
        time.sleep(0.3)
        loss()

    for _ in range(6):
        train_step()
    evaluate()
    train_step()
    save_checkpoint()
    train_step()
    pause_and_measure()
    train_step()


@scenario
def explicit_steps_and_phases():
    torch, model, loss = small_job()
    agent = start_agent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(ITERATIONS):
        for _ in range(3):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        agent.tidemark_step()
        if i == 2:
            agent.tidemark_phase(b"main part")
    agent.tidemark_phase(b"tail")


@scenario
def no_framework_optimizer():
    torch, model, loss = small_job()
    start_agent()
    for _ in range(100):
        loss().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad


@scenario
def forked_workers():
    import torch
    start_agent()
    KEEP.append(torch.empty(12345, dtype=torch.uint8))
    KEEP.pop()

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return [torch.empty(1 << 16) for _ in range(4)][0].sum()

    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            kept = [torch.empty(1 << 20) for _ in range(8)]
            os._exit(0 if len(kept) == 8 else 1)
        pids.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    total = 0
    for batch in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2):
        total += batch.shape[0]
    return {"codes": codes, "total": total}


# --- What must have been booked. ---


class Job:
    """A scenario's process, at the point where its work is done."""

    def __init__(self, name, **environment):
        environment = dict(os.environ, TIDEMARK_AGENT_SOCKET="/nonexistent", OMP_NUM_THREADS="1",
                           **environment)
        self.process = subprocess.Popen([sys.executable, __file__, AGENT, "--scenario", name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=environment)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("%s died with status %s" % (name, self.process.wait()))
        self.facts = json.loads(line)
        self.fd = region.find_region(self.process.pid)

    def now(self):
        return region.Region(self.fd)

    def finish(self):
        """The region as the process left it."""
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0
        found = region.Region(self.fd)
        os.close(self.fd)
        return found


@unittest.skipUnless(HAVE_TORCH, "this interpreter has no torch")
class TorchTaps(unittest.TestCase):
    maxDiff = None

    def steps(self, name, backward_passes, scopes, steps=ITERATIONS):
        booked = Job(name).finish()
        self.assertEqual((booked.backward_passes, booked.optimizer_scopes, booked.current_step),
                         (backward_passes, scopes, steps))
        return booked

    def test_one_step_an_iteration(self):
        booked = self.steps("agent_after_torch", ITERATIONS, ITERATIONS)
        features = booked.features()
        for feature in ("cpu_tensors", "step_scopes", "backward", "python_frames",
                        "native_frames"):
            self.assertEqual(features[feature], ("on", ""), feature)

    def test_torch_may_come_after_the_agent(self):
        self.steps("agent_before_torch", ITERATIONS, ITERATIONS)

    def test_two_optimizers_make_one_step(self):
        self.steps("two_optimizers", ITERATIONS, 2 * ITERATIONS)

    def test_alternating_backward_passes_are_steps_of_their_own(self):
        self.steps("alternating_backward_of_two_models", 2 * ITERATIONS, 2 * ITERATIONS,
                   2 * ITERATIONS)

    def test_gradient_accumulation_makes_one_step(self):
        self.steps("gradient_accumulation", 4 * ITERATIONS, ITERATIONS)

    def test_reentrant_checkpointing_counts_the_outermost_pass(self):
        self.steps("reentrant_checkpointing", ITERATIONS, ITERATIONS)

    def test_the_depth_of_the_call_does_not_matter(self):
        self.steps("deeper_and_shallower_calls", ITERATIONS, ITERATIONS)

    def test_a_backward_pass_that_raises_is_caught_by_the_job(self):
        job = Job("backward_raises")
        self.assertEqual(job.facts["caught"], ITERATIONS)
        booked = job.finish()
        self.assertEqual((booked.backward_passes, booked.current_step),
                         (2 * ITERATIONS, ITERATIONS))

    def test_a_job_without_a_framework_optimizer_counts_backward_passes(self):
        booked = Job("no_framework_optimizer").finish()
        self.assertEqual((booked.backward_passes, booked.optimizer_scopes), (100, 0))
        # The first passes are waited through, in case an optimizer shows up.
        self.assertEqual(booked.current_step, 100 - 64 + 1)

    def test_live_bytes_of_cpu_tensors_equal_the_script(self):
        job = Job("cpu_tensors")
        live, allocated, freed = job.now().totals("host")
        job.finish()
        self.assertEqual(live, job.facts["live"])
        self.assertEqual(allocated - freed, live)

    def test_a_site_names_the_line_that_allocates(self):
        job = Job("sites", TIDEMARK_SAMPLING_BYTES="1")
        largest = max(job.now().sites())
        job.finish()
        self.assertEqual(largest[:2], (36 << 20, 36))
        self.assertEqual(largest[2][0], (__file__, job.facts["line"], largest[2][0][2]))
        self.assertTrue(largest[2][0][2].endswith("keep_masks"))

    def test_memory_of_the_backward_pass_names_the_line_that_started_it(self):
        job = Job("backward_pass", TIDEMARK_SAMPLING_BYTES="1")
        largest = max(job.now().sites())
        job.finish()
        self.assertEqual(largest[:2], (4 << 20, 1))
        mine = [frame for frame in largest[2] if frame[0] == __file__]
        self.assertEqual(mine[0][:2], (__file__, job.facts["line"]))

    def test_phases_are_named_by_the_outermost_function_of_a_gap(self):
        job = Job("phases", TIDEMARK_SAMPLING_BYTES="1")
        found = job.now().phases()
        job.finish()
        self.assertEqual(found, ["load", "train", "evaluate", "train", "save_checkpoint", "train",
                                 "pause_and_measure", "train"])

    def test_the_jobs_own_marks_override(self):
        booked = Job("explicit_steps_and_phases").finish()
        # The three passes before the job's first mark made two steps by the usual rule.
        self.assertEqual(booked.current_step, ITERATIONS + 2)
        self.assertEqual(booked.phases(), ["load", "train", "main part", "tail"])

    def test_forked_children_leave_the_parents_totals_alone(self):
        job = Job("forked_workers")
        self.assertEqual(job.facts, {"codes": [0, 0, 0, 0], "total": 64})
        live, allocated, freed = job.now().totals("host")
        job.finish()
        # Nothing that the children kept: 4 x 8 x 4 MiB, and what the loader's workers made.
        self.assertLess(allocated, 1 << 20)
        self.assertEqual(allocated - freed, live)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--scenario"]:
        facts = SCENARIOS[sys.argv[2]]()
        print(json.dumps(facts), flush=True)
        sys.stdin.read()
        sys.exit(0)
    if not HAVE_TORCH:
        print("skipped: %s has no torch module" % sys.executable)
        sys.exit(77)
    unittest.main()
