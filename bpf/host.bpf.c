// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
// Host memory of watched processes: mappings by system calls, pins, and sampled page faults.
//
// What takes memory away is reported when the call begins and what adds memory when it has
// returned: in between the kernel may hand the range to another thread, whose mapping must come
// after. One ring keeps that order.
//
// A process that is not watched costs one map look-up a call. The tracepoints of single system
// calls are used, not the ones of all calls: on a call that is not one of ours they cost a tenth.
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/host_intf.h"

struct mm_struct;
struct files_struct;
#define TM_TASK_EXTRA_FIELDS       \
	struct mm_struct *mm;      \
	struct files_struct *files;
#include "bpf/stack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAP_SHARED 0x01 // a bit of MAP_SHARED_VALIDATE too
#define MAP_ANONYMOUS 0x20
#define TMPFS_MAGIC 0x01021994
#define S_IFMT 0170000
#define S_IFREG 0100000
#define PAGE_MASK_BITS 4095ull
#define IO_URING_REGISTER_BUFFERS 0
#define IO_URING_UNREGISTER_BUFFERS 1
#define IO_URING_REGISTER_BUFFERS2 15
#define MAX_IO_VECTORS 1024

struct mm_struct {
	unsigned long brk;
} __attribute__((preserve_access_index));

struct super_block {
	unsigned long s_magic;
} __attribute__((preserve_access_index));

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

// Set before loading: one of this many faults is sampled; a power of two.
const volatile __u32 sample_one_of = 64;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct tm_host_watch);
} watches SEC(".maps");

// The call a thread is in. It ends with the thread.
struct pending_call {
	__u64 args[4];
	__u64 before; // brk: the break at entry
	__u32 generation;
	__u32 taken;  // something was reported at entry
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending_call);
} pending SEC(".maps");

// Of a system call's tracepoint.
struct syscall_enter {
	__u64 common;
	long number;
	unsigned long args[6];
};

struct syscall_exit {
	__u64 common;
	long number;
	long result;
};

static __always_inline struct tm_host_watch *find_watch(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&watches, &pid);
}

static __always_inline struct pending_call *begin_call(struct tm_host_watch *watch)
{
	struct pending_call *call = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL,
							 BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!call) {
		__sync_fetch_and_add(&watch->lost_reports, 1);
		return NULL;
	}
	call->generation = watch->generation;
	call->taken = 0;
	return call;
}

static __always_inline struct pending_call *end_call(struct tm_host_watch *watch)
{
	struct pending_call *call =
		bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL, 0);

	if (!call || call->generation != watch->generation)
		return NULL;
	call->generation = 0;
	return call;
}

static __always_inline void report(struct tm_host_watch *watch, __u32 kind, __u64 address,
				   __u64 bytes, __u64 result, __u32 flags, __u32 source,
				   __u64 stack)
{
	struct tm_host_event *event = bpf_ringbuf_reserve(&reports, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&watch->lost_reports, 1);
		return;
	}
	fill_head(&event->head, kind, watch->generation);
	event->address = address;
	event->bytes = bytes;
	event->result = result;
	event->flags = flags;
	event->source = source;
	event->stack = stack;
	bpf_ringbuf_submit(event, wake_flags());
}

static __always_inline int failed(long result)
{
	return (unsigned long)result >= (unsigned long)-4095;
}

// What descriptor `fd` of the current process shows.
static __always_inline __u32 source_of(__u64 fd)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return TM_SOURCE_FILE;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	// Device files lie on a file system with tmpfs's magic too.
	if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) == TMPFS_MAGIC &&
	    (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFREG)
		return TM_SOURCE_SHMEM;
	return TM_SOURCE_FILE;
}

SEC("tracepoint/syscalls/sys_enter_mmap")
int host_mmap_enter(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	call->args[0] = ctx->args[1]; // bytes
	call->args[1] = ctx->args[3]; // flags
	call->args[2] = ctx->args[4]; // descriptor
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_mmap")
int host_mmap_exit(struct syscall_exit *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;
	__u32 source, flags;

	if (!watch)
		return 0;
	call = end_call(watch);
	if (!call || failed(ctx->result))
		return 0;
	flags = call->args[1];
	if (flags & MAP_ANONYMOUS)
		source = flags & MAP_SHARED ? TM_SOURCE_SHMEM : TM_SOURCE_ANON;
	else
		source = source_of((__u32)call->args[2]);
	report(watch, TM_HOST_MMAP, ctx->result,
	       (call->args[0] + PAGE_MASK_BITS) & ~PAGE_MASK_BITS, 0, flags, source,
	       report_stack(ctx, watch->generation, 0, watch->stack_losses));
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_munmap")
int host_munmap_enter(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	call->taken = 1;
	report(watch, TM_HOST_MUNMAP, ctx->args[0],
	       (ctx->args[1] + PAGE_MASK_BITS) & ~PAGE_MASK_BITS, 0, 0, 0, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_munmap")
int host_munmap_exit(struct syscall_exit *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = end_call(watch);
	if (call && call->taken && ctx->result)
		report(watch, TM_HOST_FAILED, 0, 0, 0, 0, 0, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_mremap")
int host_mremap_enter(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	call->taken = 1;
	call->args[0] = ctx->args[2]; // new size
	report(watch, TM_HOST_MREMAP, ctx->args[0],
	       (ctx->args[1] + PAGE_MASK_BITS) & ~PAGE_MASK_BITS, 0, ctx->args[3], 0, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_mremap")
int host_mremap_exit(struct syscall_exit *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = end_call(watch);
	if (!call || !call->taken)
		return 0;
	if (failed(ctx->result)) {
		report(watch, TM_HOST_FAILED, 0, 0, 0, 0, 0, 0);
		return 0;
	}
	report(watch, TM_HOST_MREMAP_RETURN, 0,
	       (call->args[0] + PAGE_MASK_BITS) & ~PAGE_MASK_BITS, ctx->result, 0, 0,
	       report_stack(ctx, watch->generation, 0, watch->stack_losses));
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_brk")
int host_brk_enter(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;
	struct task_struct *task;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	task = (struct task_struct *)bpf_get_current_task();
	call->before = BPF_CORE_READ(task, mm, brk);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_brk")
int host_brk_exit(struct syscall_exit *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;
	__u64 stack = 0;

	if (!watch)
		return 0;
	call = end_call(watch);
	if (!call || (__u64)ctx->result == call->before)
		return 0;
	if ((__u64)ctx->result > call->before)
		stack = report_stack(ctx, watch->generation, 0, watch->stack_losses);
	report(watch, TM_HOST_BRK, call->before, 0, ctx->result, 0, 0, stack);
	return 0;
}

static __always_inline int keep_range(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	call->args[0] = ctx->args[0];
	call->args[1] = ctx->args[1];
	call->args[2] = ctx->args[2];
	return 0;
}

// `flags` is the third argument where the call has one.
static __always_inline int report_range(struct syscall_exit *ctx, __u32 kind, int has_flags)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;
	__u64 start, end;

	if (!watch)
		return 0;
	call = end_call(watch);
	if (!call || ctx->result)
		return 0;
	start = call->args[0] & ~PAGE_MASK_BITS;
	end = (call->args[0] + call->args[1] + PAGE_MASK_BITS) & ~PAGE_MASK_BITS;
	report(watch, kind, start, end - start, 0, has_flags ? call->args[2] : 0, 0, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_madvise")
int host_madvise_enter(struct syscall_enter *ctx)
{
	return keep_range(ctx);
}

SEC("tracepoint/syscalls/sys_exit_madvise")
int host_madvise_exit(struct syscall_exit *ctx)
{
	return report_range(ctx, TM_HOST_MADVISE, 1);
}

// Of mlock and munlock, which have two arguments: reading a third is refused.
static __always_inline int keep_two(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	call->args[0] = ctx->args[0];
	call->args[1] = ctx->args[1];
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_mlock")
int host_mlock_enter(struct syscall_enter *ctx)
{
	return keep_two(ctx);
}

SEC("tracepoint/syscalls/sys_exit_mlock")
int host_mlock_exit(struct syscall_exit *ctx)
{
	return report_range(ctx, TM_HOST_MLOCK, 0);
}

SEC("tracepoint/syscalls/sys_enter_mlock2")
int host_mlock2_enter(struct syscall_enter *ctx)
{
	return keep_two(ctx);
}

SEC("tracepoint/syscalls/sys_exit_mlock2")
int host_mlock2_exit(struct syscall_exit *ctx)
{
	return report_range(ctx, TM_HOST_MLOCK, 0);
}

SEC("tracepoint/syscalls/sys_enter_munlock")
int host_munlock_enter(struct syscall_enter *ctx)
{
	return keep_two(ctx);
}

SEC("tracepoint/syscalls/sys_exit_munlock")
int host_munlock_exit(struct syscall_exit *ctx)
{
	return report_range(ctx, TM_HOST_MUNLOCK, 0);
}

SEC("tracepoint/syscalls/sys_exit_munlockall")
int host_munlockall_exit(struct syscall_exit *ctx)
{
	struct tm_host_watch *watch = find_watch();

	if (watch && !ctx->result)
		report(watch, TM_HOST_MUNLOCK_ALL, 0, 0, 0, 0, 0, 0);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_io_uring_register")
int host_io_uring_enter(struct syscall_enter *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct pending_call *call;

	if (!watch)
		return 0;
	call = begin_call(watch);
	if (!call)
		return 0;
	call->args[0] = ctx->args[0]; // ring
	call->args[1] = ctx->args[1]; // operation
	call->args[2] = ctx->args[2]; // vectors
	call->args[3] = ctx->args[3]; // count
	return 0;
}

struct vector_sum {
	__u64 next;
	__u64 left;
	__u64 bytes;
};

static long add_vector(__u32 index, struct vector_sum *sum)
{
	if (!sum->left)
		return 1;
	sum->bytes += read_word(sum->next + 8); // iov_len
	sum->next += 16;
	sum->left -= 1;
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_io_uring_register")
int host_io_uring_exit(struct syscall_exit *ctx)
{
	struct tm_host_watch *watch = find_watch();
	struct vector_sum sum = {};
	struct pending_call *call;

	if (!watch)
		return 0;
	call = end_call(watch);
	if (!call || ctx->result < 0)
		return 0;
	switch (call->args[1] & 0xff) {
	case IO_URING_REGISTER_BUFFERS:
		sum.next = call->args[2];
		sum.left = call->args[3];
		break;
	case IO_URING_REGISTER_BUFFERS2: // a structure: count, flags, reserved, vectors, tags
		sum.left = (__u32)read_word(call->args[2]);
		sum.next = read_word(call->args[2] + 16);
		break;
	case IO_URING_UNREGISTER_BUFFERS:
		report(watch, TM_HOST_IO_URING_UNPIN, call->args[0], 0, 0, 0, 0, 0);
		return 0;
	default:
		return 0;
	}
	bpf_loop(MAX_IO_VECTORS, add_vector, &sum, 0);
	report(watch, TM_HOST_IO_URING_PIN, call->args[0], sum.bytes, 0, 0, 0,
	       report_stack(ctx, watch->generation, 0, watch->stack_losses));
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(host_fault, unsigned long address)
{
	struct tm_host_watch *watch = find_watch();

	if (!watch)
		return 0;
	__sync_fetch_and_add(&watch->faults, 1);
	if (bpf_get_prandom_u32() & (sample_one_of - 1))
		return 0;
	report(watch, TM_HOST_FAULT, address, 0, 0, 0, 0,
	       report_stack(ctx, watch->generation, 0, watch->stack_losses));
	return 0;
}
