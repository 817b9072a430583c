// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define WAYS_MAX 4096u
#define SIZE_MAX_BYTES (4ull << 30)

const char *const ddio_names[DDIO_CNT] = { [DDIO_UNSEEN] = "unseen", [DDIO_OFF] = "off", [DDIO_ON] = "on" };

__attribute__((format(printf, 2, 3)))
static int refuse(char *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, MODEL_ERROR_BYTES, format, args);
	va_end(args);
	return -EINVAL;
}

/* A whole number, with K or M behind it. Where it ends, or NULL. */
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

/* SIZE:WAYS, up to the end of the text or to a slash. Where it ends, or NULL. */
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

static int take_cache(struct cache_shape *shape, const char *name, const char *value, char *error)
{
	const char *end = read_shape(value, shape);

	if (!end || *end)
		return refuse(error, "%s: '%s': not SIZE:WAYS, at most 4096M and %u ways: as in 32K:8", name, value,
			      WAYS_MAX);
	return 0;
}

static int take_tlb(struct tlb_shape *shape, const char *value, char *error)
{
	struct cache_shape *const levels[] = { &shape->small, &shape->huge, &shape->second };
	const char *at = value;

	for (size_t i = 0; i < 3; i++) {
		at = read_shape(at, levels[i]);
		if (!at || *at != (i < 2 ? '/' : '\0'))
			return refuse(error, "tlb: '%s': not ENTRIES:WAYS/ENTRIES:WAYS/ENTRIES:WAYS: as in "
				      "64:4/32:4/2048:16", value);
		at++;
		if (!levels[i]->ways || levels[i]->size_bytes % levels[i]->ways)
			return refuse(error, "tlb: '%s': entries are not a multiple of their ways", value);
	}
	return 0;
}

static int take_choice(bool *second, const char *name, const char *value, const char *const names[2], char *error)
{
	*second = !strcmp(value, names[1]);
	if (!*second && strcmp(value, names[0]))
		return refuse(error, "%s: '%s': use %s or %s", name, value, names[0], names[1]);
	return 0;
}

static int take_ddio(enum ddio *ddio, const char *value, char *error)
{
	for (unsigned int i = 0; i < DDIO_CNT; i++)
		if (!strcmp(value, ddio_names[i])) {
			*ddio = i;
			return 0;
		}
	return refuse(error, "ddio: '%s': use unseen, off or on", value);
}

static int take_count(unsigned int *count, const char *name, const char *value, unsigned int least, unsigned int most,
		      char *error)
{
	uint64_t number;
	const char *end = read_number(value, &number);

	if (!end || *end || number < least || number > most)
		return refuse(error, "%s: '%s': not a number from %u to %u", name, value, least, most);
	*count = number;
	return 0;
}

static int take_periods(struct model *model, const char *value, char *error)
{
	const char *at = value;

	for (model->timed = 0; at && model->timed < TIMED_MAX; at++) {
		uint64_t period_ns;

		at = read_number(at, &period_ns);
		if (!at || !period_ns || period_ns > UINT32_MAX)
			break;
		model->periods_ns[model->timed++] = period_ns;
		if (!*at)
			return 0;
		if (*at != '/')
			break;
	}
	return refuse(error, "timers: '%s': not NS/NS/..., one for each measurement, at most %d", value, TIMED_MAX);
}

static int take(struct model *model, const char *name, const char *value, char *error)
{
	static const char *const inclusions[] = { "inclusive", "victim" }, *const prefetchers[] = { "off", "next" };
	struct hierarchy_shape *caches = &model->caches;

	if (!strcmp(name, "out")) {
		model->out = value;
		return 0;
	}
	if (!strcmp(name, "symbols")) {
		if (model->symbol_files == SYMBOL_FILES_MAX)
			return refuse(error, "symbols: more than %d files", SYMBOL_FILES_MAX);
		model->symbols[model->symbol_files++] = value;
		return 0;
	}
	if (!strcmp(name, "timers"))
		return take_periods(model, value, error);
	if (!strcmp(name, "l1d"))
		return take_cache(&caches->l1d, name, value, error);
	if (!strcmp(name, "l2"))
		return take_cache(&caches->l2, name, value, error);
	if (!strcmp(name, "llc"))
		return take_cache(&caches->llc, name, value, error);
	if (!strcmp(name, "line"))
		return take_count(&caches->line_bytes, name, value, 16, 256, error);
	if (!strcmp(name, "vcpus"))
		return take_count(&caches->cores, name, value, 1, CORES_MAX, error);
	if (!strcmp(name, "inclusion"))
		return take_choice(&caches->victim, name, value, inclusions, error);
	if (!strcmp(name, "prefetch"))
		return take_choice(&caches->prefetch_next, name, value, prefetchers, error);
	if (!strcmp(name, "tlb"))
		return take_tlb(&model->tlb, value, error);
	if (!strcmp(name, "ddio"))
		return take_ddio(&model->ddio, value, error);
	return refuse(error, "%s: unknown option: use out, symbols, l1d, l2, llc, line, vcpus, inclusion, prefetch, tlb, "
		      "ddio, timers", name);
}

static int check(const struct model *model, char *error)
{
	const struct hierarchy_shape *caches = &model->caches;
	const struct {
		const char *name;
		const struct cache_shape *shape;
	} levels[] = { { "l1d", &caches->l1d }, { "l2", &caches->l2 }, { "llc", &caches->llc } };

	if (!model->out)
		return refuse(error, "out: missing: name the file to write");
	if (!model->symbol_files)
		return refuse(error, "symbols: missing: name a file like /proc/kallsyms of the guest");
	if (caches->line_bytes & (caches->line_bytes - 1))
		return refuse(error, "line: %u: not a power of 2", caches->line_bytes);
	for (size_t i = 0; i < 3; i++) {
		uint64_t row = (uint64_t)levels[i].shape->ways * caches->line_bytes;

		if (!row && i < 2)
			return refuse(error, "%s: 0: only the llc may be left out", levels[i].name);
		if (row && levels[i].shape->size_bytes % row)
			return refuse(error, "%s: %llu bytes: not a multiple of %u ways of %u bytes", levels[i].name,
				      (unsigned long long)levels[i].shape->size_bytes, levels[i].shape->ways,
				      caches->line_bytes);
	}
	return 0;
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
		char name[32];
		int err;

		if (!equals || equals - argv[i] >= (int)sizeof(name))
			return refuse(error, "'%s': not NAME=VALUE", argv[i]);
		memcpy(name, argv[i], equals - argv[i]);
		name[equals - argv[i]] = '\0';
		err = take(model, name, equals + 1, error);
		if (err)
			return err;
	}
	return check(model, error);
}
