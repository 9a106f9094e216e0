"""A cluster inside one machine: each node is a process with a network, host name, process table and
/run of its own, on a bridge that reaches nothing else.

enter_sandbox() puts the calling test into namespaces of its own first: whatever happens to the
test, the kernel ends everything that it started, and no interface is left behind.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import time

PATIENCE = 60
SUBNET = "10.77.0."
INSIDE = "TIDEMARK_TEST_SANDBOX"


def enter_sandbox():
    """Runs this program anew in namespaces of its own; returns in there."""
    if INSIDE in os.environ:
        return
    if os.geteuid() != 0:
        print("skipped: namespaces and other users need root")
        sys.exit(77)
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool} here; install util-linux and iproute2")
            sys.exit(77)
    os.execvpe("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                           "--mount-proc", sys.executable, *sys.argv],
               {**os.environ, INSIDE: "1"})


def run(*command):
    subprocess.run([str(part) for part in command], check=True)


def wait_until(what, message, seconds=PATIENCE, every=0.5):
    """What `what` returns once that is true; `message` may be a function. OSError: ask again."""
    until = time.monotonic() + seconds
    while True:
        try:
            found = what()
        except OSError:
            found = None  # not up yet, or too busy
        if found:
            return found
        if time.monotonic() > until:
            sys.exit(f"did not come about: {message() if callable(message) else message}")
        time.sleep(every)


class Network:
    """The bridge, with this test on it as the first of `hosts`: {name: other names}."""

    def __init__(self, folder, hosts):
        self.addresses = {name: SUBNET + str(number) for number, name in enumerate(hosts, 1)}
        file = pathlib.Path(folder) / "hosts"
        file.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {name} {hosts[name]}\n" for name, address in self.addresses.items()))
        run("mount", "--bind", file, "/etc/hosts")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "address", "add", next(iter(self.addresses.values())) + "/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")

    def cut(self, name):
        run("ip", "link", "set", name, "down")

    def heal(self, name):
        run("ip", "link", "set", name, "up")


class Node:
    """A host of the network. Ends, with all that runs on it, by kill()."""

    def __init__(self, network, name):
        self.name = name
        keeper = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", "-c",
             f"hostname {name} && mount -t tmpfs none /run && exec sleep infinity"])
        self.keeper = keeper
        children = pathlib.Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
        first = wait_until(lambda: children.read_text().split(), f"no {name}", every=0.05)
        self.pid = int(first[0])
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        run("ip", "link", "set", name, "master", "bridge", "up")
        for command in (["ip", "link", "set", "lo", "up"],
                        ["ip", "address", "add", network.addresses[name] + "/24", "dev", "eth0"],
                        ["ip", "link", "set", "eth0", "up"]):
            self.start(*command).wait()
        said = pathlib.Path(f"/proc/{self.pid}/comm")
        wait_until(lambda: said.read_text() == "sleep\n", f"{name} is not up", every=0.05)

    def start(self, *command, **more):
        """A process on the node."""
        return subprocess.Popen(
            ["nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--pid",
             *[str(part) for part in command]], **more)

    def kill(self):
        self.keeper.kill()
        self.keeper.wait()
