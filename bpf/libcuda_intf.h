/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What libcuda.bpf.c and the daemon share: how a call is described to the probe, and what the probe
 * reports. The probe knows no entry point by name: everything it needs about one stands in the
 * cookie of its probe, everything else is decoded in user space. */
#ifndef TIDEMARK_BPF_LIBCUDA_INTF_H_
#define TIDEMARK_BPF_LIBCUDA_INTF_H_

#include <linux/types.h>

#include "bpf/stack_intf.h"

/* Cookie of an entry probe and of a return probe:
 *   bits 0-7    entry point number, below TM_MAX_ENTRY_POINTS
 *   bits 8-11   position of the argument that tells the bytes (1 is the first, 0 none)
 *   bits 12-15  how it tells them: enum tm_bytes_rule
 *   bits 16-19  position of a pointer to a result, read at return (8 bytes)
 *   bits 20-23  position of a second one
 *   bits 24-27  position of a pointer to properties with a CUmemLocation at offset 8
 *   bits 28-31  offset of the first result behind its pointer, in units of 8 bytes
 *   bits 32-    flags below */
#define TM_COOKIE_FN(c) ((c) & 0xff)
#define TM_COOKIE_BYTES_ARG(c) (((c) >> 8) & 0xf)
#define TM_COOKIE_BYTES_RULE(c) (((c) >> 12) & 0xf)
#define TM_COOKIE_OUT1_ARG(c) (((c) >> 16) & 0xf)
#define TM_COOKIE_OUT2_ARG(c) (((c) >> 20) & 0xf)
#define TM_COOKIE_LOCATION_ARG(c) (((c) >> 24) & 0xf)
#define TM_COOKIE_OUT1_OFFSET(c) ((((c) >> 28) & 0xf) * 8)
#define TM_COOKIE_LEDGER (1ull << 32)    /* pair with the return; else only count */
#define TM_COOKIE_AT_ENTRY (1ull << 33)  /* report when the call begins, later only a failure */
#define TM_COOKIE_STACK (1ull << 34)     /* report the call stack */

enum tm_bytes_rule {
	TM_BYTES_ARGUMENT,     /* the argument itself */
	TM_BYTES_TIMES_NEXT,   /* the argument times the next one */
	TM_BYTES_ARRAY_2D,     /* a pointer to a CUDA_ARRAY_DESCRIPTOR */
	TM_BYTES_ARRAY_3D,     /* a pointer to a CUDA_ARRAY3D_DESCRIPTOR */
	TM_BYTES_MIPMAPPED,    /* the same, and the next argument is the number of levels */
	TM_BYTES_GRAPH_NODE,   /* a pointer to a CUDA_MEM_ALLOC_NODE_PARAMS */
};

#define TM_MAX_ENTRY_POINTS 64
#define TM_ARGS 6
#define TM_MAX_MIP_LEVELS 16

enum tm_loss {
	TM_LOSS_RING_FULL,      /* a report did not fit */
	TM_LOSS_NO_PENDING,     /* no memory to remember a call until its return */
	TM_LOSS_NESTED,         /* a call that libcuda made itself: part of another, not counted */
	TM_LOSS_ABANDONED,      /* a call that never returned: longjmp, cancelled */
	TM_LOSS_UNREADABLE,     /* a result or structure could not be read at return */
	TM_LOSS_COUNT
};

struct tm_entry_point_count {
	__u64 calls;
	__u64 requested_bytes;
	__u64 failed_calls;
};

enum tm_cuda_mode {
	TM_MODE_WITNESS = 1,
	TM_MODE_LEDGER = 2,
};

/* A watched process; the key is its pid. Probes of both modes may be on at once while the mode
 * changes: only those of `mode` count, so that no call counts twice or not at all. */
struct tm_cuda_watch {
	__u32 generation; /* tells a process from a later one with the same pid */
	__u32 mode;
	__u64 text_start; /* libcuda's code: a call from there is the library's own */
	__u64 text_end;
};

/* What the kernel counted of a watched process; the key is its pid. Counts only grow. */
struct tm_cuda_counts {
	struct tm_entry_point_count entry_points[TM_MAX_ENTRY_POINTS];
	__u64 losses[TM_LOSS_COUNT];
	__u64 stack_losses[TM_STACK_LOSS_COUNT];
};

enum tm_cuda_report_kind {
	TM_REPORT_ENTER = TM_REPORT_FIRST_OWN, /* at entry: result and out are 0 */
	TM_REPORT_RETURN,
};

struct tm_cuda_call {
	struct tm_report head;
	__u32 fn;
	__s32 result;
	__u64 args[TM_ARGS];
	__u64 bytes;    /* by the cookie's rule */
	__u64 location; /* CUmemLocation: type in the lower half, id in the upper; 0: none */
	__u64 out[2];
	__u64 stack; /* id of a stack reported before; 0: not known */
};

#endif /* TIDEMARK_BPF_LIBCUDA_INTF_H_ */
