# SPDX-License-Identifier: GPL-2.0-only
"""Run traffic or a command in a simulated machine: an unmodified kernel in QEMU, with modelled caches."""
