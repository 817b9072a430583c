/* SPDX-License-Identifier: GPL-2.0 */
/*
 * arch.bpf.h - where each architecture keeps a syscall's number and arguments, which ABI it is of, and its count of preemption.
 *
 * The first argument's own register holds the return value at sys_exit; orig_x0 still holds the argument.
 * Only numbers that programs compare at their hottest place are here; the others come from the collector (call_of_nr).
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
/* arch/x86/include/asm/thread_info.h: set by every entry for 32 bits, int $0x80 of a 64-bit program too, until the call's end. */
#define TASK_ABI thread_info.status
#define ABI_IS_32BIT 0x2
/* __X32_SYSCALL_BIT (arch/x86/include/uapi/asm/unistd.h): a number of x32, which has registers of 64 bits and pointers of 32. */
#define NUMBER_OF_X32 0x40000000
#elif defined(__TARGET_ARCH_arm64)
#define REG_SYSCALL syscallno
#define REG_FIRST orig_x0
#define REG_SECOND regs[1]
#define REG_THIRD regs[2]
#define REG_FOURTH regs[3]
#define REG_FIFTH regs[4]
/* AArch32 has r0 where the others have x0. */
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
#else
#error "this architecture: registers of system calls not known: add a block to bpf/arch.bpf.h"
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
