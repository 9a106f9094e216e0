#!/usr/bin/env python3
"""The daemon is killed at random moments while ranks run: the history stays sound and loses little.

Usage: history_kill_test.py [KILLS]; TIDEMARK_SOURCE and TIDEMARK_BUILD are the folders. After each
SIGKILL, SQLite (Python's, not ours) checks the file; at the end every second in which a daemon was
up is looked for, and what is missing before a kill is printed.
"""
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
MOST_LOST_SECONDS = 10


def start_daemon(folder):
    ready, theirs = os.pipe()
    daemon = subprocess.Popen(
        [BUILD / "bin/tidemarkd", "--private", "--agent-socket", folder / "agent.sock",
         "--api-socket", folder / "api.sock", "--http", "off", "--no-bpf",
         "--ready-fd", str(theirs)],
        pass_fds=[theirs], stderr=subprocess.DEVNULL)
    os.close(theirs)
    with os.fdopen(ready) as pipe:
        pipe.readline()
    return daemon


def newest_sample(database):
    """Seconds of the newest sample of a rank; None when there is none. Fails on a damaged file."""
    with sqlite3.connect(database) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        newest = db.execute("SELECT max(end_ms) FROM chunk JOIN process ON process.id = process"
                            " WHERE pid != 0").fetchone()[0]
    db.close()
    return None if newest is None else newest / 1000


def ranks_of(job, database):
    """A daemon sees every rank on the machine, those of other tests too: only the job's count."""
    with sqlite3.connect(database) as db:
        count = db.execute("SELECT count(*) FROM process WHERE rank >= 0 AND training_job = ?",
                           (f"simtrain-{job.pid}",)).fetchone()[0]
    db.close()
    return count


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tidemark-kill-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o700)
        os.environ.update(TIDEMARK_SIM_STATE=str(folder / "sim"), LD_LIBRARY_PATH=str(BUILD / "sim"))
        job = subprocess.Popen(
            [BUILD / "bin/simtrain", "--launcher", "torchrun", "--ranks", "4", "--steps", "10000000",
             "--step-ms", "20"],
            env=dict(os.environ, TIDEMARK_AGENT_SOCKET=str(folder / "agent.sock"),
                     CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so")),
            stdout=subprocess.DEVNULL, start_new_session=True)
        database = folder / "state/history.db"
        lost = []
        try:
            for kill in range(kills):
                daemon = start_daemon(folder)
                up = time.time()
                # Before its first write, in the middle of one, or long after.
                time.sleep(moments.uniform(0.2, 14))
                while kill == kills - 1 and ranks_of(job, database) < 4:
                    assert time.time() < up + 120, "the ranks do not come into the history"
                    time.sleep(0.2)
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()
                killed = time.time()
                newest = newest_sample(database)
                # What the daemon before had written is there; of this one, all but its last seconds.
                lost.append(killed - max(up, newest or 0))
                assert lost[-1] <= MOST_LOST_SECONDS, (kill, lost[-1])
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        assert ranks_of(job, database) == 4, f"{ranks_of(job, database)} ranks: a restart made new ones"
        assert not list(database.parent.glob("*.damaged*")), "a kill damaged the file"
        lost.sort()
        print(f"{kills} kills: at most {lost[-1]:.1f} s lost, median {lost[kills // 2]:.1f} s")


main()
