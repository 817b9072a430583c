// SPDX-License-Identifier: GPL-2.0-only
#include "tracepoints.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

const struct hook_row hook_rows[HOOK_CNT] = {
#define HOOK(id, instrument, tracepoint, need) { #id, #instrument, #tracepoint, need },
	HOOKS(HOOK)
#undef HOOK
};

struct bpf_program *tracepoints__program(struct copyscope *skel, enum hook_id id)
{
	switch (id) {
#define HOOK(id, instrument, tracepoint, need) \
	case HOOK_##id:                        \
		return skel->progs.on_##id;
	HOOKS(HOOK)
#undef HOOK
	default:
		return NULL;
	}
}

int tracepoints__prepare(const struct hook hooks[HOOK_CNT], struct copyscope *skel, int only)
{
	int err = 0;

	for (int i = 0; i < HOOK_CNT; i++) {
		struct bpf_program *program = tracepoints__program(skel, i);
		bool load = hooks[i].state == STATE_READY && (only == TRACEPOINTS_ALL || only == i);

		bpf_program__set_autoload(program, load);
		if (load)
			err = bpf_program__set_attach_target(program, 0, hook_rows[i].tracepoint) ?: err;
	}
	return err;
}

bool tracepoints__works(const struct hook *hook)
{
	return hook->state == STATE_READY || hook->state == STATE_ATTACHED;
}

static bool has_fallback(enum hook_id id)
{
	return id + 1 < HOOK_CNT && hook_rows[id + 1].need == FALLBACK;
}

void tracepoints__refuse(struct hook hooks[HOOK_CNT], enum hook_id id, const char *doing, int err)
{
	struct hook *hook = &hooks[id];

	hook->state = STATE_REFUSED;
	snprintf(hook->reason, sizeof(hook->reason), "%s: %s", doing, attach__error_text(err));
	if (has_fallback(id) && hooks[id + 1].state == STATE_UNUSED)
		hooks[id + 1].state = STATE_READY;
}

bool tracepoints__only_watch(const char *instrument)
{
	static const char *const watch_instruments[] = { "watch", "volume", "copies", "packets", "shape" };

	for (size_t i = 0; i < sizeof(watch_instruments) / sizeof(*watch_instruments); i++)
		if (!strcmp(instrument, watch_instruments[i]))
			return true;
	return false;
}

/*
 * Return true if io_uring requests store their results, from which a completion can be matched to its request (5.19
 * and newer, commit cef216fc32d7).
 */
static bool requests_store_results(const struct btf *btf)
{
	int id = btf__find_by_name_kind(btf, "io_kiocb", BTF_KIND_STRUCT);
	const struct btf_type *type = id > 0 ? btf__type_by_id(btf, id) : NULL;
	const struct btf_member *member = type ? btf_members(type) : NULL;

	for (int i = 0; type && i < btf_vlen(type); i++)
		if (!strcmp(btf__name_by_offset(btf, member[i].name_off), "cqe"))
			return true;
	return false;
}

static void set_aside(struct hook *hook, enum attach_state state, const char *subject, const char *why)
{
	hook->state = state;
	snprintf(hook->reason, sizeof(hook->reason), "%s%s", subject, why);
}

void tracepoints__find(struct hook hooks[HOOK_CNT], const struct btf *btf, bool functions, bool watched)
{
	for (int i = 0; i < HOOK_CNT; i++) {
		const struct hook_row *row = &hook_rows[i];
		struct hook *hook = &hooks[i];
		char type[96];

		snprintf(type, sizeof(type), "btf_trace_%s", row->tracepoint);
		if ((!functions && !strcmp(row->instrument, "functions")) ||
		    (!watched && tracepoints__only_watch(row->instrument)) || (watched && row->need == OWN_TRAFFIC))
			set_aside(hook, STATE_UNUSED, "", "not asked for");
		else if (!btf)
			set_aside(hook, STATE_MISSING, "", NO_BTF);
		else if (btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF) <= 0)
			set_aside(hook, STATE_MISSING, "", "no such tracepoint in this kernel");
		else if (!strcmp(row->tracepoint, "io_uring_complete") && !requests_store_results(btf))
			set_aside(hook, STATE_MISSING, "", "this kernel's io_uring requests do not store their results");
		/* A fallback is used only if the row before it is missing or refused (tracepoints__refuse()). */
		else if (row->need == FALLBACK && hooks[i - 1].state == STATE_READY)
			set_aside(hook, STATE_UNUSED, hook_rows[i - 1].tracepoint, " is better and present");
		else
			hook->state = STATE_READY;
	}
}

bool tracepoints__is_instrument(const char *name, bool watched)
{
	bool exists = !strcmp(name, "sampler") || !strcmp(name, UNARMED) || (watched && !strcmp(name, SPLICES));

	for (int i = 0; i < HOOK_CNT && !exists; i++)
		exists = !strcmp(hook_rows[i].instrument, name) && (watched || !tracepoints__only_watch(name));
	return exists;
}

bool tracepoints__try(struct hook hooks[HOOK_CNT], struct copyscope *skel)
{
	bool refused = false;

	for (int i = 0; i < HOOK_CNT; i++) {
		struct bpf_link *link;

		if (hooks[i].state != STATE_READY || !has_fallback(i))
			continue;
		link = bpf_program__attach(tracepoints__program(skel, i));
		if (!link)
			tracepoints__refuse(hooks, i, "attach", -errno);
		refused |= !link;
		bpf_link__destroy(link);
	}
	return refused;
}
