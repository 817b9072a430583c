# SPDX-License-Identifier: GPL-2.0-only
"""The unit, the Kubernetes manifest and the Helm chart start copyscope alike, with the same capabilities."""

import configparser
import json
import re
import shlex
from typing import Any

import msgspec
import pytest
from copyscope import VERSION
from copyscope.base.paths import ROOT
from copyscope.commands.watch_arguments import parse

DAEMON = ROOT / "tools" / "daemon"
CHART = DAEMON / "chart"
MANIFEST = DAEMON / "daemonset.yaml"


def read_yaml(text: str) -> dict[str, Any]:
    return dict(msgspec.yaml.decode(text))


def unit_settings() -> dict[str, str]:
    """Return the settings of the unit's section [Service]. Repeated keys would be an error of the parser."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DAEMON / "copyscope.service").read_text())
    assert parser["Install"]["WantedBy"] == "multi-user.target"
    return dict(parser["Service"])


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    (result,) = manifest["spec"]["template"]["spec"]["containers"]
    return dict(result)


def expand(words: list[str], environment: dict[str, str]) -> list[str]:
    """Expand variables in words as systemd does: $WORD becomes several words, ${WORD} is a part of one."""
    expanded = []
    for word in words:
        if word[0] == "$" and word[1] != "{":
            expanded += environment[word[1:]].split()
        else:
            expanded.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
    return expanded


def render(template: str, values: dict[str, Any]) -> str:
    """Render the chart's template as Helm does, for values without further options."""
    assert values["options"] == []
    text = re.sub(r"\{\{ range \.Values\.options \}\}.*?\{\{ end \}\}", "", template)
    text = text.replace("{{ .Release.Name }}", "copyscope")
    text = re.sub(r"\{\{ \.Values\.(\w+) \| toJson \}\}", lambda name: json.dumps(values[name[1]]), text)
    return re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda name: str(values[name[1]]), text)


def unit_arguments(extra: str) -> list[str]:
    settings = unit_settings()
    environment = dict(word.split("=", 1) for word in shlex.split(settings["Environment"]))
    return expand(settings["ExecStart"].split(), environment | {"OPTIONS": extra})[1:]


@pytest.mark.parametrize("extra", ["", "--top 50"])
def test_unit_and_manifest_pass_options_that_watch_knows(extra: str) -> None:
    manifest = container(read_yaml(MANIFEST.read_text()))
    for words in (unit_arguments(extra), manifest["args"] + extra.split()):
        assert words[0] == "watch"
        options, command = parse(words[1:])
        assert (options.all, options.serve[1], command) == (True, 9464, [])
        assert not extra or options.top == 50


def test_unit_and_manifest_have_the_same_capabilities_and_no_more_privileges() -> None:
    settings = unit_settings()
    capabilities = [name.removeprefix("CAP_") for name in settings["CapabilityBoundingSet"].split()]
    assert settings["NoNewPrivileges"] == "yes"
    manifest = read_yaml(MANIFEST.read_text())
    security = container(manifest)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": capabilities}
    assert not security["allowPrivilegeEscalation"] and "privileged" not in security
    assert manifest["spec"]["template"]["spec"]["hostPID"] is True


def test_chart_renders_the_manifest_and_has_the_version() -> None:
    values = read_yaml((CHART / "values.yaml").read_text())
    template = (CHART / "templates" / "daemonset.yaml").read_text()
    assert read_yaml(render(template, values)) == read_yaml(MANIFEST.read_text())
    chart = read_yaml((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
