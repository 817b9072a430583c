// SPDX-License-Identifier: GPL-2.0-only
#include "task_offsets.h"

#include <string.h>

#include <bpf/btf.h>

static const char *const names[TASK_FIELDS] = {
	[TASK_FLAGS] = "flags", [TASK_GROUP_LEADER] = "group_leader", [TASK_COMM] = "comm",
};

void task_offsets__read(uint32_t offsets[TASK_FIELDS])
{
	struct btf *btf = btf__load_vmlinux_btf();
	int id = btf ? btf__find_by_name_kind(btf, "task_struct", BTF_KIND_STRUCT) : -1;
	const struct btf_type *task = id < 0 ? NULL : btf__type_by_id(btf, id);

	for (int i = 0; task && i < btf_vlen(task); i++)
		for (int field = 0; field < TASK_FIELDS; field++)
			if (!strcmp(btf__name_by_offset(btf, btf_members(task)[i].name_off), names[field]))
				offsets[field] = btf_member_bit_offset(task, i) / 8;
	btf__free(btf);
}
