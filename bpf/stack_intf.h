/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Call stacks, as every family reports them, and what the walk of Python frames must be told. */
#ifndef TIDEMARK_BPF_STACK_INTF_H_
#define TIDEMARK_BPF_STACK_INTF_H_

#include <linux/types.h>

#define TM_STACK_FRAMES 32
#define TM_PYTHON_FRAMES 64
#define TM_PYTHON_THREADS 256

/* How every report begins. */
struct tm_report {
	__u32 kind; /* TM_REPORT_STACK, or one of the family's own from TM_REPORT_FIRST_OWN on */
	__u32 generation;
	__u32 pid;
	__u32 tid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

#define TM_REPORT_STACK 1
#define TM_REPORT_FIRST_OWN 2

/* Where the interpreter of a process keeps its frames; offsets in bytes. Key: pid. */
struct tm_python_layout {
	__u64 runtime; /* address of _PyRuntime; 0: no interpreter */
	__u16 runtime_interpreters;
	__u16 interpreter_threads;
	__u16 thread_next;
	__u16 thread_id;
	__u16 thread_frame;
	__u16 cframe_frame;
	__u16 frame_code;
	__u16 frame_previous;
	__u16 frame_position;
	__u16 frame_owner; /* 0: every frame is Python's */
	__u8 has_cframe;
	__u8 position_is_int; /* 32 bits, else a pointer */
	__u8 pad[2];
};

struct tm_python_frame {
	__u64 code;
	__u64 position; /* as the frame keeps it */
};

enum tm_stack_flags {
	TM_STACK_NATIVE_CUT = 1,
	TM_STACK_PYTHON_CUT = 2,
	TM_STACK_PYTHON_MISSING = 4, /* an interpreter, but not this thread's frames */
};

/* Reported before the first event that names it. */
struct tm_stack {
	struct tm_report head;
	__u64 id;
	__u32 native_frames;
	__u32 python_frames;
	__u32 flags;
	__u32 pad;
	__u64 ip[TM_STACK_FRAMES]; /* innermost first */
	struct tm_python_frame python[TM_PYTHON_FRAMES];
};

enum tm_stack_loss {
	TM_STACK_LOSS_RING_FULL,
	TM_STACK_LOSS_TABLE_FULL, /* no room to remember a new stack: reported each time */
	TM_STACK_LOSS_UNREAD,     /* could not be walked */
	TM_STACK_LOSS_NO_SCRATCH, /* no memory to build it in */
	TM_STACK_LOSS_COUNT
};

#endif /* TIDEMARK_BPF_STACK_INTF_H_ */
