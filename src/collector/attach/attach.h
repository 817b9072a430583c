/* SPDX-License-Identifier: GPL-2.0 */
/* attach.h - hooking one kernel function: by fentry and fexit, kprobe.multi, or kprobe and kretprobe; or at its calls. */
#ifndef COLLECTOR_ATTACH_H
#define COLLECTOR_ATTACH_H

#include <stdbool.h>

#include <jansson.h>
#include <linux/types.h>

#include "call_sites.h"

struct bpf_link;
struct bpf_program;
struct btf;
struct ksyms;

/* In the order in which they are tried. */
enum attach_way { WAY_FENTRY, WAY_MULTI, WAY_KPROBE };
#define WAY_CNT (WAY_KPROBE + 1)

/* By which of them functions may be hooked, one bit each. */
enum attach_wish {
	ATTACH_NOTHING,
	ATTACH_FENTRY = 1 << WAY_FENTRY,
	ATTACH_MULTI = 1 << WAY_MULTI,
	ATTACH_KPROBE = 1 << WAY_KPROBE,
	ATTACH_ANY = ATTACH_FENTRY | ATTACH_MULTI | ATTACH_KPROBE,
};

enum attach_state {
	STATE_UNUSED,
	STATE_READY,
	STATE_ATTACHED,
	STATE_MISSING,
	STATE_REFUSED,
};
#define STATE_CNT (STATE_REFUSED + 1)
extern const char *const state_names[STATE_CNT];

#define NO_BTF "/sys/kernel/btf/vmlinux: missing: this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"

/* One function; zero-initialised it is unused. */
struct attach {
	enum attach_state state;
	char symbol[SYMBOL_MAX];
	char reason[224];
	enum attach_way way;
	/* What is left to try when the kernel refuses that one, one bit each. */
	unsigned int next;
	/* Not itself, but the instructions that call it and those after them: by kprobe. 0 for a function that is hooked. */
	int sites_cnt;
	struct call_site sites[CALL_SITES_MAX];
	/* What it has by BTF. */
	unsigned int arguments;
	/* NULL, or why there is nothing else to try. */
	const char *no_kprobes;
	struct bpf_program *enter, *leave;
	struct bpf_link *links[2 * CALL_SITES_MAX];
	int links_cnt;
};

/* What this kernel has, looked up once. */
struct attach_sources {
	const struct btf *btf;
	const struct ksyms *ksyms;
	/* NULL, or why there are no kprobes. */
	const char *no_kprobes;
	/* There is kprobe.multi. */
	bool multi;
};

void attach__look(struct attach_sources *sources, const struct btf *btf);

/* It can be attached, as far as is known. */
static inline bool attach__works(const struct attach *attach)
{
	return attach->state == STATE_READY || attach->state == STATE_ATTACHED;
}

/* The program's ctx are registers, not arguments. */
static inline bool attach__is_probed(const struct attach *attach)
{
	return attach->way != WAY_FENTRY;
}

/*
 * READY with the first of the candidates (a|b|c) that can be hooked as wished; else, or if its arguments are others (hooks.h),
 * MISSING with the reason.
 */
void attach__find(struct attach *attach, const char *candidates, const char *arguments,
		  const struct attach_sources *sources, enum attach_wish wish);
/* READY with the calls in `callers` to one of `callees` (a|b|c); else MISSING with the reason. */
void attach__find_calls(struct attach *attach, const char *callers, const char *callees, const char *arguments,
			const struct attach_sources *sources);
#define NOT_ASKED_FOR "not asked for"
#define NOTHING_PASSES "none of this traffic's bytes pass it"
/* UNUSED, and not looked for; `why` is one of these. */
void attach__leave(struct attach *attach, const char *candidates, const char *why);
/* The way that a READY one is hooked, as the record calls it. */
const char *attach__how(const struct attach *attach);
/* Before load. NULL for an end of the function that is not hooked. Returns 0 or -errno. */
int attach__prepare(struct attach *attach, struct bpf_program *enter, struct bpf_program *leave);
/* What an error of the kernel that refused a program means. */
const char *attach__why(int err);
/* The kernel did not take it (doing: "load: ", "attach: "): the next way (still READY), or REFUSED. */
void attach__refuse(struct attach *attach, const char *doing, int err);
/* Both ends or none. Returns 0 or -errno. */
int attach__attach(struct attach *attach);
int attach__detach(struct attach *attach);

/*
 * How often the kernel did not call a program. Sets loss["recursion_<id>"]: runs that it skipped because the program ran on this
 * CPU already, or {"count": null, "reason"} where it does not say. Nothing for a program that is not loaded.
 */
void attach__add_recursion(json_t *loss, const char *id, const struct bpf_program *program);
/* The same of both ends of a function, and if they are kprobes loss["missed_<id>"], both while it is attached. */
void attach__add_misses(json_t *loss, const char *id, const struct attach *function);

#endif
