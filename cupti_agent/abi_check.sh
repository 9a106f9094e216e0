#!/bin/sh
# The injected library loads wherever a job may run: its newest glibc symbol is GLIBC_2.28 or older,
# it needs nothing but glibc's own libraries, and it exports its entry points only.
#
#   abi_check.sh LIBRARY
set -eu
library=$1
status=0
fail() { echo "abi_check: $*" >&2; status=1; }

newest=$(readelf -V --wide "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -V | tail -n 1)
highest=$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)
[ "$highest" = GLIBC_2.28 ] || fail "needs $newest, newer than GLIBC_2.28:" \
  "$(nm -D --undefined-only "$library" | grep "$newest")"
others=$(readelf -V --wide "$library" | grep -oE '(GLIBCXX|CXXABI|GCC)_[0-9.]+' | sort -u || true)
[ -z "$others" ] || fail "needs versions of other libraries: $others"

for needed in $(readelf -d --wide "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case $needed in
    libc.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux-x86-64.so.2) ;;
    *) fail "needs $needed" ;;
  esac
done

exports=$(nm -D --defined-only "$library" | awk '{print $3}' | sort | tr '\n' ' ')
[ "$exports" = "InitializeInjection tidemark_phase tidemark_step " ] || fail "exports: $exports"

for forbidden in signal sigaction atexit setenv putenv printf fprintf puts write fork calloc realloc strdup; do
  nm -D --undefined-only "$library" | grep -qE " $forbidden(@|\$)" && fail "calls $forbidden"
done
readelf -d --wide "$library" | grep -q NODELETE || fail "can be unloaded: no NODELETE"
[ "$status" -ne 0 ] || echo "newest symbol $newest, exports ${exports}"
exit "$status"
