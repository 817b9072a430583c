// SPDX-License-Identifier: GPL-2.0
#include "probes.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "functions.h"
#include "hooks.h"
#include "message.h"
#include "names.h"
#include "recursion.h"
#include "shape.h"
#include "watch.h"

enum need { REQUIRED, OPTIONAL, FALLBACK };

enum hook_id {
#define HOOK(id, instrument, tracepoint, need) HOOK_##id,
	HOOKS(HOOK)
#undef HOOK
	HOOK_CNT,
};

static const struct hook_row {
	const char *id;
	const char *instrument;
	const char *tracepoint;
	enum need need;
} hook_rows[HOOK_CNT] = {
#define HOOK(id, instrument, tracepoint, need) { #id, #instrument, #tracepoint, need },
	HOOKS(HOOK)
#undef HOOK
};

struct hook {
	enum attach_state state;
	struct bpf_link *link;
	char reason[160];
};

struct probes {
	struct copyscope *skel;
	struct hook hooks[HOOK_CNT];
	struct functions *functions;
	unsigned int time_one_in;
	const struct watch *watch;
};

static struct bpf_program *program_of(struct copyscope *skel, enum hook_id id)
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

/* Presence, from BTF. A FALLBACK row is wanted only where the row before it is missing. */
static void find_tracepoints(struct probes *probes, const struct btf *btf, int err, bool functions)
{
	for (int i = 0; i < HOOK_CNT; i++) {
		const struct hook_row *row = &hook_rows[i];
		struct hook *hook = &probes->hooks[i];
		char type[96];

		if (!btf) {
			hook->state = STATE_MISSING;
			snprintf(hook->reason, sizeof(hook->reason),
				 "/sys/kernel/btf/vmlinux: %s: this kernel has no BTF; the sampler still works: "
				 "--instruments sampler", strerror(-err));
			continue;
		}
		if ((!functions && !strcmp(row->instrument, "functions")) ||
		    (!probes->watch && watch__owns(row->instrument))) {
			hook->state = STATE_UNUSED;
			snprintf(hook->reason, sizeof(hook->reason), "not asked for");
			continue;
		}
		if (row->need == FALLBACK && probes->hooks[i - 1].state == STATE_READY) {
			hook->state = STATE_UNUSED;
			snprintf(hook->reason, sizeof(hook->reason), "%s is better and present",
				 hook_rows[i - 1].tracepoint);
			continue;
		}
		snprintf(type, sizeof(type), "btf_trace_%s", row->tracepoint);
		if (btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF) > 0) {
			hook->state = STATE_READY;
			continue;
		}
		hook->state = STATE_MISSING;
		snprintf(hook->reason, sizeof(hook->reason), "no such tracepoint in this kernel");
	}
}

/* What to load: everything that is READY, or one hook, or one function. */
#define ALL -1
#define NOTHING -2

static void drop(struct probes *probes)
{
	copyscope__destroy(probes->skel);
	probes->skel = NULL;
}

static int load(struct probes *probes, int only, int only_function, bool sampler)
{
	struct copyscope *skel = copyscope__open();
	int err;

	if (!skel)
		return -errno;
	for (int i = 0; i < HOOK_CNT; i++)
		bpf_program__set_autoload(program_of(skel, i), probes->hooks[i].state == STATE_READY &&
							       (only == ALL || only == i));
	err = functions__prepare(probes->functions, skel, only_function);
	bpf_program__set_autoload(skel->progs.on_cpu_clock, sampler);
	bpf_program__set_autoload(skel->progs.on_cpu_clock_elsewhere, sampler);
	bpf_program__set_autoload(skel->progs.on_cycles, sampler);
	bpf_program__set_autoload(skel->progs.on_llc_load_misses, sampler);
	bpf_program__set_autoload(skel->progs.on_l1d_load_misses, sampler);
	names__fill_calls(skel->rodata->call_of_nr, probes->watch);
	watch__configure(probes->watch, skel);
	skel->rodata->time_one_in = probes->time_one_in;
	err = err ?: copyscope__load(skel);
	if (!err && only == ALL)
		probes->skel = skel;
	else
		copyscope__destroy(skel);
	return err;
}

/* Something was refused: find out what, one program at a time. */
static void find_refused(struct probes *probes)
{
	int err = load(probes, ALL, FUNCTIONS_NONE, true);

	if (!err)
		drop(probes);
	for (int i = 0; err && i < HOOK_CNT; i++) {
		struct hook *hook = &probes->hooks[i];
		int refused = hook->state == STATE_READY ? load(probes, i, FUNCTIONS_NONE, false) : 0;

		if (!refused)
			continue;
		hook->state = STATE_REFUSED;
		snprintf(hook->reason, sizeof(hook->reason), "load: %s", strerror(-refused));
	}
	if (load(probes, NOTHING, FUNCTIONS_READ_COST, false))
		functions__refuse_read_cost(probes->functions);
	for (int row = functions__next(probes->functions, 0); row >= 0; row = functions__next(probes->functions, row)) {
		err = load(probes, NOTHING, row, false);
		if (err)
			functions__refuse(probes->functions, row, err);
		else
			row++;
	}
}

static int load_what_works(struct probes *probes)
{
	int err = load(probes, ALL, FUNCTIONS_ALL, true);

	if (!err || err == -ENOMEM)
		return err;
	find_refused(probes);
	return load(probes, ALL, FUNCTIONS_ALL, true);
}

int probes__open(struct probes **result, unsigned int time_one_in, const struct functions_options *functions,
		 const struct watch *watch)
{
	struct probes *probes = calloc(1, sizeof(*probes));
	struct btf *btf;
	int err;

	if (!probes)
		return -ENOMEM;
	probes->time_one_in = time_one_in;
	probes->watch = watch;
	btf = btf__load_vmlinux_btf();
	find_tracepoints(probes, btf, btf ? 0 : -errno, functions->attach != ATTACH_NOTHING);
	err = functions__new(&probes->functions, btf, functions);
	btf__free(btf);
	err = err ?: load_what_works(probes);
	/* Some kernels load what they do not attach; each row has at most two ways to fail. */
	while (!err && functions__try(probes->functions, probes->skel)) {
		drop(probes);
		err = load_what_works(probes);
	}
	err = err ?: functions__install(probes->functions, probes->skel);
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

void probes__target(struct probes *probes, enum side side, pid_t tgid)
{
	probes->skel->bss->target_tgid[side] = tgid;
}

int probes__attach(struct probes *probes, const char *instrument)
{
	int err = strcmp(instrument, "functions") ? 0 : functions__attach(probes->functions, probes->skel);

	if (err)
		return err;
	for (int i = 0; i < HOOK_CNT; i++) {
		struct hook *hook = &probes->hooks[i];

		if (strcmp(hook_rows[i].instrument, instrument))
			continue;
		if (hook->state == STATE_READY || hook->state == STATE_ATTACHED) {
			hook->link = bpf_program__attach(program_of(probes->skel, i));
			if (hook->link) {
				hook->state = STATE_ATTACHED;
				continue;
			}
			hook->state = STATE_REFUSED;
			snprintf(hook->reason, sizeof(hook->reason), "attach: %s", strerror(errno));
		}
		if (hook_rows[i].need == REQUIRED) {
			complain(hook_rows[i].tracepoint, "%s", hook->reason);
			return -ENOENT;
		}
	}
	return 0;
}

int probes__detach(struct probes *probes)
{
	struct task_clock clock;
	__u32 tid;
	int err = 0;

	for (int i = 0; i < HOOK_CNT; i++) {
		int failed;

		if (!strcmp(hook_rows[i].instrument, "watch"))
			continue;
		failed = bpf_link__destroy(probes->hooks[i].link);

		probes->hooks[i].link = NULL;
		if (failed) {
			complain(hook_rows[i].tracepoint, "detach: %s", strerror(-failed));
			err = failed;
		}
	}
	while (!bpf_map_get_next_key(bpf_map__fd(probes->skel->maps.clocks), NULL, &tid))
		bpf_map_lookup_and_delete_elem(bpf_map__fd(probes->skel->maps.clocks), &tid, &clock);
	probes->skel->bss->open_clocks = 0;
	shape__forget(probes->skel);
	return functions__detach(probes->functions, probes->skel) ?: err;
}

json_t *probes__hooks_json(const struct probes *probes)
{
	json_t *array = json_array();

	for (int i = 0; i < HOOK_CNT; i++) {
		const struct hook *hook = &probes->hooks[i];
		bool works = hook->state == STATE_READY || hook->state == STATE_ATTACHED;

		if (!probes->watch && watch__owns(hook_rows[i].instrument))
			continue;
		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", hook_rows[i].id,
						       "instrument", hook_rows[i].instrument,
						       "symbol", hook_rows[i].tracepoint,
						       "state", state_names[hook->state],
						       "how", works ? "tp_btf" : NULL,
						       "reason", works ? NULL : hook->reason,
						       "required", hook_rows[i].need == REQUIRED));
	}
	functions__add_hooks(probes->functions, array);
	return array;
}

json_t *probes__functions_json(const struct probes *probes)
{
	return functions__json(probes->functions, probes->skel);
}

json_t *probes__loss_json(const struct probes *probes)
{
	json_t *loss = json_object();

	for (int what = 0; what < LOSS_CNT; what++)
		json_object_set_new(loss, loss_names[what],
				    json_integer(probes->skel->bss->lost[what]));
	for (int i = 0; i < HOOK_CNT; i++)
		recursion__add(loss, hook_rows[i].id, program_of(probes->skel, i));
	functions__add_losses(probes->functions, probes->skel, loss);
	return loss;
}

void probes__close(struct probes *probes)
{
	if (!probes)
		return;
	for (int i = 0; i < HOOK_CNT; i++)
		bpf_link__destroy(probes->hooks[i].link);
	functions__free(probes->functions);
	copyscope__destroy(probes->skel);
	free(probes);
}
