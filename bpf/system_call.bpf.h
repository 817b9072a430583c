/* SPDX-License-Identifier: GPL-2.0 */
/*
 * system_call.bpf.h - which call the running task is in, and what it was given: by the table of numbers, and in the registers, of
 * the ABI that this very call was made with. A 64-bit program can make calls of 32 bits, too.
 */
#ifndef COPYSCOPE_SYSTEM_CALL_BPF_H
#define COPYSCOPE_SYSTEM_CALL_BPF_H

#include "bounded.bpf.h"
#include "target.bpf.h"

/* 5.15 (commit dd6e10fbd9fb): the registers of a task's system call, in a program that was not given them. */
#define KNOWS_REGISTERS bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)

/* Where the arguments are. */
enum abi {
	ABI_NATIVE,
	/* Registers of 64 bits, pointers of 32 in what they point at. */
	ABI_X32,
	ABI_32BIT,
	/* socketcall(2): words of 32 bits in the program's memory. */
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

/* Our own traffic has 64 bits. Where no kernel tells, no program is taken for one of 32. */
static __always_inline bool is_32bit_call(void)
{
	const struct task_struct *task = NULL;

	if (watch_mode == WATCH_NOBODY || !bpf_core_field_exists(task->TASK_ABI))
		return false;
	if (!KNOWS_REGISTERS)
		return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), TASK_ABI) & ABI_IS_32BIT;
	task = bpf_get_current_task_btf();
	return task->TASK_ABI & ABI_IS_32BIT;
}

/* The call, of registers that the verifier knows as such; CALL_NONE where it is none of enum call. The cheapest test comes first. */
static __always_inline __u32 read_system_call(struct system_call *made, const struct pt_regs *regs)
{
	__u64 number = regs->REG_SYSCALL;
	__u32 narrow = call_of(NUMBERS_32BIT, number);

	made->regs = regs;
	made->abi = number & NUMBER_OF_X32 ? ABI_X32 : ABI_NATIVE;
	made->call = call_of(NUMBERS, number & ~(__u64)NUMBER_OF_X32);
	if ((made->call == CALL_NONE && narrow == CALL_NONE) || !is_32bit_call())
		return made->call;
	made->abi = ABI_32BIT;
	made->call = narrow;
	if (made->call == CALL_SOCKETCALL) {
		__u32 which = regs->REG_FIRST_32BIT;

		made->abi = ABI_SOCKETCALL;
		made->call = which < SOCKETCALLS ? call_of(NUMBERS_32BIT, SOCKETCALLS_AT + which) : CALL_NONE;
	}
	return made->call;
}

static __always_inline __u64 argument_of_socketcall(const struct pt_regs *regs, __u32 index)
{
	const __u32 *arguments = (const __u32 *)(__u64)(__u32)BPF_CORE_READ(regs, REG_SECOND_32BIT);
	__u32 argument = -1;

	/* The kernel has just read them. */
	if (bpf_probe_read_user(&argument, sizeof(argument), arguments + index))
		count_loss(LOSS_WATCHED_UNREADABLE);
	return argument;
}

#define ARGUMENT(made, slot, index) ({ \
	const struct pt_regs *regs_ = (made)->regs; \
	(made)->abi == ABI_SOCKETCALL ? argument_of_socketcall(regs_, index) : \
	(made)->abi == ABI_32BIT ? (__u32)BPF_CORE_READ(regs_, REG_##slot##_32BIT) : BPF_CORE_READ(regs_, REG_##slot); \
})
#define FIRST_ARGUMENT(made) ARGUMENT(made, FIRST, 0)
#define SECOND_ARGUMENT(made) ARGUMENT(made, SECOND, 1)
#define THIRD_ARGUMENT(made) ARGUMENT(made, THIRD, 2)
#define FOURTH_ARGUMENT(made) ARGUMENT(made, FOURTH, 3)
#define FIFTH_ARGUMENT(made) ARGUMENT(made, FIFTH, 4)

#endif
