// SPDX-License-Identifier: GPL-2.0
#include "ksyms_programs.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "ksyms.h"

/* A program and the functions that it calls; ours have at most five. */
#define FUNCTIONS_MAX 256

static int bound_program(struct ksyms *ksyms, int fd)
{
	__u64 addresses[FUNCTIONS_MAX] = {};
	__u32 lengths[FUNCTIONS_MAX] = {};
	struct bpf_prog_info info = {
		.jited_ksyms = (uintptr_t)addresses,
		.nr_jited_ksyms = FUNCTIONS_MAX,
		.jited_func_lens = (uintptr_t)lengths,
		.nr_jited_func_lens = FUNCTIONS_MAX,
	};
	__u32 size = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return -errno;
	/* The kernel says how many there are, however few it had room for. */
	for (__u32 i = 0; i < info.nr_jited_ksyms && i < info.nr_jited_func_lens && i < FUNCTIONS_MAX; i++)
		ksyms__bound(ksyms, addresses[i], lengths[i]);
	return 0;
}

int ksyms__bound_programs(struct ksyms *ksyms)
{
	__u32 id = 0;

	while (!bpf_prog_get_next_id(id, &id)) {
		int fd = bpf_prog_get_fd_by_id(id);
		int err = fd < 0 ? -errno : bound_program(ksyms, fd);

		if (fd >= 0)
			close(fd);
		/* It was unloaded meanwhile. */
		if (err && err != -ENOENT)
			return err;
	}
	return errno == ENOENT ? 0 : -errno;
}
