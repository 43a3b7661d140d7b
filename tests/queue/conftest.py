"""The audit's asserts say what they compared."""

import pytest

pytest.register_assert_rewrite("tests.queue.machine")
