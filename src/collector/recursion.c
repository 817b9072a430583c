// SPDX-License-Identifier: GPL-2.0
#include "recursion.h"

#include <stdio.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

void recursion__add(json_t *loss, const char *id, const struct bpf_program *program)
{
	struct bpf_prog_info info = {};
	__u32 size = sizeof(info);
	char name[64];
	int fd = bpf_program__fd(program);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size))
		return;
	snprintf(name, sizeof(name), "recursion_%s", id);
	json_object_set_new(loss, name, json_integer(info.recursion_misses));
}
