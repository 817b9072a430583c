/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * system_call.bpf.h - the call that the running task is in, and its arguments. Both depend on the ABI of this call,
 * which decides the table of numbers and the registers; a 64-bit program can make 32-bit calls, too.
 */
#ifndef COPYSCOPE_SYSTEM_CALL_BPF_H
#define COPYSCOPE_SYSTEM_CALL_BPF_H

#include "bounded.bpf.h"
#include "target.bpf.h"

/*
 * True from 5.15 on (commit dd6e10fbd9fb): any program can read the registers of the task's system call, not only one
 * that gets them as an argument.
 */
#define KNOWS_REGISTERS bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)

/* Where the arguments of a call are. */
enum abi {
	ABI_NATIVE,
	/* 64-bit registers, but 32-bit pointers in the structs that they point at. */
	ABI_X32,
	ABI_32BIT,
	/* socketcall(2): 32-bit words in the program's memory. */
	ABI_SOCKETCALL,
};

struct system_call {
	const struct pt_regs *regs;
	__u32 call;
	enum abi abi;
};

/* number -> enum call, filled by the collector for its own architecture. */
extern const volatile __u8 call_of_nr[NUMBER_TABLES][SYSCALLS_MAX];

static __always_inline __u32 call_of(enum number_table table, __u64 number)
{
	return number < SYSCALLS_MAX ? call_of_nr[table][BOUNDED(number, SYSCALLS_MAX)] : CALL_NONE;
}

/*
 * Our own traffic is 64-bit. If the kernel does not show the ABI, a program is assumed to be 64-bit. task: the running
 * task if the caller has it, which saves a call, or NULL.
 */
static __always_inline bool is_32bit_call(const struct task_struct *task)
{
	if (watch_mode == WATCH_NOBODY || !bpf_core_field_exists(task->TASK_ABI))
		return false;
	if (!KNOWS_REGISTERS)
		return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), TASK_ABI) & ABI_IS_32BIT;
	if (!task)
		task = bpf_get_current_task_btf();
	return task->TASK_ABI & ABI_IS_32BIT;
}

/*
 * Read the call from registers that the verifier knows; CALL_NONE if it is not in enum call. The cheapest test comes
 * first. task: see is_32bit_call().
 */
static __always_inline __u32 read_call_of(const struct task_struct *task, struct system_call *syscall, const struct pt_regs *regs)
{
	__u64 number = regs->REG_SYSCALL;
	__u32 narrow = call_of(NUMBERS_32BIT, number);

	syscall->regs = regs;
	syscall->abi = number & NUMBER_OF_X32 ? ABI_X32 : ABI_NATIVE;
	syscall->call = call_of(NUMBERS, number & ~(__u64)NUMBER_OF_X32);
	if ((syscall->call == CALL_NONE && narrow == CALL_NONE) || !is_32bit_call(task))
		return syscall->call;
	syscall->abi = ABI_32BIT;
	syscall->call = narrow;
	if (syscall->call == CALL_SOCKETCALL) {
		__u32 subcall = regs->REG_FIRST_32BIT;

		syscall->abi = ABI_SOCKETCALL;
		syscall->call = subcall < SOCKETCALLS ? call_of(NUMBERS_32BIT, SOCKETCALLS_AT + subcall) : CALL_NONE;
	}
	return syscall->call;
}

static __always_inline __u32 read_system_call(struct system_call *syscall, const struct pt_regs *regs)
{
	return read_call_of(NULL, syscall, regs);
}

static __always_inline __u64 argument_of_socketcall(const struct pt_regs *regs, __u32 index)
{
	const __u32 *arguments = (const __u32 *)(__u64)(__u32)regs->REG_SECOND_32BIT;
	__u32 argument = -1;

	/* Reading rarely fails, because the kernel has just read the same words. */
	if (bpf_probe_read_user(&argument, sizeof(argument), arguments + index))
		count_loss(LOSS_WATCHED_UNREADABLE);
	return argument;
}

/* The verifier knows the registers, so they are loaded directly instead of by a helper. */
#define ARGUMENT(syscall, slot, index) ({ \
	const struct pt_regs *regs_ = (syscall)->regs; \
	(syscall)->abi == ABI_SOCKETCALL ? argument_of_socketcall(regs_, index) : \
	(syscall)->abi == ABI_32BIT ? (__u32)regs_->REG_##slot##_32BIT : regs_->REG_##slot; \
})
#define FIRST_ARGUMENT(syscall) ARGUMENT(syscall, FIRST, 0)
#define SECOND_ARGUMENT(syscall) ARGUMENT(syscall, SECOND, 1)
#define THIRD_ARGUMENT(syscall) ARGUMENT(syscall, THIRD, 2)
#define FOURTH_ARGUMENT(syscall) ARGUMENT(syscall, FOURTH, 3)
#define FIFTH_ARGUMENT(syscall) ARGUMENT(syscall, FIFTH, 4)

#endif
