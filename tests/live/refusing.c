// SPDX-License-Identifier: GPL-2.0-only
/*
 * refusing.c - simulates a kernel that refuses a BPF program (LD_PRELOAD).
 *
 * REFUSE_LOAD=NAME: refuse to load it. REFUSE_ATTACH=NAME: refuse to attach it. Names are those passed to bpf(2): at most 15 bytes.
 * REFUSE_FENTRY: refuse all fentry programs and allow kprobes, like some security policies.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static int is_named(const union bpf_attr *attr, const char *variable)
{
	const char *name = getenv(variable);

	return name && !strncmp(attr->prog_name, name, BPF_OBJ_NAME_LEN);
}

static int is_fentry(int cmd, const union bpf_attr *attr)
{
	return cmd == BPF_PROG_LOAD && getenv("REFUSE_FENTRY") &&
	       (attr->expected_attach_type == BPF_TRACE_FENTRY || attr->expected_attach_type == BPF_TRACE_FEXIT);
}

static int is_refused(int cmd, const union bpf_attr *attr)
{
	int fd;

	if (cmd == BPF_PROG_LOAD)
		return is_named(attr, "REFUSE_LOAD");
	if (cmd != BPF_RAW_TRACEPOINT_OPEN && cmd != BPF_LINK_CREATE)
		return 0;
	fd = cmd == BPF_LINK_CREATE ? (int)attr->link_create.prog_fd : (int)attr->raw_tracepoint.prog_fd;
	if (getenv("REFUSE_ATTACH")) {
		struct bpf_prog_info info = {};
		/* Clear the whole union: since GCC 15, an initialiser of one member clears only that. */
		union bpf_attr ask = {};
		long (*real)(long, ...) = dlsym(RTLD_NEXT, "syscall");

		ask.info.bpf_fd = fd;
		ask.info.info_len = sizeof(info);
		ask.info.info = (unsigned long)&info;
		if (!real(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &ask, sizeof(ask)))
			return !strncmp(info.name, getenv("REFUSE_ATTACH"), BPF_OBJ_NAME_LEN);
	}
	return 0;
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = dlsym(RTLD_NEXT, "syscall");
	long arguments[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_bpf && is_fentry(arguments[0], (const union bpf_attr *)arguments[1])) {
		errno = EPERM;
		return -1;
	}
	if (number == SYS_bpf && is_refused(arguments[0], (const union bpf_attr *)arguments[1])) {
		errno = EACCES;
		return -1;
	}
	return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
