// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "channel.h"
#include "symbols.h"

#define CHUNK_BYTES (64u << 10)

static char chunk[CHUNK_BYTES];
static size_t used;

static void flush(void)
{
	channel__symbols(chunk, used);
	used = 0;
}

static void add(const char *line)
{
	size_t length = strlen(line);

	if (used + length > sizeof(chunk))
		flush();
	memcpy(chunk + used, line, length);
	used += length;
}

/* Write the lines of a file in the format of /proc/kallsyms: only lines of the kernel's own functions, or all lines. */
static void write_file(const char *path, bool kernel_only)
{
	FILE *all = fopen(path, "r");
	char line[1024], type;

	if (!all)
		channel__fail("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), all))
		if (!kernel_only || (sscanf(line, "%*s %c", &type) == 1 && strchr("tTwW", type) && !strchr(line, '[')))
			add(line);
	fclose(all);
	flush();
}

void symbols__write_kernel(void)
{
	write_file("/proc/kallsyms", true);
}

void symbols__write_file(const char *path)
{
	write_file(path, false);
}

static unsigned long long section_address(const char *module, const char *section)
{
	unsigned long long address = 0;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/module/%s/sections/%s", module, section);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%llx", &address) != 1)
		address = 0;
	fclose(file);
	return address;
}

void symbols__write_module(const char *module)
{
	char path[256], line[512], last_section[64] = "", section[64], name[256];
	unsigned long long base = 0, offset;
	FILE *all;

	snprintf(path, sizeof(path), "/modules/%s.symbols", module);
	all = fopen(path, "r");
	if (!all)
		channel__fail("%s: %s", path, strerror(errno));
	while (fscanf(all, "%63s %llx %255s", section, &offset, name) == 3) {
		if (strcmp(section, last_section)) {
			base = section_address(module, section);
			strcpy(last_section, section);
		}
		/* The kernel has discarded sections that it needs only while it loads a module. */
		if (!base)
			continue;
		snprintf(line, sizeof(line), "%016llx t %s [%s]\n", base + offset, name, module);
		add(line);
	}
	fclose(all);
	flush();
}
