/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_REPORT_H
#define SIMULATOR_REPORT_H

#include <stdio.h>

#include "machine.h"

/* Write one measurement as one line of JSON and flush it. Return 0 or -errno. */
int report__write(FILE *out, unsigned int number, const struct machine *machine);
/* Write the last line, which shows that the file is complete. */
int report__end(FILE *out, unsigned int measurements);
/* Write an error instead of a measurement. */
void report__error(FILE *out, const char *thing, const char *cause);

#endif
