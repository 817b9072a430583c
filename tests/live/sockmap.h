/* SPDX-License-Identifier: GPL-2.0-only */
/* sockmap.h - two sockets in a sockmap, and the program of sk_msg that redirects between them; without libbpf. */
#ifndef COPYSCOPE_TESTS_SOCKMAP_H
#define COPYSCOPE_TESTS_SOCKMAP_H

#include <err.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static void put_into(int map, unsigned int key, unsigned long long fd)
{
	union bpf_attr attr = { .map_fd = map, .key = (unsigned long)&key, .value = (unsigned long)&fd };

	if (bpf(BPF_MAP_UPDATE_ELEM, &attr))
		err(1, "bpf: BPF_MAP_UPDATE_ELEM");
}

/* Redirect messages of both sockets to the second one, past TCP. Return -1 if this kernel does not support it. */
static int redirect_messages(int sender, int receiver)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_SOCKMAP, .key_size = 4, .value_size = 8, .max_entries = 2 };
	int map = bpf(BPF_MAP_CREATE, &attr), program;
	struct bpf_insn steps[] = {
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 2, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map },
		{},
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = 1 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 4, .imm = BPF_F_INGRESS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_msg_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	attr = (union bpf_attr){ .prog_type = BPF_PROG_TYPE_SK_MSG, .insn_cnt = sizeof(steps) / sizeof(*steps),
				 .insns = (unsigned long)steps, .license = (unsigned long)"GPL",
				 .expected_attach_type = BPF_SK_MSG_VERDICT };
	program = map < 0 ? -1 : bpf(BPF_PROG_LOAD, &attr);
	if (program < 0)
		return -1;
	attr = (union bpf_attr){ .target_fd = map, .attach_bpf_fd = program, .attach_type = BPF_SK_MSG_VERDICT };
	if (bpf(BPF_PROG_ATTACH, &attr))
		err(1, "bpf: BPF_PROG_ATTACH");
	put_into(map, 0, sender);
	put_into(map, 1, receiver);
	return 0;
}

#endif
