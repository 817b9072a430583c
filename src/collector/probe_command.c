// SPDX-License-Identifier: GPL-2.0
/* probe_command.c - collector --probe: what can be attached here, by attaching it once; --load: what is accepted. */
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "commands.h"
#include "instruments/probes.h"
#include "report/message.h"
#include "sampling/sampler.h"

int commands__probe(struct collector *collector)
{
	int err = sampler__open(&collector->sampler, collector->sampler_skel, collector->frequency_hz, collector->rosters,
				&probes__skeleton(collector->probes)->bss->packets_wanted);
	json_t *sampler = err ? json_null() : sampler__json(collector->sampler);

	probes__attach(collector->probes, "bytes");
	probes__attach(collector->probes, "calls");
	probes__attach(collector->probes, "sampler");
	probes__attach(collector->probes, "functions");
	probes__detach(collector->probes);
	return say(json_pack("{s:i, s:o, s:o, s:o}", "abi_version", ABI_VERSION,
			     "hooks", probes__hooks_json(collector->probes), "sampler", sampler,
			     "functions", probes__functions_json(collector->probes)));
}

int commands__load(struct collector *collector)
{
	return say(json_pack("{s:i, s:o}", "abi_version", ABI_VERSION,
			     "hooks", probes__hooks_json(collector->probes)));
}
