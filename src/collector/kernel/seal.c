// SPDX-License-Identifier: GPL-2.0-only
#include "seal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#else
#error "unsupported architecture: add its AUDIT_ARCH (linux/audit.h) to src/collector/kernel/seal.c"
#endif

/*
 * Allowed calls in addition to openat(2), which may only read. Some do not occur in traces on our machines: clocks
 * without a vDSO, and fallbacks of the C library.
 */
static const unsigned int allowed[] = {
	/* commands, answers, files in /proc and /sys */
	SYS_read, SYS_write, SYS_writev, SYS_close, SYS_fcntl, SYS_fstat, SYS_newfstatat, SYS_lseek, SYS_getdents64, SYS_faccessat,
	/* hooks, maps, events */
	SYS_bpf, SYS_perf_event_open, SYS_ioctl,
	/* memory */
	SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
	/* the thread that waits for splices, the child that detaches hooks, exit */
	SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_futex, SYS_sched_yield, SYS_sched_getaffinity, SYS_setsid, SYS_getppid,
	SYS_clock_nanosleep, SYS_exit, SYS_exit_group,
	/* signals, including abort(3) and sanitizers */
	SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_tgkill,
	/* capabilities, once the symbols are read */
	SYS_capget, SYS_capset,
	/* queries */
	SYS_clock_gettime, SYS_gettimeofday, SYS_getcpu, SYS_getpid, SYS_gettid, SYS_getrandom, SYS_sysinfo, SYS_uname,
};
#define ALLOWED (sizeof(allowed) / sizeof(*allowed))

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define IF_EQUAL(value, then, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, otherwise)
#define IF_ANY_BIT(bits, then, otherwise) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, then, otherwise)
#define REFUSE RETURN(SECCOMP_RET_ERRNO | EPERM)

int seal__calls(void)
{
	/* The flags of openat() are an int, which is the lower half of the argument on these two architectures. */
	const struct sock_filter prologue[] = {
		LOAD(arch), IF_EQUAL(OWN_ARCH, 1, 0), REFUSE,
		LOAD(nr), IF_EQUAL(SYS_openat, 0, 4),
		LOAD(args[2]), IF_ANY_BIT(O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1), REFUSE, RETURN(SECCOMP_RET_ALLOW),
	};
	const size_t prologue_length = sizeof(prologue) / sizeof(*prologue);
	struct sock_filter filter[sizeof(prologue) / sizeof(*prologue) + ALLOWED + 2];
	const struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	for (size_t i = 0; i < prologue_length; i++)
		filter[i] = prologue[i];
	/* Each comparison jumps to the last instruction, which allows the call. */
	for (size_t i = 0; i < ALLOWED; i++)
		filter[prologue_length + i] = (struct sock_filter)IF_EQUAL(allowed[i], ALLOWED - i, 0);
	filter[prologue_length + ALLOWED] = (struct sock_filter)REFUSE;
	filter[prologue_length + ALLOWED + 1] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return -errno;
	return 0;
}
