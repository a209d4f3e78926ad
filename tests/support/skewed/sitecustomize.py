"""A machine whose clock is wrong by `EBLA_TEST_SKEW_S` seconds: Python imports this module before the program."""

import os
import time

_SKEW_S = float(os.environ.get("EBLA_TEST_SKEW_S", "0"))
_time, _time_ns = time.time, time.time_ns

time.time = lambda: _time() + _SKEW_S
time.time_ns = lambda: _time_ns() + int(_SKEW_S * 1e9)
