# SPDX-License-Identifier: GPL-2.0-only
"""Facts about machines (processors, settings, tool versions), network paths, and hosts reached over ssh."""
