// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control.h"
#include "option_table.h"
#include "options.h"
#include "preflight.h"
#include "receiver.h"
#include "sender.h"
#include "strategy.h"

static const char usage[] =
	"traffic: send bytes over TCP by different methods, and count calls, bytes and times\n"
	"\n"
	"  traffic send --impl NAME [options]   listen, and send messages to each receiver that connects\n"
	"  traffic recv --port P [options]      connect to a sender, and read its messages\n"
	"  traffic list                         print the strategies as JSON\n"
	"  traffic options --json               print the options of send and recv as JSON\n"
	"\n"
	"Results are JSON on stdout. `traffic send --help` and `traffic recv --help` explain the options.\n"
	"To try the program on one machine, use two terminals:\n"
	"\n"
	"  traffic send --impl one_copy --port 7000 --duration 3\n"
	"  traffic recv --port 7000\n";

/* Implement --check: print the resolved options if this machine can run them, and send nothing. */
static int print_options(const struct options *options)
{
	struct failure failure = { "" };
	int err = preflight__check(options, &failure);

	if (err) {
		fprintf(stderr, "traffic %s: %s\n", role_names[options->role], failure.text);
		return err == -EINVAL ? EXIT_USAGE : EXIT_CANNOT;
	}
	control__emit(options__json(options));
	return 0;
}

static int run_send(int argc, char **argv)
{
	struct options options;

	options__parse(&options, ROLE_SEND, argc, argv);
	return options.check ? print_options(&options) : sender__run(&options);
}

static int run_recv(int argc, char **argv)
{
	struct options options;

	options__parse(&options, ROLE_RECV, argc, argv);
	return options.check ? print_options(&options) : receiver__run(&options);
}

static int run_list(int argc, char **argv)
{
	json_t *list;

	if (argc > 1) {
		fprintf(stderr, "traffic list: unexpected argument '%s'; list takes no argument\n", argv[1]);
		return EXIT_USAGE;
	}
	list = json_array();
	for (const struct strategy *const *strategy = strategies; *strategy; strategy++) {
		const struct strategy_claim *claim = &(*strategy)->claim;
		json_t *aliases = json_array();

		for (const char *const *alias = (*strategy)->aliases; alias && *alias; alias++)
			json_array_append_new(aliases, json_string(*alias));
		json_array_append_new(list, json_pack("{s:s, s:o, s:{s:i, s:i}, s:b, s:b, s:s}",
			"name", (*strategy)->name, "aliases", aliases, "claim",
			"user_copies", claim->user_copies, "kernel_copies", claim->kernel_copies,
			"async", (*strategy)->reap != NULL, "in_ring", (*strategy)->in_ring, "what", claim->what));
	}
	control__emit(list);
	return 0;
}

static int run_options(int argc, char **argv)
{
	if (argc != 2 || strcmp(argv[1], "--json")) {
		fprintf(stderr, "traffic options: wrong arguments; use traffic options --json, or traffic send --help\n");
		return EXIT_USAGE;
	}
	/* Print a JSON array with one row per line, because diff compares the array with its committed copy. */
	for (const struct option_row *row = option_rows; row->name; row++) {
		putchar(row == option_rows ? '[' : ',');
		control__emit(option_row__json(row));
	}
	puts("]");
	return 0;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "send", run_send }, { "recv", run_recv }, { "list", run_list }, { "options", run_options },
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		fputs(usage, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof(subcommands) / sizeof(*subcommands); i++)
		if (!strcmp(subcommands[i].name, name))
			return subcommands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "traffic: unknown subcommand '%s'; use send, recv, list, options or --help\n", name);
	return EXIT_USAGE;
}
