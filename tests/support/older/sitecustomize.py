"""A build that lacks the features that `EBLA_TEST_LACKS` names: Python imports this module before the program."""

import os

import ebla.model.topology as topology

topology.FEATURES = topology.FEATURES - set(filter(None, os.environ.get("EBLA_TEST_LACKS", "").split(",")))
