// SPDX-License-Identifier: GPL-2.0-only
/*
 * Static programs call this function in place of libbpf's (-Wl,--wrap). libbpf searches weak symbols that this kernel
 * lacks in the BTF of its modules, which only CAP_SYS_ADMIN may list. Without this capability libbpf before 1.3 loads no
 * program. Newer versions search no modules, and so does every version if the list of modules is empty.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

int __wrap_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id);

int __wrap_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id)
{
	union bpf_attr attr = { .start_id = start_id };
	int err = syscall(SYS_bpf, BPF_BTF_GET_NEXT_ID, &attr, sizeof(attr));

	if (!err)
		*next_id = attr.next_id;
	else if (errno == EPERM)
		errno = ENOENT;
	return err ? -errno : 0;
}
