/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Call stacks for one family: the ring its reports go through, the native walk, the walk of CPython
 * frames, and the memory of which stacks were reported.
 *
 * The Python walk only reads: it finds the thread's state by its thread id, which is the thread's FS
 * base, and follows the frames from there. It needs no lock of the interpreter and stops no thread;
 * what it reads may be changing, so whatever comes out is checked in user space.
 */
#ifndef TIDEMARK_BPF_STACK_BPF_H_
#define TIDEMARK_BPF_STACK_BPF_H_

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/stack_intf.h"

/* Only the fields used; their offsets are relocated when the program is loaded. */
struct thread_struct {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

/* A family that reads more of it names the fields before including this header. */
#ifndef TM_TASK_EXTRA_FIELDS
#define TM_TASK_EXTRA_FIELDS
#endif

struct task_struct {
	struct thread_struct thread;
	TM_TASK_EXTRA_FIELDS
} __attribute__((preserve_access_index));

/* Set before loading. Without bpf_loop (before 5.17) there are no Python frames. */
const volatile __u8 walk_python = 1;
/* Above this much unread data the reader is woken. */
const volatile __u64 wake_above_bytes = 1 << 20;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} reports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct tm_python_layout);
} pythons SEC(".maps");

struct stack_key {
	__u64 id;
	__u32 pid;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct stack_key);
	__type(value, __u8);
} known_stacks SEC(".maps");

/* Where a thread builds a stack: too large for the BPF stack, and memory of the CPU is no place for
 * it, because another thread may run on the CPU in between. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tm_stack);
} stack_scratch SEC(".maps");

/* A wake-up costs the probed thread an interrupt, so the reader comes by itself and is called only
 * when the ring fills faster than that. */
static __always_inline __u64 wake_flags(void)
{
	return bpf_ringbuf_query(&reports, BPF_RB_AVAIL_DATA) > wake_above_bytes ?
		       BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __always_inline void fill_head(struct tm_report *head, __u32 kind, __u32 generation)
{
	__u64 id = bpf_get_current_pid_tgid();

	head->kind = kind;
	head->generation = generation;
	head->pid = id >> 32;
	head->tid = (__u32)id;
	head->time_ns = bpf_ktime_get_ns();
}

static __always_inline __u64 read_word(__u64 address)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	return (hash ^ word) * 0x100000001b3ull;
}

struct thread_search {
	const struct tm_python_layout *layout;
	__u64 wanted;
	__u64 state;
	__u32 found;
};

static long match_thread(__u32 index, struct thread_search *search)
{
	if (!search->state)
		return 1;
	if (read_word(search->state + search->layout->thread_id) == search->wanted) {
		search->found = 1;
		return 1;
	}
	search->state = read_word(search->state + search->layout->thread_next);
	return 0;
}

struct frame_walk {
	const struct tm_python_layout *layout;
	struct tm_stack *stack;
	__u64 frame;
};

static long take_frame(__u32 index, struct frame_walk *walk)
{
	const struct tm_python_layout *layout = walk->layout;
	__u32 at = walk->stack->python_frames;
	__u64 position = 0;
	__u8 owner = 0;

	if (!walk->frame)
		return 1;
	if (at >= TM_PYTHON_FRAMES) {
		walk->stack->flags |= TM_STACK_PYTHON_CUT;
		return 1;
	}
	if (layout->frame_owner)
		bpf_probe_read_user(&owner, sizeof(owner),
				    (void *)(walk->frame + layout->frame_owner));
	if (owner < 3) { /* from there on the interpreter's own C frames */
		if (layout->position_is_int)
			bpf_probe_read_user(&position, 4,
					    (void *)(walk->frame + layout->frame_position));
		else
			position = read_word(walk->frame + layout->frame_position);
		walk->stack->python[at & (TM_PYTHON_FRAMES - 1)].code =
			read_word(walk->frame + layout->frame_code);
		walk->stack->python[at & (TM_PYTHON_FRAMES - 1)].position = position;
		walk->stack->python_frames = at + 1;
		walk->stack->id =
			mix(mix(walk->stack->id, position),
			    walk->stack->python[at & (TM_PYTHON_FRAMES - 1)].code);
	}
	walk->frame = read_word(walk->frame + layout->frame_previous);
	return 0;
}

static __noinline int walk_python_frames(struct tm_stack *stack)
{
	struct thread_search search = {};
	struct frame_walk walk = {};
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct tm_python_layout *layout;
	struct task_struct *task;
	__u64 interpreter;

	if (!stack)
		return 0;
	layout = bpf_map_lookup_elem(&pythons, &pid);
	if (!layout)
		return 0;
	task = (struct task_struct *)bpf_get_current_task();
	search.layout = layout;
	search.wanted = BPF_CORE_READ(task, thread.fsbase);
	interpreter = read_word(layout->runtime + layout->runtime_interpreters);
	if (interpreter)
		search.state = read_word(interpreter + layout->interpreter_threads);
	bpf_loop(TM_PYTHON_THREADS, match_thread, &search, 0);
	if (!search.found) {
		stack->flags |= TM_STACK_PYTHON_MISSING;
		return 0;
	}
	walk.layout = layout;
	walk.stack = stack;
	walk.frame = read_word(search.state + layout->thread_frame);
	if (layout->has_cframe)
		walk.frame = read_word(walk.frame + layout->cframe_frame);
	/* Twice the room: frames of C code are passed over. */
	bpf_loop(2 * TM_PYTHON_FRAMES, take_frame, &walk, 0);
	return 0;
}

static __always_inline void lose_stack(__u64 *losses, enum tm_stack_loss cause)
{
	__sync_fetch_and_add(&losses[cause], 1);
}

/* Walks the current thread's stack, reports it when it is new, and returns its id (0: not known).
 * `caller_sp`: at a function's entry, the stack pointer, where the return address lies: nothing is
 * pushed yet, so a walk by frame pointers may miss the caller. Else 0. */
static __always_inline __u64 report_stack(void *ctx, __u32 generation, __u64 caller_sp,
					  __u64 losses[TM_STACK_LOSS_COUNT])
{
	struct tm_stack *stack, *report;
	struct stack_key key = {};
	__u64 hash;
	__u8 one = 1;
	long bytes;

	stack = bpf_task_storage_get(&stack_scratch, bpf_get_current_task_btf(), NULL,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stack) {
		lose_stack(losses, TM_STACK_LOSS_NO_SCRATCH);
		return 0;
	}
	stack->id = 0xcbf29ce484222325ull;
	stack->flags = 0;
	stack->python_frames = 0;
	__builtin_memset(stack->ip, 0, sizeof(stack->ip));
	bytes = bpf_get_stack(ctx, stack->ip, sizeof(stack->ip), BPF_F_USER_STACK);
	if (bytes < 8) {
		lose_stack(losses, TM_STACK_LOSS_UNREAD);
		bytes = 0;
	}
	stack->native_frames = bytes / 8;
	if (bytes && caller_sp)
		bpf_probe_read_user(&stack->ip[0], sizeof(stack->ip[0]), (void *)caller_sp);
	if (stack->native_frames == TM_STACK_FRAMES)
		stack->flags |= TM_STACK_NATIVE_CUT;
	if (walk_python)
		walk_python_frames(stack);

	hash = stack->id; // of the Python frames so far
	for (__u32 i = 0; i < TM_STACK_FRAMES; i++)
		hash = mix(hash, stack->ip[i]);
	if (!stack->native_frames && !stack->python_frames)
		return 0;
	if (!hash)
		hash = 1;

	key.id = hash;
	key.pid = bpf_get_current_pid_tgid() >> 32;
	key.generation = generation;
	if (bpf_map_lookup_elem(&known_stacks, &key))
		return hash;
	report = bpf_ringbuf_reserve(&reports, sizeof(*report), 0);
	if (!report) {
		lose_stack(losses, TM_STACK_LOSS_RING_FULL);
		return 0;
	}
	bpf_probe_read_kernel(report, sizeof(*report), stack);
	fill_head(&report->head, TM_REPORT_STACK, generation);
	report->id = hash;
	bpf_ringbuf_submit(report, wake_flags());
	if (bpf_map_update_elem(&known_stacks, &key, &one, BPF_ANY))
		lose_stack(losses, TM_STACK_LOSS_TABLE_FULL);
	return hash;
}

#endif /* TIDEMARK_BPF_STACK_BPF_H_ */
