// SPDX-License-Identifier: GPL-2.0-only
#include "attach.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "kernel/ksyms.h"
#include "prototype.h"

const char *const state_names[STATE_CNT] = {
	[STATE_UNUSED] = "unused",
	[STATE_READY] = "available",
	[STATE_ATTACHED] = "attached",
	[STATE_MISSING] = "missing",
	[STATE_REFUSED] = "refused",
};

/* Switch to the next hook method that has not been tried for the function. Return false if all have been tried. */
static bool take_next_way(struct attach *attach)
{
	if (!attach->next)
		return false;
	attach->way = __builtin_ctz(attach->next);
	attach->next &= attach->next - 1;
	return true;
}

/* Return the symbol to probe: the function's name, or the name of a clone that the compiler made. */
static const char *symbol_of(const struct attach_sources *sources, const char *name)
{
	/* The BPF programs need BTF even if they are attached as kprobes. */
	return sources->ksyms && sources->btf ? ksyms__find_name(sources->ksyms, name) : NULL;
}

static bool try_candidate(struct attach *attach, const char *name, const struct attach_sources *sources,
			  enum attach_wish wish)
{
	bool probes = wish == ATTACH_MULTI || wish == ATTACH_KPROBE;
	int arguments = probes ? -ENOENT : prototype__arguments(sources->btf, name);
	const char *symbol = symbol_of(sources, name);
	/* fentry needs a symbol with exactly this name, and so does a kprobe on a function that BTF describes. */
	bool can_probe = symbol && (arguments < 0 || !strcmp(symbol, name));

	attach->next = wish & ((arguments >= 0 ? ATTACH_FENTRY : 0) | (can_probe && sources->multi ? ATTACH_MULTI : 0) |
			       (can_probe && !sources->no_kprobes ? ATTACH_KPROBE : 0));
	snprintf(attach->symbol, sizeof(attach->symbol), "%s", arguments >= 0 || !symbol ? name : symbol);
	attach->arguments = arguments >= 0 ? arguments : 0;
	return take_next_way(attach);
}

/* Set READY, or MISSING if the function's arguments are not those that the programs read. */
static void check_prototype(struct attach *attach, const char *name, const char *arguments, const struct attach_sources *sources)
{
	bool fits = prototype__fits(sources->btf, name, arguments, attach->reason, sizeof(attach->reason));

	attach->state = fits ? STATE_READY : STATE_MISSING;
	if (!fits || !*arguments || !strcmp(attach->symbol, name))
		return;
	attach->state = STATE_MISSING;
	snprintf(attach->reason, sizeof(attach->reason), "the compiler left only a clone with other arguments");
}

void attach__find(struct attach *attach, const char *candidates, const char *arguments,
		  const struct attach_sources *sources, enum attach_wish wish)
{
	char list[2 * SYMBOL_MAX], *save = NULL, *name;

	snprintf(list, sizeof(list), "%s", candidates);
	for (name = strtok_r(list, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
		if (!try_candidate(attach, name, sources, wish))
			continue;
		check_prototype(attach, name, arguments, sources);
		attach->no_kprobes = wish == ATTACH_ANY ? sources->no_kprobes : NULL;
		return;
	}
	attach->state = STATE_MISSING;
	if (sources->btf && wish == ATTACH_KPROBE && sources->no_kprobes)
		snprintf(attach->reason, sizeof(attach->reason), "%s", sources->no_kprobes);
	else if (wish == ATTACH_MULTI && !sources->multi)
		snprintf(attach->reason, sizeof(attach->reason), "this kernel has no kprobe.multi (CONFIG_FPROBE)");
	else
		snprintf(attach->reason, sizeof(attach->reason), "%s",
			 sources->btf ? "inlined or absent in this kernel" : NO_BTF);
}

/* Write the call sites as text, such as function+0x1a,+0x2b. */
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

void attach__find_calls(struct attach *attach, const char *callers, const char *callees, const char *arguments,
			const struct attach_sources *sources)
{
	char list[2 * SYMBOL_MAX], *save = NULL, *name;
	const char *obstacle = !sources->btf ? NO_BTF : sources->no_kprobes ?: sources->ksyms ? NULL : "kernel symbols were not read";

	attach->way = WAY_KPROBE;
	attach->state = STATE_MISSING;
	snprintf(attach->symbol, sizeof(attach->symbol), "%s", callees);
	if (obstacle)
		snprintf(attach->reason, sizeof(attach->reason), "%s", obstacle);
	else
		attach->sites_cnt = call_sites__find(attach->sites, sources->ksyms, callers, callees, attach->reason,
						     sizeof(attach->reason));
	if (!attach->sites_cnt)
		return;
	attach->state = STATE_READY;
	/* All callees are checked, because a call site does not record the callee. */
	snprintf(list, sizeof(list), "%s", callees);
	for (name = strtok_r(list, "|", &save); name; name = strtok_r(NULL, "|", &save))
		if (!prototype__fits(sources->btf, name, arguments, attach->reason, sizeof(attach->reason)))
			attach->state = STATE_MISSING;
	name_sites(attach);
}

void attach__skip(struct attach *attach, const char *candidates, const char *why)
{
	attach->state = STATE_UNUSED;
	snprintf(attach->symbol, sizeof(attach->symbol), "%.*s", (int)strcspn(candidates, "|"), candidates);
	snprintf(attach->reason, sizeof(attach->reason), "%s", why);
}

const char *attach__way_name(const struct attach *attach)
{
	static const char *const names[WAY_CNT] = {
		[WAY_FENTRY] = "fentry", [WAY_MULTI] = "kprobe.multi", [WAY_KPROBE] = "kprobe",
	};

	return attach->sites_cnt ? "call-site" : names[attach->way];
}

static int prepare_one(const struct attach *attach, struct bpf_program *program, enum bpf_attach_type type)
{
	int err;

	if (!program)
		return 0;
	err = bpf_program__set_autoload(program, true);
	/* The programs are compiled as kprobes. */
	if (err || attach->way == WAY_KPROBE)
		return err;
	if (attach->way == WAY_MULTI)
		return bpf_program__set_expected_attach_type(program, BPF_TRACE_KPROBE_MULTI);
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
	add_reason(attach, attach__way_name(attach), doing, attach__error_text(err));
	if (take_next_way(attach))
		return;
	if (attach->way != WAY_KPROBE && attach->no_kprobes)
		add_reason(attach, "kprobe", "", attach->no_kprobes);
	attach->state = STATE_REFUSED;
}

static int link_one(struct attach *attach, struct bpf_program *program, const char *symbol, size_t offset, bool retprobe)
{
	LIBBPF_OPTS(bpf_kprobe_multi_opts, multi, .syms = &symbol, .cnt = 1, .retprobe = retprobe);
	LIBBPF_OPTS(bpf_kprobe_opts, options, .retprobe = retprobe, .offset = offset);
	struct bpf_link *link;

	if (!program)
		return 0;
	if (attach->way == WAY_FENTRY)
		link = bpf_program__attach_trace(program);
	else if (attach->way == WAY_MULTI)
		link = bpf_program__attach_kprobe_multi_opts(program, NULL, &multi);
	else
		link = bpf_program__attach_kprobe_opts(program, symbol, &options);
	if (!link)
		return -errno;
	attach->links[attach->links_cnt++] = link;
	return 0;
}

int attach__attach(struct attach *attach)
{
	int err = 0;

	/* Attach the exit first: an entry without its exit would corrupt the call stack. */
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
 * Parts of the kernel's struct bpf_link_info that count the calls that a probe missed. `missed` is new in 6.7 (commits
 * 3acf8ace6823, e2b2cd592adc), and older linux/bpf.h headers lack it. Older kernels fill in fewer bytes.
 */
union missed_info {
	struct {
		__u32 type, id, prog_id, pad;
		__u32 perf_type, perf_pad;
		__u64 name;
		__u32 name_length, offset;
		__u64 address;
		__u64 missed;
	} kprobe;
	struct {
		__u32 type, id, prog_id, pad;
		__u64 addresses;
		__u32 count, flags;
		__u64 missed;
	} multi;
};
_Static_assert(offsetof(union missed_info, kprobe.missed) == 48, "struct bpf_link_info of the kernel");
_Static_assert(offsetof(union missed_info, multi.missed) == 32, "struct bpf_link_info of the kernel");

/* Return false if the kernel does not count kprobes that did not fire. */
static bool read_missed_count(const struct attach *attach, __u64 *missed)
{
	for (int i = 0; i < attach->links_cnt; i++) {
		union missed_info info = {};
		__u32 size = sizeof(info);

		if (bpf_obj_get_info_by_fd(bpf_link__fd(attach->links[i]), &info, &size) || size < sizeof(info))
			return false;
		*missed += attach->way == WAY_MULTI ? info.multi.missed : info.kprobe.missed;
	}
	return true;
}

int attach__detach(struct attach *attach)
{
	int err = 0;

	while (attach->links_cnt)
		err = bpf_link__destroy(attach->links[--attach->links_cnt]) ?: err;
	return err;
}

void attach__detect(struct attach_sources *sources, const struct btf *btf)
{
	sources->btf = btf;
	/*
	 * The file exists with CONFIG_KPROBE_EVENTS on 4.17 and newer
	 * (Documentation/ABI/testing/sysfs-bus-event_source-devices).
	 */
	sources->no_kprobes = access("/sys/bus/event_source/devices/kprobe/type", R_OK) ?
			      "this kernel has no kprobes" : NULL;
	/* kprobe.multi needs CONFIG_FPROBE. The link type exists without it, but attaching fails. */
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

const char *attach__error_text(int err)
{
	/*
	 * 524 is ENOTSUPP, which only the kernel defines: fentry is not possible on this architecture or with this
	 * many arguments.
	 */
	if (err == -524)
		return "not supported here (ENOTSUPP)";
	/*
	 * Under lockdown there is no bpf_probe_read_kernel(). The kernel refuses a program that calls it like one
	 * that calls an unknown function.
	 */
	if (err == -EINVAL && is_locked_down())
		return "Invalid argument: BPF may not read kernel memory (lockdown=confidentiality)";
	return strerror(-err);
}

/*
 * Add the number of times that the kernel skipped a program. Return NULL, or the reason why the kernel does not count
 * them. recursion_misses is new in 5.12 (commit 9ed9e9ba2337); the kernel returns how many bytes of the struct it has
 * filled in.
 */
static const char *read_skipped_runs(const struct bpf_program *program, __u64 *skipped)
{
	struct bpf_prog_info info = {};
	__u32 size = sizeof(info);
	int fd = program ? bpf_program__fd(program) : -1;

	if (fd < 0)
		return NULL;
	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return strerror(errno);
	if (size < offsetof(struct bpf_prog_info, recursion_misses) + sizeof(info.recursion_misses))
		return "this kernel does not count skipped program runs (5.12 and newer do)";
	*skipped += info.recursion_misses;
	return NULL;
}

static void add_count(json_t *loss, const char *kind, const char *id, __u64 count, const char *unknown)
{
	json_t *entry = unknown ? json_pack("{s:n, s:s}", "count", "reason", unknown) : json_integer(count);
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", kind, id);
	json_object_set_new(loss, name, entry);
}

void attach__add_recursion(json_t *loss, const char *id, const struct bpf_program *program)
{
	const char *unknown;
	__u64 skipped = 0;

	if (bpf_program__fd(program) < 0)
		return;
	unknown = read_skipped_runs(program, &skipped);
	add_count(loss, "recursion", id, skipped, unknown);
}

void attach__add_misses(json_t *loss, const char *id, const struct attach *function)
{
	bool probed = attach__is_probed(function), has_missed_count;
	__u64 skipped = 0, missed = 0;
	const char *unknown;

	/* The kernel counts both kinds of missed probes from 6.7 on (commits dd8657894c11, 3acf8ace6823). */
	has_missed_count = !probed || read_missed_count(function, &missed);
	unknown = read_skipped_runs(function->enter, &skipped) ?: read_skipped_runs(function->leave, &skipped);
	if (!has_missed_count)
		unknown = unknown ?: "this kernel does not count skipped kprobe programs (6.7 and newer do)";
	add_count(loss, "recursion", id, skipped, unknown);
	if (probed)
		add_count(loss, "missed", id, missed, has_missed_count ? NULL :
			  "this kernel does not count kprobes that did not fire (6.7 and newer do)");
}
