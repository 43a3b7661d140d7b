"""``python -m appliance.pipeline``: makes the report of a day, in a process of its own."""

from __future__ import annotations

from appliance.pipeline.run import run_and_exit

if __name__ == "__main__":
    run_and_exit()
