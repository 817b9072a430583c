/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_OPTION_TABLE_H
#define TRAFFIC_OPTION_TABLE_H

#include <argp.h>

#include "options.h"

enum option_type {
	TYPE_COUNT, TYPE_SIZE, TYPE_DURATION, TYPE_FLAG, TYPE_CHOICE, TYPE_TEXT, TYPE_LIST,
	TYPE_STRATEGY, TYPE_READING,	/* choices whose names are names of source files */
};

enum option_flags {
	IN_RUN = 1,		/* also an option of copyscope run, and so a factor of an experiment */
	IN_WORKLOAD = 2,	/* the value of the option is a key of a record's `workload` */
	TWICE = 4,		/* the field of the option is an array of two values, and the option may be given twice */
};

/* Requirement of an option: a member of struct strategy (options of the sender) or of struct reading that must be set. */
struct option_need {
	enum role role;
	size_t offset, bytes;	/* position of the member; 0 bytes: no requirement */
	bool unset;		/* the member must be zero instead */
	const char *reason;	/* end of a sentence that begins with the name of the strategy or reading */
	const char *use;	/* strategy or reading that the message suggests, or NULL */
};

/*
 * Row of the table of options: all facts about an option, except its effect and the checks of two options together. An option
 * that differs between sender and receiver has a row for each role; copyscope run shows the sender's row.
 */
struct option_row {
	const char *name;
	unsigned int roles;		/* set of the roles that have the option; each is a bit 1 << role */
	enum option_type type;
	size_t offset, bytes;		/* position of the option's field in struct options */
	uint64_t least, most;		/* limits of a number, in the unit of the option, or of the length of a text */
	const char *const *choices;	/* names of a choice: `most` of them */
	const char *initial;		/* default of the option, as typed; NULL: the field stays 0 */
	const char *unit;		/* placeholder of the value in the help: the unit of a number, the meaning of a text */
	const char *key;		/* JSON key of the value; NULL: the value is not printed */
	unsigned int flags;
	struct option_need need;
	const char *help;
};

#define OPTION_ROWS_MAX 64
#define CHOICES_MAX 32
#define KEY_HELP 'h'
#define KEY_FIRST_ROW 256	/* the argp key of row i is KEY_FIRST_ROW + i */

/* Table of all options; the last row has no name. */
extern const struct option_row option_rows[];

/* Fill `names` with the accepted names of a choice, and return the number of names; 0 if the option is no choice. */
unsigned int option_row__choices(const struct option_row *row, const char *names[CHOICES_MAX]);
/* Read and write the field of a number, a flag or a choice: 1 to 8 bytes. */
uint64_t option_row__load(const struct option_row *row, const struct options *options);
void option_row__store(const struct option_row *row, struct options *options, uint64_t value);
/* Return true if the chosen strategy of a sender, or the chosen reading of a receiver, accepts this option. */
bool option_row__is_taken(const struct option_row *row, const struct options *options);
/* Return the description of a row, an element of `traffic options --json`. */
json_t *option_row__json(const struct option_row *row);

/* Fill `rows` with the argp options of one subcommand; an empty row closes them. */
void option_table__select(enum role role, struct argp_option rows[OPTION_ROWS_MAX]);
const char *option_table__doc(enum role role);
/* Help filter of argp: return the help of an option with its default appended. */
char *option_table__help(int key, const char *text, void *input);
/* Return 0 if every --name is an option, or an unambiguous abbreviation of an option, else -EINVAL. */
int option_table__check_names(const struct argp_option *rows, int argc, char **argv,
			      struct failure *failure);

#endif
