#!/usr/bin/env python3
"""The packages: what is in them, that they bring what they need, that they run elsewhere.

Exit status 0 passes, 77 skips (after saying why), anything else fails.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
GLIBC = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv)\.so\.\d+$")


def check(condition, message):
    if not condition:
        sys.exit(message)


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    check(done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def needed(path):
    return re.findall(r"^\s+NEEDED\s+(\S+)", run("objdump", "-p", path), re.M)


def versions(path):
    """GLIBC versions that the loader insists on, as (2, 34): weak ones carry flag 0x02."""
    return [(int(major), int(minor)) for flags, major, minor in re.findall(
        r"^\s+0x[0-9a-f]+ 0x([0-9a-f]+) \d+ GLIBC_(\d+)\.(\d+)", run("objdump", "-p", path), re.M)
        if not int(flags, 16) & 2]


def main():
    for tool in ("patchelf", "objdump", "dpkg-deb"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool} here; ./setup --tests installs it")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        out = folder / "dist"
        run(SOURCE / "package", "--build", BUILD, "--out", out)
        archives = {path.name: path for path in out.iterdir()}
        check(len(archives) == 3, f"not three packages: {sorted(archives)}")
        (main_name,) = [n for n in archives if re.fullmatch(r"tidemark-[\d.]+-linux-x86_64.tar.gz", n)]
        (agent_name,) = [n for n in archives if n.startswith("tidemark-agent-")]
        (deb_name,) = [n for n in archives if n.endswith(".deb")]
        check(archives[main_name].stat().st_size < 64 << 20, "the tarball is not under 64 MiB")
        check(archives[deb_name].stat().st_size < 64 << 20, "the .deb is not under 64 MiB")
        check(archives[agent_name].stat().st_size < 2 << 20, "the agent's archive is not tiny")

        # Somewhere else than where it was made.
        elsewhere = folder / "else where"
        elsewhere.mkdir()
        with tarfile.open(archives[main_name]) as archive:
            check(all(m.uid == 0 and not m.name.startswith("/") and ".." not in m.name
                      for m in archive), "odd members")
            archive.extractall(elsewhere)
        (tree,) = elsewhere.iterdir()
        files = [tree / "bin/tidemark", tree / "bin/tidemarkd"] + [
            path for path in (tree / "lib").iterdir() if not path.is_symlink()]
        present = {path.name for path in (tree / "lib").iterdir()}
        for path in files:
            missing = [n for n in needed(path) if n not in present and not GLIBC.match(n)]
            check(not missing, f"{path.name} needs {missing}, which is not in the package")
            newest = max(versions(path), default=(2, 0))
            check(newest <= (2, 34), f"{path.name} insists on glibc {newest}")
        agent = tree / "lib/libtidemark_cupti.so"
        check(max(versions(agent)) <= (2, 28), f"the agent insists on {max(versions(agent))}")
        check({"libssl.so", "libcrypto.so"} <= present, "CivetWeb finds no TLS")
        for path in ("LICENSE", "share/doc/operations.md", "share/deploy/systemd/tidemarkd.service",
                     "share/deploy/prometheus/rules/tidemark-alerts.yml"):
            check((tree / path).exists(), f"no {path}")

        # An empty environment, and then one whose libraries would be wrong.
        for environment in ({}, {"LD_LIBRARY_PATH": str(folder / "wrong")}):
            if environment:
                (folder / "wrong").mkdir()
                (folder / "wrong/libprotobuf.so.32").write_text("no library")
            for program in ("tidemark", "tidemarkd"):
                said = run(tree / "bin" / program, "--help", env=environment, cwd="/")
                check("tidemark" in said or "memory" in said, said)
        run(tree / "bin/tidemarkd", "--check-config", "--config",
            tree / "share/deploy/tidemarkd.yaml", env={}, cwd="/")
        loaded = run("/lib64/ld-linux-x86-64.so.2", "--list", tree / "bin/tidemarkd", env={})
        outside = [line for line in loaded.splitlines() if "=> /" in line and str(tree) not in line
                   and not GLIBC.search(line.split(" => ")[0])]
        check(not outside, f"taken from the system: {outside}")

        with tarfile.open(archives[agent_name]) as archive:
            names = [pathlib.PurePath(m.name).name for m in archive if m.isfile()]
        check(any(re.fullmatch(r"libtidemark_cupti-[\d.]+\.so", n) for n in names), names)

        deb = archives[deb_name]
        control = run("dpkg-deb", "--field", deb)
        check("Depends: libc6 (>= 2.34)\n" in control, control)
        run("dpkg-deb", "--extract", deb, folder / "root")
        root = folder / "root"
        for path in ("usr/bin/tidemark", "usr/bin/tidemarkd", "etc/tidemark/tidemarkd.yaml",
                     "usr/lib/tidemark/libtidemark_cupti.so",
                     "usr/lib/systemd/system/tidemarkd.service", "usr/lib/sysusers.d/tidemark.conf",
                     "usr/lib/tmpfiles.d/tidemark.conf"):
            check((root / path).exists(), f"the .deb has no {path}")
        said = run(root / "usr/bin/tidemark", "env", "--for", "torchrun",
                   env={"PATH": "/usr/bin:/bin"}, cwd="/")
        check("libtidemark_cupti" in said, f"the .deb's command does not find the agent: {said}")


if __name__ == "__main__":
    main()
