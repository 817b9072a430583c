# SPDX-License-Identifier: GPL-2.0-only
"""Callback plugins for ansible: ansible-core loads them by path and informs them about each host."""
