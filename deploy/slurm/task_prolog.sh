#!/bin/sh
# TaskProlog= of slurm.conf, as the user before each task: lines "export NAME=VALUE" on standard
# output become the task's environment. A path that is already set (Nsight, compute-sanitizer use
# the same variable) is left alone, and TIDEMARK=off switches off.
agent=/usr/lib/tidemark/libtidemark_cupti.so
[ "${TIDEMARK:-}" = off ] && exit 0
[ -n "${CUDA_INJECTION64_PATH:-}" ] && exit 0
[ -r "$agent" ] && echo "export CUDA_INJECTION64_PATH=$agent"
exit 0
