// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define WAYS_MAX 4096u
#define SIZE_MAX_BYTES (4ull << 30)

/* Parse an integer with an optional suffix K or M. Return the end of the text, or NULL. */
static const char *read_number(const char *text, uint64_t *number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return NULL;
	errno = 0;
	*number = strtoull(text, &end, 10);
	if (errno || *number > SIZE_MAX_BYTES)
		return NULL;
	if (*end == 'K' || *end == 'M')
		*number <<= *end++ == 'K' ? 10 : 20;
	return *number > SIZE_MAX_BYTES ? NULL : end;
}

/* Parse SIZE:WAYS, up to the end of the text or a slash. Return the end, or NULL. */
static const char *read_shape(const char *text, struct cache_shape *shape)
{
	uint64_t ways;

	text = read_number(text, &shape->size_bytes);
	if (!text || *text++ != ':')
		return NULL;
	text = read_number(text, &ways);
	if (!text || ways > WAYS_MAX || !ways != !shape->size_bytes)
		return NULL;
	shape->ways = ways;
	return text;
}

static bool parse_cache(struct cache_shape *shape, const char *value)
{
	const char *end = read_shape(value, shape);

	return end && !*end;
}

static bool parse_tlb(struct tlb_shape *shape, const char *value)
{
	struct cache_shape *const levels[] = { &shape->small, &shape->huge, &shape->second };

	for (size_t i = 0; i < 3; i++, value++) {
		value = read_shape(value, levels[i]);
		if (!value || *value != (i < 2 ? '/' : '\0') || !levels[i]->ways || levels[i]->size_bytes % levels[i]->ways)
			return false;
	}
	return true;
}

/* Parse the descriptors of the eventfds that interrupt the cores, separated by slashes: 3/4. */
static bool parse_bells(int bells[CORES_MAX], const char *value)
{
	for (unsigned int core = 0; core < CORES_MAX; core++) {
		uint64_t fd;

		value = read_number(value, &fd);
		if (!value || !fd || fd > INT_MAX)
			return false;
		bells[core] = fd;
		if (*value != '/')
			return !*value;
		value++;
	}
	return false;
}

static bool parse_count(unsigned int *count, const char *value, unsigned int least, unsigned int most)
{
	uint64_t number;
	const char *end = read_number(value, &number);

	*count = number;
	return end && !*end && number >= least && number <= most;
}

/* Set *choice to the index of the word; return false if it is not in the list. */
static bool parse_word(unsigned int *choice, const char *value, const char *const words[], unsigned int count)
{
	for (*choice = 0; *choice < count; ++*choice)
		if (!strcmp(value, words[*choice]))
			return true;
	return false;
}

static bool parse_option(struct model *model, const char *name, const char *value)
{
	static const char *const inclusions[] = { "inclusive", "victim" }, *const prefetchers[] = { "off", "next" };
	static const char *const ddios[DDIO_CNT] = { [DDIO_UNSEEN] = "unseen", [DDIO_OFF] = "off", [DDIO_ON] = "on" };
	struct hierarchy_shape *caches = &model->caches;

	if (!strcmp(name, "out")) {
		model->out = value;
		return true;
	}
	if (!strcmp(name, "shared")) {
		model->shared = value;
		return true;
	}
	if (!strcmp(name, "bells"))
		return parse_bells(model->bells, value);
	if (!strcmp(name, "symbols")) {
		if (model->symbol_files == SYMBOL_FILES_MAX)
			return false;
		model->symbols[model->symbol_files++] = value;
		return true;
	}
	if (!strcmp(name, "l1d"))
		return parse_cache(&caches->l1d, value);
	if (!strcmp(name, "l2"))
		return parse_cache(&caches->l2, value);
	if (!strcmp(name, "llc"))
		return parse_cache(&caches->llc, value);
	if (!strcmp(name, "tlb"))
		return parse_tlb(&model->tlb, value);
	if (!strcmp(name, "line"))
		return parse_count(&caches->line_bytes, value, 16, 256);
	if (!strcmp(name, "vcpus"))
		return parse_count(&caches->cores, value, 1, CORES_MAX);
	if (!strcmp(name, "inclusion"))
		return parse_word(&caches->victim, value, inclusions, 2);
	if (!strcmp(name, "prefetch"))
		return parse_word(&caches->prefetch_next, value, prefetchers, 2);
	return !strcmp(name, "ddio") && parse_word(&model->ddio, value, ddios, DDIO_CNT);
}

/* Caches must consist of complete sets of lines. Only the LLC may be absent. */
static bool is_sound(const struct hierarchy_shape *caches)
{
	const struct cache_shape *const levels[] = { &caches->l1d, &caches->l2, &caches->llc };

	if (caches->line_bytes & (caches->line_bytes - 1))
		return false;
	for (size_t i = 0; i < 3; i++) {
		uint64_t row = (uint64_t)levels[i]->ways * caches->line_bytes;

		if (row ? levels[i]->size_bytes % row : i < 2)
			return false;
	}
	return true;
}

int model__parse(struct model *model, int argc, char *const *argv, char error[MODEL_ERROR_BYTES])
{
	*model = (struct model){
		.caches = {
			.line_bytes = 64, .cores = 2,
			.l1d = { 32u << 10, 8 }, .l2 = { 1u << 20, 16 }, .llc = { 32u << 20, 16 },
		},
		.tlb = { .small = { 64, 4 }, .huge = { 32, 4 }, .second = { 2048, 16 } },
	};
	for (int i = 0; i < argc; i++) {
		const char *equals = strchr(argv[i], '=');
		char name[32] = "";

		if (equals && equals - argv[i] < (int)sizeof(name))
			memcpy(name, argv[i], equals - argv[i]);
		if (!equals || !parse_option(model, name, equals + 1)) {
			snprintf(error, MODEL_ERROR_BYTES, "%s: unknown option or invalid value", argv[i]);
			return -EINVAL;
		}
	}
	snprintf(error, MODEL_ERROR_BYTES, "%s", !is_sound(&model->caches) ? "caches: the size must be a multiple of ways times line size" :
		 "out= and symbols= are missing: name the file to write, and one with the guest's /proc/kallsyms");
	return is_sound(&model->caches) && model->out && model->symbol_files ? 0 : -EINVAL;
}
