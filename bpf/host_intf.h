/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What host.bpf.c and the daemon share: changes of a process's mappings, pins, and page faults. */
#ifndef TIDEMARK_BPF_HOST_INTF_H_
#define TIDEMARK_BPF_HOST_INTF_H_

#include <linux/types.h>

#include "bpf/stack_intf.h"

/* A watched process; the key is its pid. */
struct tm_host_watch {
	__u32 generation;
	__u32 pad;
	__u64 lost_reports;
	__u64 faults; /* all of them, not only the sampled */
	__u64 stack_losses[TM_STACK_LOSS_COUNT];
};

enum tm_host_report_kind {
	TM_HOST_MMAP = TM_REPORT_FIRST_OWN, /* at return: address, bytes, source, flags, stack */
	TM_HOST_MUNMAP,          /* at entry: address, bytes */
	TM_HOST_MREMAP,          /* at entry: address, bytes, flags */
	TM_HOST_MREMAP_RETURN,   /* result: the new address; bytes: the new size; stack */
	TM_HOST_BRK,             /* at return: address: the break before; result: after; stack */
	TM_HOST_MADVISE,         /* at return: address, bytes; flags: the advice */
	TM_HOST_MLOCK,           /* at return: address, bytes */
	TM_HOST_MUNLOCK,         /* at return: address, bytes */
	TM_HOST_MUNLOCK_ALL,     /* at return */
	TM_HOST_FAILED,          /* at return: what the thread reported at entry did not happen */
	TM_HOST_IO_URING_PIN,    /* at return: address: the ring's descriptor; bytes; stack */
	TM_HOST_IO_URING_UNPIN,  /* at return: address: the ring's descriptor */
	TM_HOST_FAULT,           /* a sampled user page fault: address, stack */
};

/* What a mapping shows. */
enum tm_host_source {
	TM_SOURCE_ANON,   /* private memory */
	TM_SOURCE_SHMEM,  /* shared memory: anonymous, memfd, /dev/shm */
	TM_SOURCE_FILE,   /* a file or a device */
};

struct tm_host_event {
	struct tm_report head;
	__u64 address;
	__u64 bytes;
	__u64 result;
	__u64 stack; /* 0: not known */
	__u32 flags;
	__u32 source;
};

#endif /* TIDEMARK_BPF_HOST_INTF_H_ */
