/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_REPORT_H
#define SIMULATOR_REPORT_H

#include <stdio.h>

#include "machine.h"

/* One measurement as one line of JSON, flushed. 0 or -errno. */
int report__write(FILE *out, unsigned int number, const struct machine *machine);
/* The last line: what is before it is whole. */
int report__end(FILE *out, unsigned int measurements);
/* Instead of a measurement. */
void report__error(FILE *out, const char *thing, const char *cause);

#endif
