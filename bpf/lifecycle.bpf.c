// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Processes that start, become another program, end, or are chosen by the OOM killer.
//
// Of struct task_struct only the few fields used are declared; their offsets are relocated when the
// program is loaded, so no vmlinux.h is needed to build.
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/lifecycle_intf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct signal_struct *signal;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

__u64 lost_events;

static __always_inline int report(__u32 kind, __u32 pid, __u32 parent)
{
	struct tm_lifecycle_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&lost_events, 1);
		return 0;
	}
	event->kind = kind;
	event->pid = pid;
	event->parent = parent;
	event->pad = 0;
	event->time_ns = bpf_ktime_get_ns();
	// The reader comes by itself many times a second; a wake-up at every fork would cost the
	// machine more than the news is worth.
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(lifecycle_exec, struct task_struct *task)
{
	return report(TM_LIFECYCLE_EXEC, task->tgid, 0);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(lifecycle_fork, struct task_struct *parent, struct task_struct *child)
{
	if (child->pid != child->tgid) // a thread
		return 0;
	return report(TM_LIFECYCLE_FORK, child->tgid, parent->tgid);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(lifecycle_exit, struct task_struct *task)
{
	// Every thread passes here; the process is gone with the last, which need not be its
	// leader. The count was lowered before this point.
	if (task->signal->live.counter != 0)
		return 0;
	return report(TM_LIFECYCLE_EXIT, task->tgid, 0);
}

// The task belongs to the victim; it can be any of its threads.
SEC("tp_btf/mark_victim")
int BPF_PROG(lifecycle_oom_victim, struct task_struct *task)
{
	return report(TM_LIFECYCLE_OOM_VICTIM, task->tgid, 0);
}
