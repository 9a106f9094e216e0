/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What lifecycle.bpf.c reports to the daemon. */
#ifndef TIDEMARK_BPF_LIFECYCLE_INTF_H_
#define TIDEMARK_BPF_LIFECYCLE_INTF_H_

#include <linux/types.h>

enum tm_lifecycle_kind {
	TM_LIFECYCLE_EXEC = 1,
	TM_LIFECYCLE_FORK = 2,
	TM_LIFECYCLE_EXIT = 3,
	TM_LIFECYCLE_OOM_VICTIM = 4,
};

struct tm_lifecycle_event {
	__u32 kind;
	__u32 pid;    /* thread group */
	__u32 parent; /* fork only */
	__u32 pad;
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

#endif /* TIDEMARK_BPF_LIFECYCLE_INTF_H_ */
