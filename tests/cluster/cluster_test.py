#!/usr/bin/env python3
"""One job of 32 ranks on four nodes, a real Prometheus, Alertmanager and VictoriaMetrics.

Rank 13 leaks in the framework, all others outside it. Half of the nodes start their ranks by
torchrun inside the Slurm allocation, half by srun. What is in deploy/ is used as it is, but for
addresses and for intervals, which are short. Exit status 0 passes, 77 skips, anything else fails.
"""
import http.server
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from nodes import Network, Node, PATIENCE, enter_sandbox, run, wait_until

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
DEPLOY = SOURCE / "deploy"
PROGRAMS = {"prometheus": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager",
            "victoria-metrics": "victoria-metrics"}
NODES = ["node-1", "node-2", "node-3", "node-4"]
RANKS_A_NODE = 8
RANKS = RANKS_A_NODE * len(NODES)
JOB = "4711"
TOKEN = "only-for-this-test"
LEAKING_RANK, ITS_NODE = 13, "node-2"  # in the framework; all others in vmm
# The ranks of a job-wide leak are confirmed seconds apart; in deploy/ a minute.
STANDS = 10


def check(condition, message):
    if not condition:
        sys.exit(message)


def get(url):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + TOKEN})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def snapshot(node):
    return get(f"http://{node}:9470/api/v1/snapshot")


def launch(node, index, log):
    """Eight ranks of the job, as one of two launchers would start them."""
    ranks = range(index * RANKS_A_NODE, (index + 1) * RANKS_A_NODE)
    lines = []
    for local, rank in enumerate(ranks):
        env = {"SIMTRAIN_RANK_PROCESS": 1, "SLURM_JOB_ID": JOB,
               "CUDA_INJECTION64_PATH": BUILD / "lib/libtidemark_cupti.so"}
        if index < len(NODES) // 2:
            env.update(RANK=rank, LOCAL_RANK=local, WORLD_SIZE=RANKS, LOCAL_WORLD_SIZE=RANKS_A_NODE,
                       MASTER_ADDR="node-1", MASTER_PORT=29500, TORCHELASTIC_RUN_ID="none",
                       TORCHELASTIC_RESTART_COUNT=0)
        else:
            env.update(SLURM_PROCID=rank, SLURM_LOCALID=local, SLURM_NTASKS=RANKS,
                       SLURM_RESTART_COUNT=0)
        # Python has its names at once: the leak's site is the same from the first moment on.
        program = (["/usr/bin/python3", SOURCE / "tests/sim/simtrain.py", "--sim", BUILD / "sim",
                    "--scenario", "one-rank", "--leak-rank", rank, "--leak-bytes", "24MiB"]
                   if rank == LEAKING_RANK else
                   [BUILD / "bin/simtrain", "--scenario", "vmm", "--leak-bytes", "8MiB"])
        command = [*program, "--ranks", RANKS, "--steps", 1000000, "--step-ms", 120, "--layers", 4]
        lines.append(" ".join(["env", *[f"{name}={value}" for name, value in env.items()],
                               *map(str, command), "&"]))
    lines.append("wait")
    return node.start("sh", "-c", "\n".join(lines), stdout=log, stderr=log,
                      env={**os.environ, "TIDEMARK_SIM_STATE": f"/run/sim-{node.name}",
                           "LD_LIBRARY_PATH": str(BUILD / "sim")})


def start_daemon(node, folder, log):
    token = folder / f"{node.name}.token"
    token.touch(0o600)
    token.write_text(TOKEN)
    config = folder / f"{node.name}.yaml"
    config.write_text(
        f"http: {{listen: '0.0.0.0:9470', beyond_loopback: true, token_file: {token}}}\n"
        "api: {listen: '0.0.0.0:9471', beyond_loopback: true}\n"
        f"state: {{directory: {folder}/state-{node.name}}}\n"
        "bpf: {enabled: false}\n")
    return node.start(BUILD / "bin/tidemarkd", "--config", config, stdout=log, stderr=log,
                      env={**os.environ, "TIDEMARK_SIM_STATE": f"/run/sim-{node.name}",
                           "LD_LIBRARY_PATH": str(BUILD / "sim")})


def deployed(path, *replaced):
    """A file of deploy/, changed by (pattern, text) pairs that must each find something."""
    text = (DEPLOY / path).read_text()
    for pattern, other in replaced:
        text, count = re.subn(pattern, other, text)
        check(count, f"{path} has no {pattern}")
    return text


class Receiver:
    """Where the routes of deploy/alertmanager end: what a person would be told."""

    def __init__(self):
        told = self.told = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                told.append((self.path, json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 9099), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Servers:
    """Prometheus with our rules, Alertmanager, and a Prometheus agent that writes to the store."""

    def __init__(self, folder, store, log):
        targets = (r"targets: \[node-1:9470, node-2:9470\]",
                   "targets: " + json.dumps([f"{name}:9470" for name in NODES]))
        soon = ((r"interval: 15s", "interval: 2s"),
                (r"scrape_timeout: 5s", "scrape_timeout: 2s"), targets)
        rules = folder / "rules"
        rules.mkdir()
        for path in (DEPLOY / "prometheus/rules").glob("*.yml"):
            text = path.read_text().replace("for: 1m", f"for: {STANDS}s")
            (rules / path.name).write_text(text.replace("for: 5m", "for: 2s"))
        (folder / "prometheus.yml").write_text(deployed(
            "prometheus/scrape/static.yml", *soon,
            (r"rule_files: .*", f"rule_files: [{rules}/*.yml]")))
        (folder / "agent.yml").write_text(deployed("prometheus/remote-write.yml", *soon))
        # The deployed group_interval: within five minutes nobody is told twice.
        (folder / "alertmanager.yml").write_text(deployed(
            "alertmanager/alertmanager.yml", (r"group_wait: 30s", "group_wait: 1s")))
        store.start(
            "victoria-metrics", f"-storageDataPath={folder}/store", "-httpListenAddr=:8428",
            "-retentionPeriod=1d", stdout=log, stderr=log)
        self.processes = []
        for command in (
                ["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml",
                 f"--storage.path={folder}/alerts", "--cluster.listen-address="],
                ["prometheus", f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/data"],
                ["prometheus", "--enable-feature=agent", f"--config.file={folder}/agent.yml",
                 f"--storage.agent.path={folder}/agent", "--web.listen-address=:9091"]):
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.wait()

    def query(self, expression):
        """{labels without the name, as sorted pairs: value}."""
        parameters = urllib.parse.urlencode({"query": expression})
        answer = get(f"http://127.0.0.1:9090/api/v1/query?{parameters}")["data"]["result"]
        return {tuple(sorted((k, v) for k, v in each["metric"].items() if k != "__name__")):
                float(each["value"][1]) for each in answer}

    def number(self, expression):
        """Of a query with one result; None where there is none."""
        found = list(self.query(expression).values())
        return found[0] if len(found) == 1 else None

    def leaks(self):
        """Labels of the leak alerts that Prometheus holds as firing."""
        alerts = get("http://127.0.0.1:9090/api/v1/alerts")["data"]["alerts"]
        return sorted((alert["labels"] for alert in alerts if alert["state"] == "firing"
                       and alert["labels"]["alertname"] == "TidemarkMemoryLeak"),
                      key=lambda labels: labels["scope"])

    def at_alertmanager(self):
        return get("http://127.0.0.1:9093/api/v2/alerts")


class Watch(threading.Thread):
    """Looks all the time whether a leak is ever told twice, or a rank counted twice."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.servers = servers
        self.looks = 0
        self.wrong = []
        self.start()

    def run(self):
        while True:
            time.sleep(1)
            try:
                leaks = self.servers.leaks()
                twice = self.servers.query("training_job_attempt:tidemark_ranks_twice:count")
            except OSError:
                continue  # not up yet
            self.looks += 1
            classes = [alert["class"] for alert in leaks]
            if len(classes) != len(set(classes)) or twice:
                self.wrong.append((leaks, twice))


def both_leaks_become_one_alert_each(servers):
    def both():
        leaks = servers.leaks()
        return leaks if [each["scope"] for each in leaks] == ["job", "rank"] else None

    leaks = wait_until(both, lambda: f"one alert a leak: {servers.leaks()}", 3 * PATIENCE)
    by_scope = {each["scope"]: dict(each) for each in leaks}
    check(by_scope["job"] == {"alertname": "TidemarkMemoryLeak", "training_job": JOB,
                              "class": "vmm", "scope": "job"}, f"the job's: {by_scope['job']}")
    site = by_scope["rank"].pop("site", "")
    check(by_scope["rank"] == {"alertname": "TidemarkMemoryLeak", "training_job": JOB,
                               "class": "fw_live", "scope": "rank", "node": ITS_NODE,
                               "rank": str(LEAKING_RANK)}, f"the rank's: {by_scope['rank']}")
    check(re.fullmatch(r"[0-9a-f]{16}", site), f"no site: {site!r}")
    sites = f'tidemark_site_live_bytes{{rank="{LEAKING_RANK}",site="{site}"}}'
    where = [dict(labels)["where"] for labels in wait_until(
        lambda: servers.query(sites), "the alert's site has no series")]
    check(len(where) == 1 and re.fullmatch(r"simtrain_trainer\.py:\d+ Trainer\.log_loss", where[0]),
          f"the site is {where}")
    return leaks


def the_skew_is_that_of_the_nodes(servers, nodes):
    """With all ranks stopped, Prometheus says what the daemons say when asked one by one."""
    for node in nodes.values():
        node.start("pkill", "-STOP", "-f", "simtrain").wait()

    def held():
        """{class: {rank: bytes}}, by the daemons' JSON."""
        by_class = {}
        for node in nodes:
            for process in snapshot(node)["processes"]:
                if process["identity"]["training_job"] != JOB:
                    continue
                for line in [l for fall in process["waterfalls"] for l in fall["lines"]]:
                    if line["memory_class"] in ("fw_live", "vmm"):
                        ranks = by_class.setdefault(line["memory_class"], {})
                        rank = process["identity"]["rank"]
                        ranks[rank] = ranks.get(rank, 0) + int(line["bytes"])
        return by_class

    def agree():
        now = held()
        counts = {name: len(ranks) for name, ranks in now.items()}
        if counts != {"fw_live": RANKS, "vmm": RANKS - 1}:
            return False
        for memory_class, ranks in now.items():
            wanted = {"bytes:sum": sum(ranks.values()), "bytes:max": max(ranks.values()),
                      "skew:ratio": max(ranks.values()) / statistics.median(ranks.values())}
            for name, value in wanted.items():
                series = "training_job_class:tidemark_memory_" + name
                if servers.number(f'{series}{{class="{memory_class}"}}') != value:
                    return False
        return now

    now = wait_until(agree, lambda: f"the nodes' skew: {held()}")
    leaking = now["fw_live"].pop(LEAKING_RANK)
    check(leaking > max(now["fw_live"].values()), "the leaking rank does not stand out")
    for node in nodes.values():
        node.start("pkill", "-CONT", "-f", "simtrain").wait()


def ranks_counted(servers):
    return servers.number(f'training_job:tidemark_ranks:count{{training_job="{JOB}"}}')


def a_partition_that_heals_doubles_nothing(servers, network, leaks):
    cut_at = time.time()
    for name in (ITS_NODE, "store"):
        network.cut(name)
    wait_until(lambda: ranks_counted(servers) == RANKS - RANKS_A_NODE,
               "the node's ranks did not go")
    time.sleep(3)
    healed_at = time.time()
    for name in (ITS_NODE, "store"):
        network.heal(name)
    wait_until(lambda: ranks_counted(servers) == RANKS, "the ranks did not come back")
    wait_until(lambda: servers.leaks() == leaks, lambda: f"other alerts: {servers.leaks()}")

    def written():
        """What the store holds of a node that was not cut off, of the time when the store was."""
        parameters = urllib.parse.urlencode({
            "match[]": 'tidemark_node_info{node="node-1"}', "start": cut_at, "end": healed_at})
        with urllib.request.urlopen(f"http://victoria-metrics:8428/api/v1/export?{parameters}",
                                    timeout=10) as answer:
            return [json.loads(line) for line in answer]

    # Sent later, for the agent kept it: each scrape once, as one series.
    enough = int(healed_at - cut_at) // 4
    wait_until(lambda: sum(len(each["timestamps"]) for each in written()) >= enough,
               lambda: f"nothing was sent later: {written()}")
    series = written()
    check(len(series) == 1, f"doubled in the store: {series}")
    times = series[0]["timestamps"]
    check(len(times) == len(set(times)), f"samples doubled in the store: {times}")


def a_node_that_dies_is_absent(servers, nodes, leaks, client):
    nodes["node-4"].kill()
    missing = wait_until(
        lambda: [alert for alert in servers.at_alertmanager()
                 if alert["labels"]["alertname"] == "TidemarkRanksMissing"],
        "no alert about missing ranks")
    check(missing[0]["labels"]["training_job"] == JOB and
          missing[0]["annotations"]["summary"].startswith(f"{RANKS_A_NODE} ranks"), f"{missing}")
    # A busy machine misses a scrape now and then: what is there again counts, and Watch looks for
    # what should never have been.
    wait_until(lambda: servers.leaks() == leaks,
               lambda: f"a dead node changed the leaks: {servers.leaks()}")
    table = client("job", "--json")
    answered = {each["address"].split(":")[0]: each["answered"] for each in table["nodes"]}
    check(answered == {name: name != "node-4" for name in NODES}, f"{answered}")


def main():
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            print(f"skipped: no {program} here; install {package}")
            sys.exit(77)
    enter_sandbox()
    began = time.monotonic()

    def passed(what):
        print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        log = open(folder / "log", "w+")
        network = Network(folder, {"hub": "prometheus alertmanager", "store": "victoria-metrics",
                                   **{name: "" for name in NODES}})
        receiver = Receiver()
        store = Node(network, "store")
        nodes = {name: Node(network, name) for name in NODES}
        for index, node in enumerate(nodes.values()):
            start_daemon(node, folder, log)
            launch(node, index, log)
        servers = Servers(folder, store, log)

        def client(*arguments):
            answer = subprocess.run(
                [BUILD / "bin/tidemark", *arguments, "--targets", ",".join(NODES)],
                capture_output=True, text=True)
            check(answer.returncode == 0, f"{arguments}: {answer}")
            return json.loads(answer.stdout)

        try:
            wait_until(lambda: ranks_counted(servers) == RANKS, "not all ranks are there")
            passed("all ranks are there")
            watch = Watch(servers)
            leaks = both_leaks_become_one_alert_each(servers)
            passed("one alert a leak")
            the_skew_is_that_of_the_nodes(servers, nodes)
            passed("the skew is right")
            names = get("http://127.0.0.1:9090/api/v1/labels")["data"]
            clashes = [name for name in names if name.startswith("exported_")]
            check("node" in names and not clashes, f"{names}")
            a_partition_that_heals_doubles_nothing(servers, network, leaks)
            passed("a partition that heals doubles nothing")
            a_node_that_dies_is_absent(servers, nodes, leaks, client)
            passed("a dead node is absent")
            check(watch.looks > 10 and not watch.wrong, f"{watch.looks} looks: {watch.wrong[:3]}")
            told = [alert["labels"] for path, body in receiver.told for alert in body["alerts"]
                    if path == "/training" and alert["labels"]["alertname"] == "TidemarkMemoryLeak"]
            check(sorted(each["scope"] for each in told) == ["job", "rank"],
                  f"people were told {told}")
        except BaseException:
            log.seek(0)
            print(log.read()[-6000:])
            raise
        finally:
            servers.stop()
            for node in (store, *nodes.values()):
                node.kill()


if __name__ == "__main__":
    main()
