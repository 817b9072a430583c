// SPDX-License-Identifier: GPL-2.0
#include "attach.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "ksyms.h"

const char *const state_names[STATE_CNT] = {
	[STATE_UNUSED] = "unused",
	[STATE_READY] = "available",
	[STATE_ATTACHED] = "attached",
	[STATE_MISSING] = "missing",
	[STATE_REFUSED] = "refused",
};

const char *attach__no_kprobes(void)
{
	/* Documentation/ABI/testing/sysfs-bus-event_source-devices: there with CONFIG_KPROBE_EVENTS (4.17 and newer). */
	return access("/sys/bus/event_source/devices/kprobe/type", R_OK) ? "this kernel has no kprobes" : NULL;
}

/* The number of arguments; negative when BTF does not have the function. */
static int arguments_of(const struct btf *btf, const char *name)
{
	const struct btf_type *type;
	int id = btf ? btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) : -ENOENT;

	if (id < 0)
		return id;
	type = btf__type_by_id(btf, id);
	type = type ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_func_proto(type) ? btf_vlen(type) : -EINVAL;
}

/* The symbol to put a kprobe on: the name itself, or a copy that the compiler made of it. */
static const char *symbol_of(const struct attach_sources *sources, const char *name)
{
	return sources->no_kprobes || !sources->ksyms ? NULL : ksyms__find_name(sources->ksyms, name);
}

static bool try_candidate(struct attach *attach, const char *name, const struct attach_sources *sources,
			  enum attach_wish wish)
{
	int arguments = wish == ATTACH_KPROBE ? -ENOENT : arguments_of(sources->btf, name);
	const char *symbol = wish == ATTACH_FENTRY ? NULL : symbol_of(sources, name);

	snprintf(attach->symbol, sizeof(attach->symbol), "%s", symbol ?: name);
	if (arguments >= 0) {
		attach->arguments = arguments;
		attach->probed = false;
		/* fentry wants the name, and so does a kprobe on the function that BTF describes. */
		snprintf(attach->symbol, sizeof(attach->symbol), "%s", name);
		attach->kprobe_next = symbol && !strcmp(symbol, name);
		return true;
	}
	attach->probed = true;
	return symbol;
}

void attach__find(struct attach *attach, const char *candidates, const struct attach_sources *sources,
		  enum attach_wish wish)
{
	char list[2 * SYMBOL_MAX], *save = NULL, *name;

	snprintf(list, sizeof(list), "%s", candidates);
	for (name = strtok_r(list, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
		if (!try_candidate(attach, name, sources, wish))
			continue;
		attach->state = STATE_READY;
		attach->no_kprobes = wish == ATTACH_ANY ? sources->no_kprobes : NULL;
		return;
	}
	attach->state = STATE_MISSING;
	if (wish == ATTACH_KPROBE && sources->no_kprobes)
		snprintf(attach->reason, sizeof(attach->reason), "%s", sources->no_kprobes);
	else
		snprintf(attach->reason, sizeof(attach->reason), "%s",
			 sources->btf ? "inlined or absent in this kernel" : "this kernel has no BTF");
}

/* function+0x1a,+0x2b */
static void name_sites(struct attach *attach)
{
	const char *function = "";
	size_t used = 0;

	for (int i = 0; i < attach->sites_cnt && used < sizeof(attach->symbol); i++) {
		const struct call_site *site = &attach->sites[i];
		bool again = !strcmp(site->function, function);

		function = site->function;
		used += snprintf(attach->symbol + used, sizeof(attach->symbol) - used, "%s%s+%#zx", i ? "," : "",
				 again ? "" : function, site->offset);
	}
}

void attach__find_calls(struct attach *attach, const char *callers, const char *callees,
			const struct attach_sources *sources)
{
	const char *none = sources->no_kprobes ?: sources->ksyms ? NULL : "not looked for";

	attach->probed = true;
	attach->state = STATE_MISSING;
	snprintf(attach->symbol, sizeof(attach->symbol), "%s", callees);
	if (none)
		snprintf(attach->reason, sizeof(attach->reason), "%s", none);
	else
		attach->sites_cnt = call_sites__find(attach->sites, sources->ksyms, callers, callees, attach->reason,
						     sizeof(attach->reason));
	if (!attach->sites_cnt)
		return;
	attach->state = STATE_READY;
	name_sites(attach);
}

const char *attach__how(const struct attach *attach)
{
	if (attach->sites_cnt)
		return "call-site";
	return attach->probed ? "kprobe" : "fentry";
}

static int prepare_one(const struct attach *attach, struct bpf_program *program, enum bpf_attach_type type)
{
	int err;

	if (!program)
		return 0;
	err = bpf_program__set_autoload(program, true);
	/* They are compiled as kprobes. */
	if (err || attach->probed)
		return err;
	err = bpf_program__set_type(program, BPF_PROG_TYPE_TRACING) ?:
	      bpf_program__set_expected_attach_type(program, type);
	return err ?: bpf_program__set_attach_target(program, 0, attach->symbol);
}

int attach__prepare(struct attach *attach, struct bpf_program *enter, struct bpf_program *leave)
{
	attach->enter = enter;
	attach->leave = leave;
	return prepare_one(attach, enter, BPF_TRACE_FENTRY) ?: prepare_one(attach, leave, BPF_TRACE_FEXIT);
}

static void add_reason(struct attach *attach, const char *way, const char *doing, const char *why)
{
	size_t used = strlen(attach->reason);

	snprintf(attach->reason + used, sizeof(attach->reason) - used, "%s%s: %s%s", used ? "; " : "", way, doing, why);
}

void attach__refuse(struct attach *attach, const char *doing, int err)
{
	/* 524: ENOTSUPP, which only the kernel has: this architecture, or this many arguments, cannot have fentry. */
	add_reason(attach, attach__how(attach), doing, err == -524 ? "not supported here (ENOTSUPP)" : strerror(-err));
	if (!attach->probed && attach->kprobe_next) {
		attach->probed = true;
		return;
	}
	if (!attach->probed && attach->no_kprobes)
		add_reason(attach, "kprobe", "", attach->no_kprobes);
	attach->state = STATE_REFUSED;
}

static int link_one(struct attach *attach, struct bpf_program *program, const char *symbol, size_t offset, bool retprobe)
{
	LIBBPF_OPTS(bpf_kprobe_opts, options, .retprobe = retprobe, .offset = offset);
	struct bpf_link *link;

	if (!program)
		return 0;
	link = attach->probed ? bpf_program__attach_kprobe_opts(program, symbol, &options) :
				bpf_program__attach_trace(program);
	if (!link)
		return -errno;
	attach->links[attach->links_cnt++] = link;
	return 0;
}

int attach__attach(struct attach *attach)
{
	int err = 0;

	/* The exit first: an entry without its exit would break the stack. */
	for (int i = 0; !err && i < attach->sites_cnt; i++) {
		const struct call_site *site = &attach->sites[i];

		err = link_one(attach, attach->leave, site->function, site->after, false) ?:
		      link_one(attach, attach->enter, site->function, site->offset, false);
	}
	if (!attach->sites_cnt)
		err = link_one(attach, attach->leave, attach->symbol, 0, true) ?:
		      link_one(attach, attach->enter, attach->symbol, 0, false);
	if (err)
		attach__detach(attach);
	return err;
}

/*
 * The part of the kernel's struct bpf_link_info that says what a kprobe missed; `missed` came with 6.7 (commit
 * 3acf8ace6823) and is not in every linux/bpf.h. An older kernel fills less than this in.
 */
struct kprobe_link_info {
	__u32 type;
	__u32 id;
	__u32 prog_id;
	__u32 pad;
	__u32 perf_type;
	__u32 perf_pad;
	__u64 name;
	__u32 name_length;
	__u32 offset;
	__u64 address;
	__u64 missed;
};
_Static_assert(offsetof(struct kprobe_link_info, missed) == 48, "struct bpf_link_info of the kernel");

static void add_missed(struct attach *attach, const struct bpf_link *link)
{
	struct kprobe_link_info info = {};
	__u32 size = sizeof(info);

	if (!attach->probed || bpf_obj_get_info_by_fd(bpf_link__fd(link), &info, &size) ||
	    size < sizeof(info))
		return;
	attach->missed += info.missed;
	attach->missed_known = true;
}

int attach__detach(struct attach *attach)
{
	int err = 0;

	for (int i = 0; i < attach->links_cnt; i++)
		add_missed(attach, attach->links[i]);
	while (attach->links_cnt)
		err = bpf_link__destroy(attach->links[--attach->links_cnt]) ?: err;
	return err;
}
