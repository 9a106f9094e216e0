#!/usr/bin/env python3
"""scale_bench.py: what many nodes cost a real Prometheus, with the rules of deploy/.

One node is real: a daemon with eight simulated ranks, scraped once. Its text is then served for
each of --nodes nodes, with labels and values changed, on one loopback port. Prints a table; --check
asserts that everything arrived. Exit status 0 passes, 77 skips, anything else fails.

    TIDEMARK_BUILD=build TIDEMARK_SOURCE=. tests/cluster/scale_bench.py --nodes 1024 --seconds 360
"""
import argparse
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from nodes import PATIENCE, enter_sandbox, run, wait_until

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
RANKS_A_NODE = 8
NODES_A_JOB = 128
NODE_PORT, PROMETHEUS_PORT = 9470, 9090


def check(condition, message):
    if not condition:
        sys.exit(message)


def read(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def record(folder):
    """A real scrape: eight ranks, observed, with steps and a verdict; the last one leaks."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim"),
                   "TIDEMARK_SIM_STATE": str(folder / "sim"),
                   "TIDEMARK_AGENT_SOCKET": str(folder / "agent.sock"), "TIDEMARK_JOB": "JOB"}
    with open(folder / "log", "w") as log:
        daemon = subprocess.Popen(
            [BUILD / "bin/tidemarkd", "--private", "--agent-socket", folder / "agent.sock",
             "--api-socket", folder / "api.sock", "--http", "127.0.0.1:9469", "--no-bpf",
             "--exit-when-idle", "0"], env=environment, stderr=log)
        job = subprocess.Popen(
            [BUILD / "bin/simtrain", "--ranks", str(RANKS_A_NODE), "--steps", "1000000",
             "--step-ms", "50", "--scenario", "one-rank", "--leak-rank", str(RANKS_A_NODE - 1)],
            env={**environment, "CUDA_INJECTION64_PATH": str(BUILD / "lib/libtidemark_cupti.so")},
            stdout=subprocess.DEVNULL)
    try:
        def whole():
            text = read("http://127.0.0.1:9469/metrics")
            return (text if text.count("tidemark_step_floor_bytes{") == RANKS_A_NODE and
                    'state="confirmed"' in text else None)
        return wait_until(whole, "no scrape of eight ranks with a verdict", 2 * PATIENCE)
    finally:
        for process in (job, daemon):
            process.terminate()
            process.wait()


class ManyNodes:
    """The recorded text as (text before a value, the value), and as any node would say it."""

    def __init__(self, text):
        self.lines = []
        self.comments = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
        for line in text.splitlines():
            if not line.startswith("#"):
                labels, value = line.rsplit(" ", 1)
                self.lines.append((labels, float(value)))
        self.served = {}

    def names(self, node):
        """The labels of each line, with this node's own names."""
        job = f'training_job="job-{node // NODES_A_JOB}"'
        own = []
        for labels, _ in self.lines:
            labels = labels.replace('training_job="JOB"', job)
            labels = re.sub(r'([{,])rank="(\d+)"', lambda m: (
                f'{m[1]}rank="{node % NODES_A_JOB * RANKS_A_NODE + int(m[2])}"'), labels)
            labels = re.sub(r'([{,]node)="[^"]*"', rf'\1="node-{node}"', labels)
            own.append(re.sub(r'uuid="([^"]*)"', rf'uuid="\1-{node}"', labels) + " ")
        return own

    def text(self, node):
        """Bytes differ a little between nodes and scrapes; counters rise."""
        if node not in self.served:
            self.served[node] = (self.names(node), random.Random(node))
        names, rng = self.served[node]
        now = time.time()
        out = []
        for name, (labels, value) in zip(names, self.lines):
            if labels.startswith("tidemark_world_size"):
                value = RANKS_A_NODE * NODES_A_JOB
            elif labels.startswith("tidemark_snapshot_timestamp"):
                value = now
            elif "_total" in labels:
                value += int(now * 10)
            elif value > 1e6:
                value += rng.randrange(1 << 20)
            out.append(f"{name}{value!r}\n")
        return (self.comments + "".join(out)).encode()


def serve(nodes):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = nodes.text(int(self.path.strip("/")))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 1024

        def handle_error(self, *_):
            pass  # a scrape that was given up: Prometheus counts it

    server = Server(("127.0.0.1", NODE_PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def query(expression):
    parameters = urllib.parse.urlencode({"query": expression})
    answer = json.loads(read(f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/query?{parameters}"))
    return {tuple(sorted(each["metric"].items())): float(each["value"][1])
            for each in answer["data"]["result"]}


def own_metrics():
    """Prometheus' own numbers, summed over their labels: {name: value}; rule groups by name too."""
    numbers, groups = {}, {}
    for line in read(f"http://127.0.0.1:{PROMETHEUS_PORT}/metrics").splitlines():
        if line.startswith("#"):
            continue
        labels, value = line.rsplit(" ", 1)
        name = labels.split("{")[0]
        numbers[name] = numbers.get(name, 0) + float(value)
        if name == "prometheus_rule_group_last_duration_seconds":
            groups[re.search(r";([^\"]*)\"", labels)[1]] = float(value)
    return numbers, groups


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=360)
    parser.add_argument("--interval", type=int, default=15)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if shutil.which("prometheus") is None:
        print("skipped: no prometheus here")
        sys.exit(77)
    enter_sandbox()
    run("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        nodes = ManyNodes(record(folder))
        serve(nodes)
        (folder / "nodes.json").write_text(json.dumps([
            {"targets": [f"127.0.0.1:{NODE_PORT}"],
             "labels": {"__metrics_path__": f"/{node}", "instance": f"node-{node}:9470"}}
            for node in range(options.nodes)]))
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": f"{options.interval}s",
                       "evaluation_interval": f"{options.interval}s"},
            "rule_files": [str(SOURCE / "deploy/prometheus/rules/*.yml")],
            "scrape_configs": [{"job_name": "tidemark", "sample_limit": 20000,
                                "file_sd_configs": [{"files": [str(folder / "nodes.json")]}]}]}))
        with open(folder / "prometheus.log", "w") as log:
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"], stdout=log, stderr=log)
        try:
            wait_until(lambda: sum(query("count(up == 1)").values()) == options.nodes,
                       "not all nodes are scraped", 4 * PATIENCE)
            first, began, slowest = own_metrics()[0], time.monotonic(), {}
            while time.monotonic() < began + options.seconds:
                time.sleep(min(5, options.seconds / 4))
                for group, seconds in own_metrics()[1].items():
                    slowest[group] = max(slowest.get(group, 0), seconds)
            last, lasted = own_metrics()[0], time.monotonic() - began
            scraped = query("sum(scrape_samples_scraped)").popitem()[1]
            failed = options.nodes - sum(query("sum(min_over_time(up[10m]))").values())

            def rate(name):
                return (last[name] - first[name]) / lasted
            samples = rate("prometheus_tsdb_head_samples_appended_total")
            memory = last["process_resident_memory_bytes"] / 2**20
            rows = [
                ("nodes, ranks, jobs", f"{options.nodes}, {options.nodes * RANKS_A_NODE}, "
                                       f"{-(-options.nodes // NODES_A_JOB)}"),
                ("series a scrape; bytes", f"{len(nodes.lines)}; {len(nodes.text(0))}"),
                ("series, with those of the rules", f"{last['prometheus_tsdb_head_series']:.0f}"),
                ("samples a second", f"{samples:.0f}"),
                ("processor time, cores", f"{rate('process_cpu_seconds_total'):.2f}"),
                ("resident memory, MiB", f"{memory:.0f}"),
                ("nodes with a failed scrape", f"{failed:.0f}"),
                *((f"slowest evaluation of {group}, s", f"{seconds:.2f}")
                  for group, seconds in sorted(slowest.items()))]
            for what, value in rows:
                print(f"| {what} | {value} |")
            if options.check:
                check(scraped == options.nodes * len(nodes.lines), f"{scraped} samples a round")
                check(failed == 0, f"{failed} nodes failed")
                ranks = wait_until(lambda: query("training_job:tidemark_ranks:count"),
                                   "no ranks counted")
                check(sum(ranks.values()) == options.nodes * RANKS_A_NODE, f"{ranks}")
                check(last["prometheus_rule_evaluation_failures_total"] == 0, "a rule failed")
        finally:
            prometheus.terminate()
            prometheus.wait()


if __name__ == "__main__":
    main()
