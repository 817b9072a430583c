# SPDX-License-Identifier: GPL-2.0-only
"""Files made from records: the page of a sweep, plots, tables, drawings, exports and metrics."""
