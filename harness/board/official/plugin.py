"""The plugin's methods that are replaced: how it finds runs, which it parses, what its routes answer."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from harness.board.official import diff
from harness.board.official.catalog import Run, find_runs, logdirs_of
from harness.board.official.page import CONTENT_SECURITY_POLICY, asset
from harness.board.official.parser import Answer
from harness.board.official.profiles import Profiles

log = logging.getLogger(__name__)

SCAN_S = 3.0
MADE_READY = 4
"""Runs, the newest ones, whose newest windows are parsed before anybody asks."""
DIFFS_KEPT = 4
EVERY_RANK = "All"
DISTRIBUTED = "Distributed"
TIMELINE = "../windows/timeline/view.html"
"""The Perfetto page of the harness's own plugin, from this plugin's routes."""


def apply() -> None:
    """Give the plugin's class these methods. Instances that exist already are not changed."""
    from torch_tb_profiler.plugin import TorchProfilerPlugin

    for name in ("__init__", "is_active", "is_loading", "get_plugin_apps", "static_file_route", "trace_route"):
        setattr(TorchProfilerPlugin, name, Repaired.__dict__[name])
    for name in ("runs_route", "views_route", "workers_route", "spans_route", "timeline_route"):
        setattr(TorchProfilerPlugin, name, Repaired.__dict__[name])
    for name in ("_get_run", "_get_profile", "get_diff_status", "get_diff_stats_dict", "_diff"):
        setattr(TorchProfilerPlugin, name, Repaired.__dict__[name])
