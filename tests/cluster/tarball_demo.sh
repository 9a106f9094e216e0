#!/bin/sh
# The tarball in a root that has nothing but glibc, apt and a shell: a simulated job with one leaking
# rank is run there, and the leak found. The root is made by debootstrap and kept for the next run.
#
#   tarball_demo.sh TARBALL BUILD [SUITE]    BUILD has the simulated stack; SUITE: trixie (default)
set -eu
tarball=$1 build=$2 suite=${3:-trixie}
root=${TIDEMARK_ROOTS:-/var/cache/tidemark}/$suite
skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" -eq 0 ] || skip "debootstrap and chroot need root"
if ! chroot "$root" /bin/true 2> /dev/null; then
  command -v debootstrap > /dev/null || skip "debootstrap is not installed"
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase "$suite" "$root" > "$root.log" 2>&1 ||
    skip "no $suite root: $(tail -n 1 "$root.log")"
fi
place=$(mktemp -d "$root/tmp/demo-XXXXXX")
mounted=
clean() {
  for point in $mounted; do umount -l "$point"; done
  rm -rf "$place"
}
trap clean EXIT
mountpoint -q "$root/proc" || { mount -t proc proc "$root/proc"; mounted=$root/proc; }
tar -C "$place" -xzf "$tarball"
mv "$place"/tidemark-* "$place/tidemark"
mkdir -m 700 "$place/run" "$place/state"
cp -r "$build/sim" "$place/sim"
cp "$build/bin/simtrain" "$place/"
inside=${place#"$root"}
chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/ XDG_RUNTIME_DIR="$inside/run" \
  LD_LIBRARY_PATH="$inside/sim" TIDEMARK_SIM_STATE="$inside/state" \
  "$inside/tidemark/bin/tidemark" run -o "$inside/a.tdm" -- "$inside/simtrain" --launcher torchrun \
  --ranks 4 --steps 120 --scenario one-rank --leak-rank 2 > "$place/said" 2>&1 ||
  { cat "$place/said"; exit 1; }
chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin "$inside/tidemark/bin/tidemark" leaks --from "$inside/a.tdm" |
  tee "$place/leaks"
grep -q 'LEAK.*rank 2' "$place/leaks" || { cat "$place/said"; echo "the leak of rank 2 was not found"; exit 1; }
