// SPDX-License-Identifier: GPL-2.0
/* attach_sources.c - by which ways functions can be hooked on this kernel, and why it refuses one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/btf.h>

#include "attach.h"

void attach__look(struct attach_sources *sources, const struct btf *btf)
{
	sources->btf = btf;
	/* Documentation/ABI/testing/sysfs-bus-event_source-devices: there with CONFIG_KPROBE_EVENTS (4.17 and newer). */
	sources->no_kprobes = access("/sys/bus/event_source/devices/kprobe/type", R_OK) ?
			      "this kernel has no kprobes" : NULL;
	/* CONFIG_FPROBE; the link type itself is there without it, and refuses. */
	sources->multi = btf && btf__find_by_name_kind(btf, "register_fprobe_ips", BTF_KIND_FUNC) >= 0;
}

static bool is_locked_down(void)
{
	FILE *file = fopen("/sys/kernel/security/lockdown", "re");
	char modes[64] = "";
	bool is;

	if (!file)
		return false;
	is = fgets(modes, sizeof(modes), file) && strstr(modes, "[confidentiality]");
	fclose(file);
	return is;
}

const char *attach__why(int err)
{
	/* 524: ENOTSUPP, which only the kernel has: this architecture, or this many arguments, cannot have fentry. */
	if (err == -524)
		return "not supported here (ENOTSUPP)";
	/* There is then no bpf_probe_read_kernel(): a program that calls it is refused as one that calls nonsense. */
	if (err == -EINVAL && is_locked_down())
		return "Invalid argument: BPF may not read kernel memory (lockdown=confidentiality)";
	return strerror(-err);
}
