"""Names a browser and its system in words: "Firefox 128 on Windows". For people to tell their sessions apart, and nothing else.

A browser may send any name; the portal decides nothing by it.
"""

from __future__ import annotations

import re

__all__ = ["AGENT_MAX", "browser_in_words"]

AGENT_MAX = 300  # characters that are kept of the header User-Agent
_SHOWN_MAX = 60  # of one that is not known
# In this order: Edge and Opera also call themselves Chrome, and Chrome calls itself Safari.
_BROWSERS = (
    ("Edge", re.compile(r"\bEdg(?:A|iOS)?/(\d{1,4})")),
    ("Opera", re.compile(r"\bOPR/(\d{1,4})")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/(\d{1,4})")),
    ("Chrome", re.compile(r"\b(?:Headless)?(?:Chrome|Chromium|CriOS)/(\d{1,4})")),
    ("Safari", re.compile(r"\bVersion/(\d{1,4})[^ ]* (?:Mobile/\w+ )?Safari/")),
)
# Android also says Linux, and an iPhone "like Mac OS X".
_SYSTEMS = (
    ("iPhone", re.compile(r"\biPhone\b")),
    ("iPad", re.compile(r"\biPad\b")),
    ("Android", re.compile(r"\bAndroid\b")),
    ("Windows", re.compile(r"\bWindows\b")),
    ("ChromeOS", re.compile(r"\bCrOS\b")),
    ("macOS", re.compile(r"\bMac OS X\b|\bMacintosh\b")),
    ("Linux", re.compile(r"\bLinux\b")),
)


def browser_in_words(agent: str) -> str:
    """Returns browser and system of a header User-Agent; its beginning if neither is known."""
    browser = next((f"{name} {found[1]}" for name, rule in _BROWSERS if (found := rule.search(agent))), "")
    system = next((name for name, rule in _SYSTEMS if rule.search(agent)), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or agent[:_SHOWN_MAX] or "unknown browser"
