/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * arch.bpf.h - registers of a system call, its ABI and the preemption count on each architecture.
 *
 * At sys_exit the register of the first argument holds the return value; orig_x0 still holds the argument. This file
 * defines only the numbers that frequent programs compare. Other numbers come from the collector (call_of_nr).
 */
#ifndef COPYSCOPE_ARCH_BPF_H
#define COPYSCOPE_ARCH_BPF_H

#if defined(__TARGET_ARCH_x86)
#define REG_SYSCALL orig_ax
#define REG_FIRST di
#define REG_SECOND si
#define REG_THIRD dx
#define REG_FOURTH r10
#define REG_FIFTH r8
/* i386: ebx, ecx, edx, esi, edi */
#define REG_FIRST_32BIT bx
#define REG_SECOND_32BIT cx
#define REG_THIRD_32BIT dx
#define REG_FOURTH_32BIT si
#define REG_FIFTH_32BIT di
/*
 * Set by every 32-bit entry until the call ends, including int $0x80 in a 64-bit program
 * (arch/x86/include/asm/thread_info.h).
 */
#define TASK_ABI thread_info.status
#define ABI_IS_32BIT 0x2
/* __X32_SYSCALL_BIT (arch/x86/include/uapi/asm/unistd.h) marks x32 calls: 64-bit registers, 32-bit pointers. */
#define NUMBER_OF_X32 0x40000000
/*
 * True from the entry of a call to its return: until the return, its result is the value that the entry code sets
 * (PUSH_AND_CLEAR_REGS rax=$-ENOSYS, arch/x86/entry/entry_64.S). Registers of an interrupt have a negative orig_ax.
 */
#define IS_INSIDE_CALL(regs) ((long)(regs)->orig_ax >= 0 && (long)(regs)->ax == -38 /* ENOSYS */)
#elif defined(__TARGET_ARCH_arm64)
#define REG_SYSCALL syscallno
#define REG_FIRST orig_x0
#define REG_SECOND regs[1]
#define REG_THIRD regs[2]
#define REG_FOURTH regs[3]
#define REG_FIFTH regs[4]
/* AArch32 passes the first argument in r0, the same register as x0. */
#define REG_FIRST_32BIT REG_FIRST
#define REG_SECOND_32BIT REG_SECOND
#define REG_THIRD_32BIT REG_THIRD
#define REG_FOURTH_32BIT REG_FOURTH
#define REG_FIFTH_32BIT REG_FIFTH
/* TIF_32BIT (arch/arm64/include/asm/thread_info.h) */
#define TASK_ABI thread_info.flags
#define ABI_IS_32BIT (1UL << 22)
#define NUMBER_OF_X32 0
#define TASK_PREEMPT_COUNT thread_info.preempt.count
/*
 * True from the entry of a call to its return, which overwrites the first argument (invoke_syscall(),
 * arch/arm64/kernel/syscall.c). A call that returns the value of its first argument looks as if it still ran.
 */
#define IS_INSIDE_CALL(regs) ((regs)->syscallno >= 0 && (regs)->regs[0] == (regs)->orig_x0)
#else
#error "unsupported architecture: add its system call registers to bpf/arch.bpf.h"
#endif

#if defined(__TARGET_ARCH_x86)
/* arch/x86/entry/syscalls/syscall_64.tbl */
#define NR_SENDTO 44
#define NR_RECVFROM 45
#define NR_SENDMSG 46
#define NR_RECVMSG 47
#define NR_SENDFILE 40
#define NR_WRITEV 20
#define NR_SPLICE 275
#define NR_SENDMMSG 307
/* O_DIRECT, include/uapi/asm-generic/fcntl.h */
#define FLAG_DIRECT 040000
#else
/* include/uapi/asm-generic/unistd.h */
#define NR_SENDTO 206
#define NR_RECVFROM 207
#define NR_SENDMSG 211
#define NR_RECVMSG 212
#define NR_SENDFILE 71
#define NR_WRITEV 66
#define NR_SPLICE 76
#define NR_SENDMMSG 269
/* O_DIRECT, arch/arm64/include/uapi/asm/fcntl.h */
#define FLAG_DIRECT 0200000
#endif

#endif
