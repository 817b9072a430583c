/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_MODEL_H
#define SIMULATOR_MODEL_H

#include "cache.h"
#include "tlb.h"

#define SYMBOL_FILES_MAX 4

/* Effect of a device's write to memory on the caches. */
enum ddio {
	DDIO_UNSEEN,		/* unknown: treated as if the device had written nothing */
	DDIO_OFF,		/* lines are in no cache */
	DDIO_ON,		/* lines are in the LLC */
	DDIO_CNT
};

/* All settings of the plugin. The strings point into its arguments. */
struct model {
	struct hierarchy_shape caches;
	struct tlb_shape tlb;
	unsigned int ddio;	/* enum ddio */
	const char *shared;	/* file of the memory that the guest reads (shared.h); NULL: none */
	int bells[CORES_MAX];
	const char *out;
	const char *symbols[SYMBOL_FILES_MAX];
	unsigned int symbol_files;
};

#define MODEL_ERROR_BYTES 256

/*
 * Parse NAME=VALUE arguments, as checked by tools/copyscope/run/simulate/caches.py. Return 0, or -EINVAL and an error
 * that names the invalid argument.
 */
int model__parse(struct model *model, int argc, char *const *argv, char error[MODEL_ERROR_BYTES]);

#endif
