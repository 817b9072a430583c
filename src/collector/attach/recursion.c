// SPDX-License-Identifier: GPL-2.0
#include "recursion.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "attach.h"

/*
 * NULL, or why the kernel does not say. recursion_misses came with 5.12 (commit 9ed9e9ba2337); the kernel says how much of the
 * struct it has filled in.
 */
static const char *ask(const struct bpf_program *program, __u64 *skipped)
{
	struct bpf_prog_info info = {};
	__u32 size = sizeof(info);
	int fd = program ? bpf_program__fd(program) : -1;

	if (fd < 0)
		return NULL;
	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return strerror(errno);
	if (size < offsetof(struct bpf_prog_info, recursion_misses) + sizeof(info.recursion_misses))
		return "this kernel does not count the runs that it skips (5.12 and newer do)";
	*skipped += info.recursion_misses;
	return NULL;
}

static void add(json_t *loss, const char *what, const char *id, __u64 count, const char *unknown)
{
	json_t *entry = unknown ? json_pack("{s:n, s:s}", "count", "reason", unknown) : json_integer(count);
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", what, id);
	json_object_set_new(loss, name, entry);
}

void recursion__add(json_t *loss, const char *id, const struct bpf_program *program)
{
	const char *unknown;
	__u64 skipped = 0;

	if (bpf_program__fd(program) < 0)
		return;
	unknown = ask(program, &skipped);
	add(loss, "recursion", id, skipped, unknown);
}

void recursion__add_function(json_t *loss, const char *id, const struct attach *function)
{
	const char *unknown;
	__u64 skipped = 0;

	/* Whether this kernel counts what befalls kprobes is known when the first has been detached. */
	if (attach__is_probed(function) && function->missed == MISSED_NOT_ASKED)
		return;
	unknown = ask(function->enter, &skipped) ?: ask(function->leave, &skipped);
	if (attach__is_probed(function) && function->missed == MISSED_UNKNOWN)
		/* Both came with 6.7 (commits dd8657894c11, 3acf8ace6823). */
		unknown = unknown ?: "this kernel does not count what it skips of kprobes (6.7 and newer do)";
	add(loss, "recursion", id, skipped, unknown);
	if (attach__is_probed(function))
		add(loss, "missed", id, function->missed_calls, function->missed == MISSED_UNKNOWN ?
		    "this kernel does not say which kprobes did not fire (6.7 and newer do)" : NULL);
}
