/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_MODEL_H
#define SIMULATOR_MODEL_H

#include "cache.h"
#include "tlb.h"

#define SYMBOL_FILES_MAX 4

/* What a device writes to memory is... */
enum ddio {
	DDIO_UNSEEN,		/* not known: as if it had written nothing */
	DDIO_OFF,		/* in no cache */
	DDIO_ON,		/* in the LLC */
	DDIO_CNT
};

/* All that the plugin is told. The texts are those of its arguments. */
struct model {
	struct hierarchy_shape caches;
	struct tlb_shape tlb;
	unsigned int ddio;	/* enum ddio */
	const char *shared;	/* memory that the guest reads (shared.h); NULL: none */
	int bells[CORES_MAX];
	const char *out;
	const char *symbols[SYMBOL_FILES_MAX];
	unsigned int symbol_files;
};

#define MODEL_ERROR_BYTES 256

/* NAME=VALUE each, as tools/copyscope/simulate/caches.py has checked them. 0, or -EINVAL and which one is none. */
int model__parse(struct model *model, int argc, char *const *argv, char error[MODEL_ERROR_BYTES]);

#endif
