/* SPDX-License-Identifier: GPL-2.0-only */
/* tracepoints.h - the rows of HOOKS in bpf/hooks.h, and the subset that this kernel has. */
#ifndef COPYSCOPE_TRACEPOINTS_H
#define COPYSCOPE_TRACEPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "attach.h"
#include "hooks.h"

struct bpf_link;
struct bpf_program;
struct btf;
struct copyscope;

enum need { REQUIRED, OPTIONAL, OWN_TRAFFIC, FALLBACK };

enum hook_id {
#define HOOK(id, instrument, tracepoint, need) HOOK_##id,
	HOOKS(HOOK)
#undef HOOK
	HOOK_CNT,
};

struct hook_row {
	const char *id;
	const char *instrument;
	const char *tracepoint;
	enum need need;
};
extern const struct hook_row hook_rows[HOOK_CNT];

struct hook {
	enum attach_state state;
	struct bpf_link *link;
	/* Time when the link was made. */
	uint64_t since_ns;
	char reason[160];
};

/*
 * Return true for instruments that are used only with watched programs; a run of our own traffic does not load them.
 */
bool tracepoints__only_watch(const char *instrument);
/*
 * Look up the tracepoints in BTF (NULL: the kernel has none). functions, watched: load the hooks of these
 * instruments.
 */
void tracepoints__find(struct hook hooks[HOOK_CNT], const struct btf *btf, bool functions, bool watched);
/* Name of the pseudo-instrument that attaches the function hooks without counting. */
#define UNARMED "unarmed"
/* Name of the pseudo-instrument that attaches the hook of spliced and mapped bytes without waiting for such a call. */
#define SPLICES "splices"
/*
 * Return true if the instrument exists in a run of our own traffic or, with `watched`, in one that watches a program.
 */
bool tracepoints__is_instrument(const char *name, bool watched);
/* Handle a hook that the kernel refused: set its fallback, if there is one, to READY. */
void tracepoints__refuse(struct hook hooks[HOOK_CNT], enum hook_id id, const char *doing, int err);
/*
 * Attach each hook with a fallback once. Return true if one was refused, so that all programs must be loaded again.
 */
bool tracepoints__try(struct hook hooks[HOOK_CNT], struct copyscope *skel);
/* Return false if it is known that the hook cannot be attached. */
bool tracepoints__works(const struct hook *hook);
struct bpf_program *tracepoints__program(struct copyscope *skel, enum hook_id id);
#define TRACEPOINTS_ALL -1
#define TRACEPOINTS_NONE -2
/* Before loading: select the READY programs (or only one of them, or none) and set the tracepoints of their rows. */
int tracepoints__prepare(const struct hook hooks[HOOK_CNT], struct copyscope *skel, int only);

#endif
