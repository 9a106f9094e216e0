// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Probes on the memory calls of libcuda. One program for every entry, one for every return; what
// they do for an entry point stands in the probe's cookie (libcuda_intf.h).
//
// Order is what makes the ledger right. Reports go through one ring, in the order of their
// reservation. A free is reported when it begins, before the driver can hand its address out again;
// an allocation when it has returned. So the free of an address always comes before the allocation
// that reuses it, whatever the threads do.
#include <linux/bpf.h>
#include <linux/ptrace.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/libcuda_intf.h"
#include "bpf/stack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// TM_ARGS rounded up, so that an index can be bounded by a mask.
#define ARG_SLOTS 8

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct tm_cuda_watch);
} watches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct tm_cuda_counts);
} counts SEC(".maps");

// The call a thread is in. Task storage, not a hash keyed by thread: it cannot fill up, and what a
// thread leaves behind when it dies inside a call goes with it.
struct pending_call {
	__u64 sp; // stack pointer at entry; 0: not in a call
	__u64 cookie;
	__u64 args[ARG_SLOTS];
	__u64 bytes;
	__u64 location;
	__u64 stack;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending_call);
} pending SEC(".maps");

static __always_inline void lose(struct tm_cuda_counts *count, enum tm_loss cause)
{
	__sync_fetch_and_add(&count->losses[cause], 1);
}

// Argument by position, 1 the first; anything else is one of the two zeros behind the last.
static __always_inline __u64 argument(const __u64 args[ARG_SLOTS], __u32 position)
{
	return args[(position - 1) & (ARG_SLOTS - 1)];
}

static __always_inline void read_arguments(struct pt_regs *ctx, __u64 args[ARG_SLOTS])
{
	args[0] = PT_REGS_PARM1(ctx);
	args[1] = PT_REGS_PARM2(ctx);
	args[2] = PT_REGS_PARM3(ctx);
	args[3] = PT_REGS_PARM4(ctx);
	args[4] = PT_REGS_PARM5(ctx);
	args[5] = ctx->r9;
	args[6] = 0;
	args[7] = 0;
}

struct array_descriptor {
	__u64 width, height, depth;
	__u32 format, channels, flags;
};
#define ARRAY_LAYERED 0x01
#define ARRAY_CUBEMAP 0x04

static __always_inline __u64 channel_bytes(__u32 format)
{
	switch (format) {
	case 0x01: // 8-bit integers
	case 0x08:
		return 1;
	case 0x02: // 16-bit integers and half
	case 0x09:
	case 0x10:
		return 2;
	case 0x03: // 32-bit integers and float
	case 0x0a:
	case 0x20:
		return 4;
	}
	return 0; // planar and compressed formats have no bytes per channel
}

static __always_inline __u64 at_least_one(__u64 extent)
{
	return extent ? extent : 1;
}

static __noinline __u64 array_bytes(__u64 pointer, __u32 rule, __u32 levels)
{
	struct array_descriptor d = {};
	__u64 bytes = 0, element;

	if (rule == TM_BYTES_ARRAY_2D) {
		// No depth and no flags in this one: format and channels follow the height.
		if (bpf_probe_read_user(&d.width, 16, (void *)pointer) ||
		    bpf_probe_read_user(&d.format, 8, (void *)(pointer + 16)))
			return 0;
	} else if (bpf_probe_read_user(&d, 36, (void *)pointer)) {
		return 0;
	}
	element = channel_bytes(d.format) * d.channels;
	if (rule != TM_BYTES_MIPMAPPED || !levels)
		levels = 1;
	for (__u32 i = 0; i < TM_MAX_MIP_LEVELS && i < levels; i++) {
		bytes += at_least_one(d.width) * at_least_one(d.height) * at_least_one(d.depth) *
			 element;
		d.width = at_least_one(d.width >> 1);
		d.height >>= 1;
		if (!(d.flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)))
			d.depth >>= 1;
	}
	return bytes;
}

static __always_inline __u64 requested_bytes(const __u64 args[ARG_SLOTS], __u64 cookie)
{
	__u32 position = TM_COOKIE_BYTES_ARG(cookie), rule = TM_COOKIE_BYTES_RULE(cookie);
	__u64 value = argument(args, position), bytes = 0;

	switch (rule) {
	case TM_BYTES_ARGUMENT:
		return value;
	case TM_BYTES_TIMES_NEXT:
		return value * argument(args, position + 1);
	case TM_BYTES_GRAPH_NODE:
		// Behind the pool's properties (88 bytes) and the access descriptors.
		bpf_probe_read_user(&bytes, sizeof(bytes), (void *)(value + 104));
		return bytes;
	}
	return array_bytes(value, rule, argument(args, position + 1));
}

SEC("uprobe")
int libcuda_enter(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct tm_cuda_watch *watch = bpf_map_lookup_elem(&watches, &pid);
	struct tm_cuda_counts *count = bpf_map_lookup_elem(&counts, &pid);
	struct pending_call *call;
	__u64 cookie, bytes, caller = 0, sp = PT_REGS_SP(ctx);
	__u64 args[ARG_SLOTS];
	__u32 fn;

	if (!watch || !count)
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	if (watch->mode != (cookie & TM_COOKIE_LEDGER ? TM_MODE_LEDGER : TM_MODE_WITNESS))
		return 0;
	fn = TM_COOKIE_FN(cookie) & (TM_MAX_ENTRY_POINTS - 1);
	read_arguments(ctx, args);

	// Told by who calls, not by the depth of the stack: after a longjmp out of a call, any later
	// call may lie deeper than the one that was left.
	if (bpf_probe_read_user(&caller, sizeof(caller), (void *)sp) == 0 &&
	    caller >= watch->text_start && caller < watch->text_end) {
		lose(count, TM_LOSS_NESTED);
		return 0;
	}

	bytes = requested_bytes(args, cookie);
	__sync_fetch_and_add(&count->entry_points[fn].calls, 1);
	__sync_fetch_and_add(&count->entry_points[fn].requested_bytes, bytes);
	if (!(cookie & TM_COOKIE_LEDGER))
		return 0;

	call = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!call) {
		lose(count, TM_LOSS_NO_PENDING);
	} else {
		if (call->sp && call->generation == watch->generation)
			lose(count, TM_LOSS_ABANDONED);
		call->sp = sp;
		call->cookie = cookie;
		call->generation = watch->generation;
		__builtin_memcpy(call->args, args, sizeof(call->args));
		call->bytes = bytes;
		call->location = 0;
		if (TM_COOKIE_LOCATION_ARG(cookie))
			bpf_probe_read_user(&call->location, sizeof(call->location),
					    (void *)(argument(args, TM_COOKIE_LOCATION_ARG(cookie)) + 8));
		call->stack = 0;
		if (cookie & TM_COOKIE_STACK)
			call->stack = report_stack(ctx, watch->generation, sp,
						   count->stack_losses);
	}
	if (cookie & TM_COOKIE_AT_ENTRY) {
		struct tm_cuda_call *report =
			bpf_ringbuf_reserve(&reports, sizeof(*report), 0);

		if (!report) {
			lose(count, TM_LOSS_RING_FULL);
			return 0;
		}
		fill_head(&report->head, TM_REPORT_ENTER, watch->generation);
		report->fn = fn;
		report->result = 0;
		__builtin_memcpy(report->args, args, sizeof(report->args));
		report->bytes = bytes;
		report->location = 0;
		report->out[0] = 0;
		report->out[1] = 0;
		report->stack = 0;
		bpf_ringbuf_submit(report, wake_flags());
	}
	return 0;
}

static __always_inline void fill_return(struct tm_cuda_call *report, struct pending_call *call,
					__s32 result, struct tm_cuda_counts *count)
{
	__u32 out1 = TM_COOKIE_OUT1_ARG(call->cookie);
	__u32 out2 = TM_COOKIE_OUT2_ARG(call->cookie);

	fill_head(&report->head, TM_REPORT_RETURN, call->generation);
	report->fn = TM_COOKIE_FN(call->cookie);
	report->result = result;
	__builtin_memcpy(report->args, call->args, sizeof(report->args));
	report->bytes = call->bytes;
	report->location = call->location;
	report->out[0] = 0;
	report->out[1] = 0;
	report->stack = call->stack;
	if (result)
		return;
	if (out1 && bpf_probe_read_user(&report->out[0], 8,
					(void *)(argument(call->args, out1) +
						 TM_COOKIE_OUT1_OFFSET(call->cookie))))
		lose(count, TM_LOSS_UNREADABLE);
	if (out2 && bpf_probe_read_user(&report->out[1], 8,
					(void *)argument(call->args, out2)))
		lose(count, TM_LOSS_UNREADABLE);
}

SEC("uretprobe")
int libcuda_return(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct tm_cuda_watch *watch = bpf_map_lookup_elem(&watches, &pid);
	struct tm_cuda_counts *count = bpf_map_lookup_elem(&counts, &pid);
	__s32 result = (__s32)PT_REGS_RC(ctx);
	struct pending_call *call;
	struct tm_cuda_call *report;

	if (!watch || !count)
		return 0;
	call = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL, 0);
	// The return took the return address off the stack. Another value: the return of a nested
	// call, or of one that began before the probes were on.
	if (!call || call->sp + 8 != PT_REGS_SP(ctx) || call->generation != watch->generation)
		return 0;
	call->sp = 0;
	if (result)
		__sync_fetch_and_add(
			&count->entry_points[TM_COOKIE_FN(call->cookie) & (TM_MAX_ENTRY_POINTS - 1)]
				 .failed_calls, 1);
	// Reported at entry, and it succeeded: nothing to add.
	if ((call->cookie & TM_COOKIE_AT_ENTRY) && !result)
		return 0;

	report = bpf_ringbuf_reserve(&reports, sizeof(*report), 0);
	if (!report) {
		lose(count, TM_LOSS_RING_FULL);
		return 0;
	}
	fill_return(report, call, result, count);
	bpf_ringbuf_submit(report, wake_flags());
	return 0;
}
