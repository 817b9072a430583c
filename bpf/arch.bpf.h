/* SPDX-License-Identifier: GPL-2.0 */
/*
 * arch.bpf.h - where each architecture keeps a syscall's number and arguments, and its count of preemption.
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
#elif defined(__TARGET_ARCH_arm64)
#define REG_SYSCALL syscallno
#define REG_FIRST orig_x0
#define REG_SECOND regs[1]
#define REG_THIRD regs[2]
#define REG_FOURTH regs[3]
#define REG_FIFTH regs[4]
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
#endif

#endif
