#!/bin/sh
# Loads the injected library in a root of Debian 11 (glibc 2.31) and starts it. The root is made by
# debootstrap and kept for the next run.
#
#   old_glibc_test.sh LIBRARY
set -eu
library=$1
root=${TIDEMARK_OLD_ROOT:-/var/cache/tidemark/bullseye}
skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" -eq 0 ] || skip "debootstrap and chroot need root"
if ! chroot "$root" /usr/bin/python3 -c "import ctypes" 2> /dev/null; then
  command -v debootstrap > /dev/null || skip "debootstrap is not installed"
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3 bullseye "$root" > "$root.log" 2>&1 ||
    skip "no bullseye root: $(tail -n 1 "$root.log")"
fi
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
cp "$library" "$root/tmp/libtidemark_cupti.so"
chroot "$root" /usr/bin/python3 - << 'PYTHON'
import ctypes, os, time
libc = ctypes.CDLL("libc.so.6")
libc.gnu_get_libc_version.restype = ctypes.c_char_p
print("glibc", libc.gnu_get_libc_version().decode())
agent = ctypes.CDLL("/tmp/libtidemark_cupti.so", mode=os.RTLD_NOW)
assert agent.InitializeInjection() == 1
for _ in range(100):
    tasks = os.listdir("/proc/self/task")
    names = [open("/proc/self/task/%s/comm" % task).read().strip() for task in tasks]
    if "tidemark" in names:
        break
    time.sleep(0.05)
assert "tidemark" in names, names
agent.tidemark_step()
print("loaded, started, stepped")
PYTHON
