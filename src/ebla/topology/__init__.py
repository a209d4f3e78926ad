"""The shape of the cluster: nodes that come and go, tablets that move, split and become one."""
