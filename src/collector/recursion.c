// SPDX-License-Identifier: GPL-2.0
#include "recursion.h"

#include <stdio.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

json_int_t recursion__skipped(const struct bpf_program *program)
{
	struct bpf_prog_info info = {};
	__u32 size = sizeof(info);
	int fd = program ? bpf_program__fd(program) : -1;

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size))
		return 0;
	return info.recursion_misses;
}

void recursion__add(json_t *loss, const char *id, const struct bpf_program *program)
{
	char name[64];

	if (bpf_program__fd(program) < 0)
		return;
	snprintf(name, sizeof(name), "recursion_%s", id);
	json_object_set_new(loss, name, json_integer(recursion__skipped(program)));
}
