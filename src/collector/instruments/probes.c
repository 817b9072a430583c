// SPDX-License-Identifier: GPL-2.0-only
#include "probes.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>
#include <sampling.skel.h>

#include "attach/tracepoints.h"
#include "functions/functions.h"
#include "kernel/clock.h"
#include "on_sight.h"
#include "report/maps.h"
#include "report/message.h"
#include "report/names.h"
#include "stored_sockets.h"
#include "watch.h"

struct probes {
	struct copyscope *skel;
	struct hook hooks[HOOK_CNT];
	struct functions *functions;
	bool sends_in_pieces;
	struct on_sight *on_sight;
	const struct watch *watch;
	const struct sampling *sampling;
	/* True if the kernel has BTF. */
	bool btf;
	bool hooked;
	/* True if bytes are counted at the sockets, which list_sockets lists. */
	bool stores_at_sockets;
	struct bpf_link *socket_list;
};

#define FUNCTIONS_INSTRUMENT "functions"

static void unload(struct probes *probes)
{
	copyscope__destroy(probes->skel);
	probes->skel = NULL;
}

/*
 * Load all READY hooks and functions, or only one of them (tracepoints__prepare(), functions__prepare()).
 */
static int load(struct probes *probes, int only, int only_function)
{
	struct copyscope *skel = copyscope__open();
	int err;

	if (!skel)
		return -errno;
	err = tracepoints__prepare(probes->hooks, skel, only) ?:
	      functions__prepare(probes->functions, skel, only_function) ?:
	      bpf_map__reuse_fd(skel->maps.watched, bpf_map__fd(probes->sampling->maps.watched)) ?:
	      bpf_map__reuse_fd(skel->maps.handled_packets, bpf_map__fd(probes->sampling->maps.handled_packets));
	names__fill_calls(skel->rodata->call_of_nr, probes->watch);
	watch__configure(probes->watch, skel);
	skel->rodata->sends_in_pieces = probes->sends_in_pieces;
	skel->rodata->stores_at_sockets = probes->stores_at_sockets;
	bpf_program__set_autoload(skel->progs.list_sockets, probes->stores_at_sockets);
	if (!err && probes->btf)
		err = copyscope__load(skel);
	if (!err && probes->btf && probes->watch && probes->watch->mode >= WATCH_CGROUP)
		err = watch__never(skel->maps.watched);
	if (!err && only == TRACEPOINTS_ALL)
		probes->skel = skel;
	else
		copyscope__destroy(skel);
	return err;
}

/* After the kernel refused a program, load one program at a time to find out which program it refused. */
static void find_refused(struct probes *probes)
{
	int err = load(probes, TRACEPOINTS_ALL, FUNCTIONS_NONE);

	if (!err)
		unload(probes);
	for (int i = 0; err && i < HOOK_CNT; i++) {
		int refused = probes->hooks[i].state == STATE_READY ? load(probes, i, FUNCTIONS_NONE) : 0;

		if (refused)
			tracepoints__refuse(probes->hooks, i, "load", refused);
	}
	if (load(probes, TRACEPOINTS_NONE, FUNCTIONS_READ_COST))
		functions__refuse_read_cost(probes->functions);
	for (int row = functions__next(probes->functions, 0); row >= 0; row = functions__next(probes->functions, row)) {
		err = load(probes, TRACEPOINTS_NONE, row);
		if (err)
			functions__refuse(probes->functions, row, err);
		else
			row++;
	}
}

static int load_what_works(struct probes *probes)
{
	int row = functions__next(probes->functions, 0), err;

	/*
	 * A security policy that refuses one function refuses all (EPERM). Loading a single one shows that sooner
	 * than loading all.
	 */
	if (row >= 0 && load(probes, TRACEPOINTS_NONE, row) == -EPERM)
		functions__refuse(probes->functions, row, -EPERM);
	err = load(probes, TRACEPOINTS_ALL, FUNCTIONS_ALL);
	if (err && err != -ENOMEM && probes->stores_at_sockets) {
		probes->stores_at_sockets = false;
		err = load(probes, TRACEPOINTS_ALL, FUNCTIONS_ALL);
	}
	if (!err || err == -ENOMEM)
		return err;
	find_refused(probes);
	return load(probes, TRACEPOINTS_ALL, FUNCTIONS_ALL);
}

/* Some kernels load programs that they refuse to attach. Each row can fail at most three times. */
static int load_what_attaches(struct probes *probes)
{
	int err = load_what_works(probes);

	while (!err && (tracepoints__try(probes->hooks, probes->skel) || functions__try(probes->functions))) {
		unload(probes);
		err = load_what_works(probes);
	}
	return err;
}

/* Without an iterator over sockets, their bytes are counted in a map. */
static int load_all(struct probes *probes)
{
	int err = load_what_attaches(probes);

	if (!err && probes->stores_at_sockets) {
		probes->socket_list = stored_sockets__attach(probes->skel);
		if (!probes->socket_list) {
			probes->stores_at_sockets = false;
			unload(probes);
			err = load_what_works(probes);
		}
	}
	return err ?: functions__install(probes->functions, probes->skel);
}

int probes__open(struct probes **result, bool sends_in_pieces, const struct functions_options *functions,
		 const struct watch *watch, const struct sampling *sampling)
{
	struct probes *probes = calloc(1, sizeof(*probes));
	struct btf *btf;
	int err;

	if (!probes)
		return -ENOMEM;
	probes->sends_in_pieces = sends_in_pieces;
	probes->watch = watch;
	probes->sampling = sampling;
	btf = btf__load_vmlinux_btf();
	probes->btf = btf;
	probes->stores_at_sockets = watch && btf && stored_sockets__exist(btf);
	tracepoints__find(probes->hooks, btf, functions->attach != ATTACH_NOTHING, watch);
	/* Other hooks do not count sends by program (count_by_program()). */
	if (watch && watch->mode == WATCH_ALL && !tracepoints__works(&probes->hooks[HOOK_volume_sent]))
		err = -EOPNOTSUPP;
	else
		err = functions__new(&probes->functions, btf, functions);
	btf__free(btf);
	if (!err)
		err = probes->btf ? load_all(probes) : load(probes, TRACEPOINTS_ALL, FUNCTIONS_NONE);
	if (err)
		probes__close(probes);
	else
		*result = probes;
	return err;
}

struct copyscope *probes__skeleton(struct probes *probes)
{
	return probes->skel;
}

bool probes__counts_all_taken(const struct probes *probes)
{
	return __atomic_load_n(&probes->hooks[HOOK_volume_spliced].link, __ATOMIC_ACQUIRE);
}

static int attach_one(struct probes *probes, enum hook_id id)
{
	struct hook *hook = &probes->hooks[id];

	if (hook->link)
		return 0;
	if (on_sight__waits(id, probes->hooks, probes->skel))
		return probes->on_sight ? 0 : on_sight__start(&probes->on_sight, hook, probes->skel);
	hook->link = bpf_program__attach(tracepoints__program(probes->skel, id));
	if (!hook->link)
		return -errno;
	hook->since_ns = now_ns();
	hook->state = STATE_ATTACHED;
	if (id == HOOK_volume_spliced)
		probes->skel->bss->splices_counted = 1;
	return 0;
}

int probes__attach(struct probes *probes, const char *instrument)
{
	for (int i = 0; i < HOOK_CNT; i++) {
		struct hook *hook = &probes->hooks[i];

		if (strcmp(hook_rows[i].instrument, instrument))
			continue;
		if (tracepoints__works(hook)) {
			int err = attach_one(probes, i);

			if (!err)
				continue;
			hook->state = STATE_REFUSED;
			snprintf(hook->reason, sizeof(hook->reason), "attach: %s", strerror(-err));
		}
		if (hook_rows[i].need == REQUIRED) {
			complain(hook_rows[i].tracepoint, "%s", hook->reason);
			return -ENOENT;
		}
	}
	return 0;
}

int probes__hook(struct probes *probes, bool arm)
{
	int err = 0;

	if (!probes->hooked) {
		err = functions__attach(probes->functions) ?: probes__attach(probes, FUNCTIONS_INSTRUMENT);
		probes->hooked = !err;
	}
	if (err)
		functions__detach(probes->functions);
	return err ?: arm ? functions__arm(probes->functions, probes->skel) : 0;
}

bool probes__are_hooked(const struct probes *probes)
{
	return probes->hooked;
}

/* Return the temporary link that was made last, or HOOK_CNT if there is none. */
static enum hook_id last_made(const struct probes *probes)
{
	enum hook_id last = HOOK_CNT;

	for (int i = 0; i < HOOK_CNT; i++) {
		const char *instrument = hook_rows[i].instrument;

		if (watch__keeps(instrument) || !probes->hooks[i].link ||
		    (probes->hooked && !strcmp(instrument, FUNCTIONS_INSTRUMENT)))
			continue;
		if (last == HOOK_CNT || probes->hooks[i].since_ns > probes->hooks[last].since_ns)
			last = i;
	}
	return last;
}

/*
 * Detach the last link first. When the first of several programs is removed from a tracepoint, the kernel waits until
 * no CPU runs it (tracepoint_remove_func() in kernel/tracepoint.c). This wait takes 8 ms on a busy machine, and the
 * other hooks stay attached meanwhile.
 */
static int detach_all(struct probes *probes)
{
	enum hook_id id;
	int err = 0;

	while ((id = last_made(probes)) != HOOK_CNT) {
		int failed = bpf_link__destroy(probes->hooks[id].link);

		probes->hooks[id].link = NULL;
		if (failed) {
			complain(hook_rows[id].tracepoint, "detach: %s", strerror(-failed));
			err = failed;
		}
	}
	return err;
}

int probes__detach(struct probes *probes)
{
	int err = detach_all(probes);

	/* Threads may be inside a call when the hooks are detached: discard their state. */
	err = maps__clear(probes->skel->maps.clocks) ?: err;
	probes->skel->bss->open_clocks = 0;
	err = maps__clear(probes->skel->maps.sending_tasks) ?: err;
	return functions__disarm(probes->functions, probes->skel) ?: err;
}

json_t *probes__sockets_json(const struct probes *probes)
{
	return watch__sockets_json(probes->skel, probes->socket_list);
}

json_t *probes__hooks_json(const struct probes *probes)
{
	json_t *array = json_array();

	for (int i = 0; i < HOOK_CNT; i++) {
		const struct hook *hook = &probes->hooks[i];
		enum attach_state state;

		if (!probes->watch && tracepoints__only_watch(hook_rows[i].instrument))
			continue;
		state = __atomic_load_n(&hook->state, __ATOMIC_ACQUIRE);
		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", hook_rows[i].id, "instrument", hook_rows[i].instrument,
						       "symbol", hook_rows[i].tracepoint, "state", state_names[state],
						       "how", tracepoints__works(hook) ? "tp_btf" : NULL,
						       "reason", tracepoints__works(hook) ? NULL : hook->reason,
						       "required", hook_rows[i].need == REQUIRED));
	}
	functions__add_hooks(probes->functions, array);
	return array;
}

int probes__gate_functions(struct probes *probes, unsigned int one_in)
{
	return functions__gate(probes->functions, probes->skel, one_in);
}

json_t *probes__functions_json(const struct probes *probes)
{
	return functions__json(probes->functions, probes->skel);
}

json_t *probes__loss_json(const struct probes *probes)
{
	json_t *loss = json_object();
	unsigned int unread;
	int err;

	for (int loss_id = 0; loss_id < LOSS_CNT; loss_id++)
		json_object_set_new(loss, loss_names[loss_id],
				    json_integer(probes->skel->bss->lost[loss_id] + probes->sampling->bss->lost[loss_id]));
	for (int i = 0; i < HOOK_CNT; i++)
		attach__add_recursion(loss, hook_rows[i].id, tracepoints__program(probes->skel, i));
	functions__add_losses(probes->functions, loss);
	unread = maps__unread(&err);
	if (unread)
		complain("report", "%u counters could not be read and are missing: %s", unread, strerror(-err));
	json_object_set_new(loss, "cells_unread", json_integer(unread));
	return loss;
}

void probes__close(struct probes *probes)
{
	if (!probes)
		return;
	on_sight__stop(probes->on_sight);
	for (int i = 0; i < HOOK_CNT; i++)
		bpf_link__destroy(probes->hooks[i].link);
	bpf_link__destroy(probes->socket_list);
	functions__free(probes->functions);
	copyscope__destroy(probes->skel);
	free(probes);
}
