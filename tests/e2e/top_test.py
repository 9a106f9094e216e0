#!/usr/bin/env python3
"""`tidemark top` on a terminal: keys work, the terminal comes back; lines where there is none.

Usage: top_test.py; TIDEMARK_SOURCE and TIDEMARK_BUILD are the folders.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
PATIENCE = 60
JOB = f"top-test-{os.getpid()}"
LEAVE_FULL_SCREEN = b"\x1b[?1049l"


class Terminal:
    """A pseudo-terminal with `tidemark top` on it; what it drew since the last look is text."""

    def __init__(self, socket, term="xterm-256color"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM=term, LC_ALL="C.UTF-8")
            os.execv(BUILD / "bin/tidemark",
                     ["tidemark", "top", "--socket", str(socket), "--job", JOB])
        self.resize(24, 120)
        self.drawn = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        self.drawn = b""
        os.write(self.fd, keys)

    def wait_for(self, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.drawn):
            assert time.monotonic() < end, (pattern, self.drawn[-3000:])
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.drawn += os.read(self.fd, 65536)
                except OSError:  # the program has ended
                    assert re.search(pattern, self.drawn), (pattern, self.drawn[-3000:])

    def wait_for_screen(self, shows, without):
        """Of a screen that is drawn anew: between two snapshots only what changed is."""
        end = time.monotonic() + PATIENCE
        rows = 24
        while not (re.search(shows, self.drawn) and not re.search(without, self.drawn)):
            assert time.monotonic() < end, (shows, self.drawn[-3000:])
            self.drawn = b""
            rows = 30 if rows == 24 else 24
            self.resize(rows, 120)
            pause = time.monotonic() + 1
            while time.monotonic() < pause:
                if select.select([self.fd], [], [], 0.1)[0]:
                    self.drawn += os.read(self.fd, 65536)

    def status(self):
        """The exit status, whatever is still drawn on the way out."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.drawn += os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("it does not end")


def start_daemon(folder):
    ready, theirs = os.pipe()
    daemon = subprocess.Popen(
        [BUILD / "bin/tidemarkd", "--private", "--agent-socket", folder / "agent.sock",
         "--api-socket", folder / "api.sock", "--http", "off", "--no-bpf", "--exit-when-idle", "0",
         "--ready-fd", str(theirs)], pass_fds=[theirs], stderr=subprocess.DEVNULL)
    os.close(theirs)
    with os.fdopen(ready) as pipe:
        pipe.readline()
    return daemon


def main():
    with tempfile.TemporaryDirectory(prefix="tidemark-top-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o700)
        os.environ.update(TIDEMARK_SIM_STATE=str(folder / "sim"), LD_LIBRARY_PATH=str(BUILD / "sim"))
        daemon = start_daemon(folder)
        job = subprocess.Popen(
            [sys.executable, SOURCE / "tests/sim/simtrain.py", "--sim", BUILD / "sim", "--ranks", "2",
             "--steps", "1000000", "--step-ms", "50", "--scenario", "one-rank", "--leak-rank", "1"],
            env=dict(os.environ, TIDEMARK_AGENT_SOCKET=str(folder / "agent.sock"), TIDEMARK_JOB=JOB,
                     CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so")),
            stdout=subprocess.DEVNULL, start_new_session=True)
        terminal = None
        try:
            terminal = Terminal(folder / "api.sock")
            terminal.wait_for(rb"rank 0[\s\S]*rank 1|rank 1[\s\S]*rank 0")
            terminal.press(b"s")  # by another column
            terminal.wait_for(rb"GPU|gpu|sort")
            terminal.press(b"\r")  # into a rank: its sites
            terminal.wait_for(rb"simtrain_\w+\.py:\d+")
            terminal.press(b"\r")  # into a site: its frames
            terminal.wait_for(rb"simtrain\.py")
            terminal.press(b"\x1b")
            terminal.press(b"\x1b")
            terminal.wait_for_screen(rb"rank 0[\s\S]*rank 1|rank 1[\s\S]*rank 0", rb"simtrain\.py")

            # The daemon goes and comes back.
            daemon.kill()
            daemon.wait()
            terminal.wait_for(rb"daemon is gone")
            daemon = start_daemon(folder)
            terminal.wait_for_screen(rb"rank [01]", rb"daemon is gone")
            terminal.press(b"q")
            assert terminal.status() == 0
            assert LEAVE_FULL_SCREEN in terminal.drawn, terminal.drawn[-200:]

            # No terminal that can be drawn on: a line a process.
            terminal = Terminal(folder / "api.sock", term="no-such-terminal")
            terminal.wait_for(rb"rank 1 step \d+ gpu")
            os.kill(terminal.pid, signal.SIGTERM)
            terminal.status()
            lines = subprocess.run(
                [BUILD / "bin/tidemark", "top", "-n", "2", "--socket", folder / "api.sock",
                 "--job", JOB], capture_output=True, text=True, check=True).stdout
            assert lines.count("rank 0 step") == 2, lines
        finally:
            if terminal is not None:
                try:
                    os.kill(terminal.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            os.killpg(job.pid, signal.SIGKILL)
            daemon.kill()
            daemon.wait()


main()
