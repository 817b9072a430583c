# SPDX-License-Identifier: GPL-2.0-only
"""Modules for ansible: ansible-core loads them by path and runs them on the hosts."""
