# SPDX-License-Identifier: GPL-2.0-only
"""Run one command on many hosts with ansible, and query the records that the hosts return."""
