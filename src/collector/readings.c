// SPDX-License-Identifier: GPL-2.0
#include "readings.h"

#include <copyscope.skel.h>
#include <sampling.skel.h>

#include "commands.h"
#include "instruments/probes.h"
#include "instruments/watch.h"
#include "kernel/clock.h"
#include "report/cells.h"
#include "report/maps.h"
#include "report/message.h"
#include "sampling/bursts.h"
#include "sampling/sampler.h"
#include "sampling/stacks.h"

json_t *readings__volume_json(struct collector *collector)
{
	json_t *volume = watch__json(probes__skeleton(collector->probes));

	json_object_set_new(volume, "counts_taken", json_boolean(probes__counts_all_taken(collector->probes)));
	json_object_set_new(volume, "t_ns", json_integer(now_ns()));
	return volume;
}

/* What the watched program moved so far, and when that was read. */
int readings__volume(struct collector *collector, const char *arguments)
{
	json_t *volume = readings__volume_json(collector);

	(void)arguments;
	json_object_set_new(volume, "event", json_string("volume"));
	return say(volume);
}

int readings__sockets(struct collector *collector, const char *arguments)
{
	(void)arguments;
	return say(json_pack("{s:s, s:o, s:o, s:b}", "event", "sockets",
			     "sockets", watch__sockets_json(probes__skeleton(collector->probes)),
			     "peers", watch__peers_json(probes__skeleton(collector->probes)),
			     "counts_taken", probes__counts_all_taken(collector->probes)));
}

static json_t *samples_json(struct collector *collector, bool news)
{
	double scales[SIDES] = {};

	for (int side = 0; collector->sampler && side < SIDES; side++)
		scales[side] = sampler__scale(collector->sampler, side);
	if (!collector->ksyms)
		return json_array();
	return stacks__json(collector->stacks, collector->ksyms, scales, news);
}

/* After all else was read: a count that could not be is a loss. */
static json_t *losses(const struct collector *collector)
{
	json_t *loss = probes__loss_json(collector->probes, collector->sampler_skel->bss->lost);
	int err;
	unsigned int unread = maps__unread(&err), lost = 0;

	if (unread)
		complain("report", "%u counts could not be read and are missing: %s", unread, strerror(-err));
	json_object_set_new(loss, "cells_unread", json_integer(unread));
	for (int side = 0; side < SIDE_TARGETS; side++)
		lost += collector->targets[side].lost;
	json_object_set_new(loss, "samples_threads_untimed", sampler__loss_json(collector->sampler, lost));
	return loss;
}

/* For a live view: what the segments sampled that were closed since it asked last. */
int readings__samples(struct collector *collector, const char *arguments)
{
	(void)arguments;
	return say(json_pack("{s:s, s:o, s:o}", "event", "samples", "samples", samples_json(collector, true), "loss",
			     losses(collector)));
}

/* What function hooks counted so far. */
int readings__functions(struct collector *collector, const char *arguments)
{
	(void)arguments;
	return say(json_pack("{s:s, s:o}", "event", "functions", "functions", probes__functions_json(collector->probes)));
}

int readings__report(struct collector *collector, const char *arguments)
{
	json_t *sampler = collector->sampler ? sampler__json(collector->sampler) : json_null();
	struct copyscope *skel = probes__skeleton(collector->probes);

	json_t *report;

	(void)arguments;
	report = json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "event", "report", "abi_version", ABI_VERSION,
			   "hooks", probes__hooks_json(collector->probes), "sampler", sampler,
			   "samples", samples_json(collector, false), "bytes", cells__bytes_json(skel),
			   "calls", cells__calls_json(skel),
			   "functions", probes__functions_json(collector->probes));
	json_object_set_new(report, "loss", losses(collector));
	return say(report);
}

