"""The dashboard at `/`: one page, put together at the start from the files in `web/`.

It holds no data but limits of requests: what it shows it asks the API for, with the key of whoever looks at it. The
policy that goes with it lets the browser run this script and this style, by their hashes, and ask nobody but the API.
"""

import base64
import hashlib
import json
from importlib.resources import files
from typing import NamedTuple

from saros.api.limits import Limits

_SCRIPTS = ("pure.js", "chart.js", "stream.js", "gate.js", "playground.js", "main.js")  # each knows those before it
_STYLE_HERE, _SCRIPT_HERE, _LIMITS_HERE = "/* style */", "/* script */", "/* limits */"


class Page(NamedTuple):
    """A page as it is served."""

    text: str
    headers: dict[str, str]


def dashboard(limits: Limits) -> Page:
    """Return the page, which keeps to the limits, and the headers that keep it to itself."""
    web = files("saros.api").joinpath("web")
    html = web.joinpath("dashboard.html").read_text("utf-8")
    style = web.joinpath("dashboard.css").read_text("utf-8")
    script = "\n".join(web.joinpath(name).read_text("utf-8") for name in _SCRIPTS)
    for here in (_STYLE_HERE, _SCRIPT_HERE, _LIMITS_HERE):
        assert html.count(here) == 1, here
    told = json.dumps({"session_max": limits.session_max, "wait_ms_max": limits.wait_ms_max})
    policy = {
        "default-src": "'none'",
        "script-src": _hashed(script),
        "style-src": _hashed(style),
        "connect-src": "'self'",
        "img-src": "data:",  # the icon
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        # Whatever an id holds, it cannot become markup.
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return Page(
        html.replace(_STYLE_HERE, style).replace(_SCRIPT_HERE, script).replace(_LIMITS_HERE, told),
        {
            "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
        },
    )


def _hashed(text: str) -> str:
    """Return a text as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
