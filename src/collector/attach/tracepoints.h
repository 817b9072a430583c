/* SPDX-License-Identifier: GPL-2.0 */
/* tracepoints.h - the rows of HOOKS in bpf/hooks.h, and which of them this kernel has. */
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

enum need { REQUIRED, OPTIONAL, FALLBACK };

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
	/* When it was made. */
	uint64_t since_ns;
	char reason[160];
};

/* Whether an instrument is one of those that only watch; a run of our own traffic does not load them. */
bool tracepoints__only_watch(const char *instrument);
/* Presence, from BTF; btf NULL: there is none. functions, watched: whether their rows are wanted. */
void tracepoints__find(struct hook hooks[HOOK_CNT], const struct btf *btf, bool functions, bool watched);
/* The hooks of functions, which come but do not count. */
#define UNARMED "unarmed"
/* Whether there is such an instrument in a run of our own traffic, or in one that watches. */
bool tracepoints__is_instrument(const char *name, bool watched);
/* The kernel does not take it: its fallback is READY from here on, if it is there. */
void tracepoints__refuse(struct hook hooks[HOOK_CNT], enum hook_id id, const char *doing, int err);
/* Attaches once what has a fallback: whether any of it was refused, so that all must be loaded anew. */
bool tracepoints__try(struct hook hooks[HOOK_CNT], struct copyscope *skel);
/* It can be attached, as far as is known. */
bool tracepoints__works(const struct hook *hook);
struct bpf_program *tracepoints__program(struct copyscope *skel, enum hook_id id);
#define TRACEPOINTS_ALL -1
#define TRACEPOINTS_NONE -2
/* Before the load: what is READY (or of that only this hook, or none) is loaded, for the tracepoint that its row names. */
int tracepoints__prepare(const struct hook hooks[HOOK_CNT], struct copyscope *skel, int only);

#endif
