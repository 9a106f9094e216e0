#!/usr/bin/env python3
"""deploy_test.py NAME: one test of what is in deploy/, by the tools that read it.

Exit status 0 passes, 77 skips (after saying why), anything else fails.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
DEPLOY = SOURCE / "deploy"


def need(tool, package):
    if shutil.which(tool) is None:
        print(f"skipped: no {tool} here; install {package}")
        sys.exit(77)
    return tool


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(condition, message):
    if not condition:
        sys.exit(message)


# --- One file at a time ---

def metrics_page_is_what_the_code_prints():
    printed = run(BUILD / "bin/metrics_page")
    page = SOURCE / "docs/metrics.md"
    check(page.read_text() == printed, f"{page} is stale: build/bin/metrics_page > docs/metrics.md")


def the_unit_is_hardened():
    need("systemd-analyze", "systemd")
    report = run("systemd-analyze", "security", "--offline=true", "--threshold=40", "--no-pager",
                 DEPLOY / "systemd/tidemarkd.service")
    print(report.strip().splitlines()[-1])


def the_unit_names_its_notifications():
    unit = (DEPLOY / "systemd/tidemarkd.service").read_text()
    for line in ("Type=notify", "WatchdogSec=30", "RuntimeDirectoryPreserve=yes"):
        check(f"\n{line}\n" in unit, f"{line} is missing")
    capabilities = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M)[1].split()
    ambient = re.search(r"^AmbientCapabilities=(.*)$", unit, re.M)[1].split()
    check(capabilities == ambient, "ambient and bounding set differ")
    manifest = (DEPLOY / "kubernetes/base/daemonset.yaml").read_text()
    added = re.search(r"add: \[(.*)\]", manifest)[1].split(", ")
    check(sorted("CAP_" + name for name in added) == sorted(capabilities),
          "the DaemonSet and the unit differ in capabilities")


def example_keys():
    """Keys of the example, those in comments included: {"agent.socket", ...}."""
    keys, section = set(), ""
    for line in (DEPLOY / "tidemarkd.yaml").read_text().splitlines():
        match = re.match(r"( *)(?:# )?([a-z_]+):( .*)?$", line)
        if not match or line.startswith("# "):
            continue
        indent, name, value = match.groups()
        if not indent:
            section = name + "." if not (value or "").strip() else ""
        keys.add((section if indent else "") + name if (indent or not section) else section)
    return {key for key in keys if not key.endswith(".")}


def the_config_example_names_every_key():
    code = (SOURCE / "daemon/config/config.cc").read_text()
    table = code[code.index("Keys() {"):]
    known = set(re.findall(r'\{"([a-z_.]+)",\s+[A-Z]', table[:table.index("return keys;")]))
    check(known, "no keys found in daemon/config/config.cc")
    check(example_keys() == known,
          f"only in the code: {sorted(known - example_keys())}\n"
          f"only in deploy/tidemarkd.yaml: {sorted(example_keys() - known)}")
    operations = (SOURCE / "docs/operations.md").read_text()
    missing = [key for key in known if f"`{key}`" not in operations]
    check(not missing, f"docs/operations.md does not name {sorted(missing)}")


def the_daemon_accepts_the_config_examples():
    daemon = BUILD / "bin/tidemarkd"
    text = (DEPLOY / "tidemarkd.yaml").read_text()
    full = re.sub(r"^  # ", "  ", text, flags=re.M)
    check(full != text, "nothing is commented out any more")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "full.yaml"
        path.write_text(full)
        for config in (DEPLOY / "tidemarkd.yaml", path, DEPLOY / "kubernetes/base/tidemarkd.yaml"):
            run(daemon, "--check-config", "--config", config)


def prometheus_rules_pass_their_tests():
    need("promtool", "prometheus")
    run("promtool", "check", "rules", *sorted((DEPLOY / "prometheus/rules").glob("*.yml")))
    print(run("promtool", "test", "rules", *sorted((DEPLOY / "prometheus/tests").glob("*.yml"))))


def rules_use_only_metrics_that_exist():
    metrics = set(re.findall(r"^\| `(\w+)` \|", run(BUILD / "bin/metrics_page"), re.M))
    check(len(metrics) > 20, "no metrics found")
    texts = list((DEPLOY / "prometheus/rules").glob("*.yml")) + list(
        (DEPLOY / "grafana/dashboards").glob("*.json"))
    for path in texts:
        # Not what follows a colon or a slash: recorded names and dashboards.
        for name in re.findall(r"(?<![:\w/-])tidemark_\w+(?![\w:])", path.read_text()):
            check(name in metrics, f"{path.name} uses {name}, which no daemon exports")


def configurations_are_valid():
    need("promtool", "prometheus")
    # An agent has neither rules nor alerts: Prometheus refuses them in that mode.
    run("promtool", "check", "config", "--agent", "--syntax-only",
        DEPLOY / "prometheus/remote-write.yml")
    for path in sorted((DEPLOY / "prometheus/scrape").glob("*.yml")):
        text = path.read_text()
        # Debian's promtool is built without discovery in Kubernetes: check the rest of that file.
        text = re.sub(r"    kubernetes_sd_configs:\n(      .*\n)+",
                      "    static_configs: [{targets: ['a:9470']}]\n", text)
        check("target_label: node" not in text, f"{path.name} sets the label node")
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(text)
            file.flush()
            run("promtool", "check", "config", "--syntax-only", file.name)
    need("amtool", "prometheus-alertmanager")
    run("amtool", "check-config", DEPLOY / "alertmanager/alertmanager.yml")


def amtool_routes_alerts_where_they_belong():
    need("amtool", "prometheus-alertmanager")
    config = DEPLOY / "alertmanager/alertmanager.yml"
    for labels, receiver in (
            (["alertname=TidemarkMemoryLeak", "training_job=a", "scope=job"], "training-oncall"),
            (["alertname=TidemarkRanksMissing", "training_job=a"], "training-oncall"),
            (["alertname=TidemarkDown", "instance=a"], "platform")):
        run("amtool", "config", "routes", "test", f"--config.file={config}",
            f"--verify.receivers={receiver}", *labels)


def kubernetes_manifests_render():
    need("kubectl", "kubectl")
    rendered = run("kubectl", "kustomize", DEPLOY / "kubernetes/base")
    for line in ("hostPID: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false",
                 "privileged: false", "path: /run/tidemark", "path: /healthz", "- ALL"):
        check(line in rendered, f"the base has no {line}")
    check("privileged: true" not in rendered and "SYS_ADMIN" not in rendered, "too many rights")
    check(re.search(r"image: \S+:\d+\.\d+\.\d+\n", rendered), "the image has no fixed version")
    for label in ("nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.dcgm-exporter"):
        check(f"key: {label}\n" in rendered, f"it does not go when the GPU operator sets {label} aside")
    check("runtimeClassName: nvidia" in run("kubectl", "kustomize",
                                            DEPLOY / "kubernetes/nvidia-runtime"),
          "the overlay does not set the class")
    operator = run("kubectl", "kustomize", DEPLOY / "kubernetes/prometheus-operator")
    check("kind: PodMonitor" in operator and "kind: PrometheusRule" in operator, operator)


def manifests_pass_the_schemas_of_their_kinds():
    need("kubectl", "kubectl")
    need("npm", "nodejs and npm")
    here = SOURCE / "tests/cluster/manifests"
    if not (here / "node_modules/kubernetes-models").exists():
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=here,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: npm cannot fetch the models: {done.stderr[-300:]}")
            sys.exit(77)
    kustomizations = sorted(DEPLOY.rglob("kustomization.yaml"))
    check(len(kustomizations) >= 8, f"only {kustomizations}")
    with tempfile.TemporaryDirectory() as name:
        files = sorted((DEPLOY / "kubernetes/examples").glob("*.yaml"))
        for path in kustomizations:
            folder = path.parent.relative_to(DEPLOY)
            files.append(pathlib.Path(name) / (str(folder).replace("/", "-") + ".yaml"))
            files[-1].write_text(run("kubectl", "kustomize", path.parent))
        print(run("node", here / "validate.mjs", *files))
        # Of each way to be wrong one that must be found.
        base = (files[-1].parent / "kubernetes-base.yaml").read_text()
        broken = []
        for right, wrong in (("hostPID: true", "hostPIDs: true"), ("hostPID: true", "hostPID: 1"),
                             ("kind: DaemonSet", "kind: Daemonset"), ("image: ", "imge: ")):
            check(right in base, f"the base has no {right}")
            broken.append(pathlib.Path(name) / f"broken-{len(broken)}.yaml")
            broken[-1].write_text(base.replace(right, wrong))
        done = subprocess.run(["node", here / "validate.mjs", *broken], capture_output=True, text=True)
        unnoticed = [path for path in broken if f"{path}: " not in done.stdout]
        check(done.returncode == 1 and not unnoticed, f"not found in {unnoticed}: {done.stdout}")


def generated_rules_are_those_of_prometheus():
    run(sys.executable, DEPLOY / "kubernetes/prometheus-operator/generate.py", "--check")


def scripts_are_clean():
    need("shellcheck", "shellcheck")
    scripts = [path for path in [*DEPLOY.rglob("*"), *(SOURCE / "tests").rglob("*.sh")]
               if path.is_file() and path.read_bytes().startswith((b"#!/bin/sh", b"#!/usr/bin/env bash"))]
    check(len(scripts) > 7, f"only {scripts}")
    run("shellcheck", *scripts)


def dashboards_are_as_generated():
    run(sys.executable, DEPLOY / "grafana/generate.py", "--check")


def slurm_scripts_do_what_they_say():
    prolog = DEPLOY / "slurm/task_prolog.sh"
    with tempfile.TemporaryDirectory() as folder:
        agent = pathlib.Path(folder) / "libtidemark_cupti.so"
        agent.touch()
        script = pathlib.Path(folder) / "task_prolog.sh"
        script.write_text(prolog.read_text().replace("/usr/lib/tidemark", folder))

        def said(**variables):
            return run("sh", script, env={"PATH": os.environ["PATH"], **variables})
        check(said() == f"export CUDA_INJECTION64_PATH={agent}\n", "injection is not set")
        check(said(CUDA_INJECTION64_PATH="/opt/nsight.so") == "", "Nsight's path is not left alone")
        check(said(TIDEMARK="off") == "", "TIDEMARK=off is not obeyed")
        agent.unlink()
        check(said() == "", "a missing agent is injected")

        sinfo = pathlib.Path(folder) / "sinfo"
        sinfo.write_text("#!/bin/sh\nprintf 'gpu-2\\ngpu-1\\ngpu-1\\n'\n")
        sinfo.chmod(0o755)
        out = run("sh", DEPLOY / "slurm/tidemark-nodes",
                  env={"PATH": f"{folder}:{os.environ['PATH']}"})
        check(json.loads(out) == [{"targets": ["gpu-1:9470", "gpu-2:9470"]}], out)
        sinfo.write_text("#!/bin/sh\nexit 1\n")
        failed = subprocess.run(["sh", DEPLOY / "slurm/tidemark-nodes"], capture_output=True,
                                env={"PATH": f"{folder}:{os.environ['PATH']}"})
        check(failed.returncode != 0 and failed.stdout == b"", "a dead Slurm gives no nodes")


# --- A real Prometheus over real servers ---

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Stack:
    """Nodes that serve made-up snapshots, and a Prometheus with our rules that scrapes them."""

    def __init__(self, nodes):
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []
        self.nodes = []
        for _ in range(nodes):
            node = subprocess.Popen([BUILD / "tests/serve_node"], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)
            self.processes.append(node)
            self.nodes.append(f"127.0.0.1:{int(node.stdout.readline())}")
        self.port = free_port()
        config = pathlib.Path(self.folder.name) / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(DEPLOY / "prometheus/rules/*.yml")],
            "scrape_configs": [{"job_name": "tidemark",
                                "static_configs": [{"targets": self.nodes}]}]}))
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.processes.append(subprocess.Popen(
            ["prometheus", f"--config.file={config}",
             f"--storage.tsdb.path={self.folder.name}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=self.log, stderr=subprocess.STDOUT))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(20)
        self.folder.cleanup()

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def comes(self, expression, seconds=10):
        """Whether the query returns data, now or in a few evaluations of its rules."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.query(expression):
                    return True
            except OSError:
                pass  # not up yet
            time.sleep(0.5)
        return False

    def wait_for(self, expression):
        if self.comes(expression, seconds=60):
            return
        self.log.seek(0)
        sys.exit(f"nothing came for {expression}\n{self.log.read()[-3000:]}")


def every_panel_returns_data_and_alerts_have_exactly_their_labels():
    need("prometheus", "prometheus")
    with Stack(nodes=1) as stack:
        stack.wait_for("rate(tidemark_daemon_cpu_seconds_total[5m])")
        stack.wait_for("training_job_rank:tidemark_step_floor_bytes:slope10m")
        stack.wait_for("training_job_class:tidemark_leak:job_wide")
        stack.wait_for('ALERTS{alertname="TidemarkMemoryLeak",scope="rank"}')
        variables = {"$job": "one-rank", "$class": "fw_live", "$node": stack.nodes[0]}
        empty = []
        for path in sorted((DEPLOY / "grafana/dashboards").glob("*.json")):
            board = json.loads(path.read_text())
            for panel in board["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"]
                    for name, value in variables.items():
                        expression = expression.replace(name, value)
                    if not stack.comes(expression):
                        empty.append(f"{path.name}: {panel['title']}: {expression}")
            for variable in board["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                match = re.match(r"label_values\((.*), (\w+)\)$", variable["query"]["query"])
                series = match[1]
                for name, value in variables.items():
                    series = series.replace(name, value)
                if not any(match[2] in result["metric"] for result in stack.query(series)):
                    empty.append(f"{path.name}: variable {variable['name']}")
        check(not empty, "no data for\n" + "\n".join(empty))

        clash = [name for name in stack.get("labels") if name.startswith("exported_")]
        check(not clash, f"labels collide: {clash}")

        alerts = [alert["labels"] for alert in stack.get("alerts")["alerts"]
                  if alert["labels"]["alertname"] == "TidemarkMemoryLeak"]
        job = {"alertname": "TidemarkMemoryLeak", "training_job": "all-ranks", "class": "fw_live",
               "scope": "job"}
        rank = {"alertname": "TidemarkMemoryLeak", "training_job": "one-rank", "class": "fw_live",
                "scope": "rank", "node": "node-7", "rank": "2", "site": "0000000000001000"}
        alerts.sort(key=lambda labels: labels["scope"])
        check(alerts == [job, rank], json.dumps(alerts, indent=1))


def main():
    test = globals().get(sys.argv[1]) if len(sys.argv) == 2 else None
    check(callable(test), f"no such test; {__doc__}")
    test()


if __name__ == "__main__":
    main()
